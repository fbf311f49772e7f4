"""Kernels that follow each other in one stream in most layers, and could be one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.operations.kernels import KernelNames
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.gaps import start_order
from nsys_llm.numeric.grouping import distinct_rows, order_by_code, positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.kernel_levers import (
    ATTENTION,
    LAYERS_SHARE,
    LEAST_N,
    PRODUCT,
    Fusion,
    element_of,
    load_fusions,
)


@dataclass(frozen=True)
class FusionRow:
    """A sequence of kernels that begins and ends with two names, see the table `fusions`."""

    device_id: int
    fusion: str
    first: str
    last: str
    sequences_n: int
    attentions_n: int
    layers_n: int
    time_ns: int
    gaps_ns: int
    saved_ns: int


@dataclass(frozen=True)
class _ByStream:
    """The kernels of a rank by stream, those of one in order of time; shape (kernels,).

    Attributes:
        row: In the table.
        stream: Code of its stream and device.
        element: Place among the elements of sequences; -1 for none.
    """

    row: IntArray
    stream: IntArray
    element: IntArray


def map_fusions(view: RankView, names: KernelNames) -> tuple[FusionRow, ...]:
    """Return the sequences that a rank has in half of its layers, in the order of the data."""
    of_pair = [element_of(full) for _, full in names.pairs]
    elements = sorted({element for element in of_pair if element})
    wanted = [item for item in load_fusions().values() if {*item.sequence} <= {*elements}]
    if not wanted or ATTENTION not in elements:
        return ()
    code = positions(of_pair, elements)
    streams, rows = _streams(view, names, code[names.source]), list[FusionRow]()
    taken = np.zeros(streams.row.size, dtype=bool)
    layers = _layers(streams, elements)
    for fusion in wanted:
        first = _places(streams, [elements.index(name) for name in fusion.sequence], taken)
        for step in range(len(fusion.sequence)):
            taken[first + step] = True
        at = streams.row[first[:, None] + np.arange(len(fusion.sequence))]
        if at.size:
            rows += _rows(view, names, fusion, at, layers)
    return tuple(rows)


def _streams(view: RankView, names: KernelNames, element: IntArray) -> _ByStream:
    kernels = view.trace.tables["kernels"]
    ends = kernels["end_ns"]
    order = start_order(kernels["start_ns"], lambda some: (ends[some], names.source[some]))
    row = np.arange(len(kernels)) if order is None else order
    _, stream = distinct_rows([kernels["stream_id"], kernels["device_id"]])
    row = row[order_by_code(stream[row])]
    return _ByStream(row, stream[row], element[row])


def _layers(streams: _ByStream, elements: list[str]) -> IntArray:
    """Return the rows of attention that have a product between them and the one before."""
    products = [elements.index(PRODUCT)] if PRODUCT in elements else []
    at = np.flatnonzero(streams.element == elements.index(ATTENTION))
    before = np.cumsum(np.isin(streams.element, products))[at]
    return streams.row[at][
        (np.diff(before, prepend=-1) != 0) | (np.diff(streams.stream[at], prepend=-1) != 0)
    ]


def _places(streams: _ByStream, wanted: list[int], taken: npt.NDArray[np.bool_]) -> IntArray:
    """Return where a sequence begins in which no kernel is taken; no two of them overlap."""
    last_n = max(streams.row.size - len(wanted) + 1, 0)
    here = np.ones(last_n, dtype=bool)
    for step, element in enumerate(wanted):
        some = slice(step, step + last_n)
        here &= (streams.element[some] == element) & ~taken[some]
        here &= streams.stream[some] == streams.stream[:last_n]
    return np.flatnonzero(here)


def _rows(
    view: RankView, names: KernelNames, fusion: Fusion, at: IntArray, layers: IntArray
) -> Iterator[FusionRow]:
    """Yield the rows of a sequence; of a device that has it in few of its layers, none.

    Args:
        at: Shape (sequences, kernels), rows of the table.
        layers: Those with which the attention of a layer begins.
    """
    kernels = view.trace.tables["kernels"]
    starts, ends, device = kernels["start_ns"][at], kernels["end_ns"][at], kernels["device_id"]
    moves = np.array([bytes_n is not None for bytes_n in fusion.moved])
    time_ns = (ends - starts)[:, moves].sum(axis=1)
    gaps_ns = np.maximum(starts[:, 1:] - ends[:, :-1], 0).sum(axis=1)
    of = device[at[:, 0]]
    first, group = distinct_rows([of, names.name[at[:, 0]], names.name[at[:, -1]]])
    for number, ends_of in enumerate(at[first][:, [0, -1]].tolist()):
        device_id, some = int(device[ends_of[0]]), group == number
        begins = np.sort(kernels["start_ns"][layers[device[layers] == device_id]])
        between = np.searchsorted(begins, starts[of == device_id, 0])
        layers_n = min(np.unique(between).size, begins.size)
        if between.size < LEAST_N or layers_n < LAYERS_SHARE * begins.size:
            continue
        n, moved_ns = int(some.sum()), int(time_ns[some].sum())
        # A gap that waits for the host is no launch's.
        launch_ns = n * int(np.quantile(gaps_ns[some], 0.5, method="lower"))
        yield FusionRow(
            device_id=device_id,
            fusion=fusion.id,
            first=names.shown[int(names.name[ends_of[0]])],
            last=names.shown[int(names.name[ends_of[1]])],
            sequences_n=n,
            attentions_n=begins.size,
            layers_n=layers_n,
            time_ns=moved_ns,
            gaps_ns=launch_ns,
            saved_ns=round(fusion.share * moved_ns) + launch_ns,
        )
