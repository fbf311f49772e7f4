"""Stretches of a rank's segments with what each is charged to, some segments at a time.

All of them at once take several times the room of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path import classes
from nsys_llm.critical_path.path.edges import Edges
from nsys_llm.critical_path.path.host_parts import HostParts
from nsys_llm.critical_path.path.stretches import (
    REASONS,
    Keys,
    Stretches,
    split_key,
    stretches,
)
from nsys_llm.critical_path.path.walk import Segments
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import coded, distinct, distinct_codes, runs
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace

#: The device of host time.
HOST: Final = -1
#: So many nodes at a time stay small beside the trace.
_NODES: Final = 1 << 15


@dataclass(frozen=True, order=True)
class Charge:
    """What time is charged to.

    Attributes:
        edge: Code of `EDGE_NAMES`: by which the path goes on from there.
        detail: Kernel, copy, API function, NVTX range, or reason; "" for none.
        device_id: CUDA device id; `HOST` for none.
        state: Of host time outside of CUDA calls what its thread did, see `STATES` of
            `nsys_llm.facts.host.states`; "" where it is not recorded.
        function: In which function of the C library it was; "" for none.
    """

    kind: int
    edge: int
    detail: str
    device_id: int
    state: str = ""
    function: str = ""


def unrecorded(kind: int = classes.UNKNOWN) -> Charge:
    """Return what time before all that is recorded is charged to."""
    return Charge(kind, 0, classes.BEFORE_CAPTURE, HOST)


@dataclass(frozen=True)
class Block:
    """Stretches of successive segments.

    Attributes:
        low: The first of the segments.
        charges: What codes stand for, sorted.
        code: Shape (stretches,), position in `charges`.
    """

    low: int
    parts: Stretches
    charges: tuple[Charge, ...]
    code: npt.NDArray[np.int32]


class Blocks:
    """Makes the stretches of segments of one rank."""

    def __init__(
        self, trace: RankTrace, edges: Edges, names: Sequence[str], segments: Segments
    ) -> None:
        self._edges, self._names, self._segments = edges, names, segments
        self._api_names, self._api = _apis(trace, edges.host)
        self._host_parts = HostParts(trace, edges.host)
        self._devices = distinct(edges.ops.device_ids).tolist()
        self.nodes_n = segments.top - segments.bottom + 1

    def __iter__(self) -> Iterator[Block]:
        for low, high in runs(self.nodes_n, _NODES):
            parts = self.stretches(np.arange(low, high))
            keys, code = distinct_codes(parts.key)
            charges, merged = self._charges(keys)
            yield Block(low, parts, charges, merged[code].astype(np.int32))

    def stretches(self, rows: IntArray) -> Stretches:
        """Return the stretches of some segments."""
        some = self._segments
        some = replace(some, top=some.top[rows], bottom=some.bottom[rows], next=some.next[rows])
        return self._host_parts.split(stretches(self._edges, some, self._api))

    def _charges(self, keys: Keys) -> tuple[tuple[Charge, ...], IntArray]:
        """Return what keys stand for, each once and sorted, and each one's place among them."""
        key_charges = []
        for kind, edge, detail in zip(*(item.tolist() for item in split_key(keys)), strict=True):
            text, device, doing = "", HOST, ("", "")
            if kind in (classes.COMPUTE, classes.COPY, classes.COMMUNICATION, classes.UNKNOWN):
                name, place = divmod(detail, len(self._devices))
                text = (REASONS if kind == classes.UNKNOWN else self._names)[name]
                device = self._devices[place]
            elif kind in (classes.DEVICE_LATENCY, classes.LAUNCH_LATENCY):
                device = self._devices[detail]
            elif kind == classes.HOST_NO_CUDA:
                text, state, function = self._host_parts.named(detail)
                doing = state, function
            elif kind != classes.PROFILER:
                text = self._api_names[detail]
            key_charges.append(Charge(kind, edge, text, device, *doing))
        return coded(key_charges)


def _apis(trace: RankTrace, host: HostTimeline) -> tuple[tuple[str, ...], Positions]:
    calls = trace.tables.get("api_calls")
    if calls is None or not host.calls.row.size:
        return (), np.empty(0, dtype=np.int32)
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    return names, code.astype(np.int32)[host.calls.row]
