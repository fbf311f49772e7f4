"""Matrix products whose PyTorch operators tell their shapes (`--pytorch=autograd-shapes-nvtx`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nvtx.nvtx_tree import innermost_events
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.grouping import distinct, exact_sums
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.ranges import event_texts

_SIZE: Final = r"\[(?:[0-9]{1,10}(?:, ?[0-9]{1,10})*)?\]"
_RANGE: Final = re.compile(rf"aten::(\w+)\b.*?, sizes = \[({_SIZE}(?:, ?{_SIZE})*)\]")
_SIZED: Final = ", sizes = ["
_SIZES: Final = re.compile(_SIZE)
_NUMBER: Final = re.compile(r"[0-9]+")
#: No product of one GPU has more multiplications.
_MOST_WORK: Final = 1 << 60
#: Operators, and which of their operands are multiplied.
_OPERANDS: Final = {
    "mm": (0, 1),
    "_scaled_mm": (0, 1),
    "addmm": (1, 2),
    "bmm": (0, 1),
    "baddbmm": (1, 2),
    "linear": (0, 1),
}
_GEMM: Final = ("gemm", "gemv")


@dataclass(frozen=True)
class GemmShape:
    """All operators of one rank with equal shapes and kernels.

    Attributes:
        kernel: Full name of the kernel that takes longest of the first such operator.
        shape: Batch, M, N and K; None where an operator's product is not known.
        launches_n: Kernels.
        times_ns: Shape (operators,), time of all their kernels.
    """

    kernel: str
    shape: tuple[int, int, int, int] | None
    launches_n: int
    times_ns: IntArray


def shape_of(text: str) -> tuple[int, int, int, int] | None:
    """Return batch, M, N and K of an operator's range; None for another, or shapes that differ."""
    match = _RANGE.search(text)
    if match is None or match[1] not in _OPERANDS:
        return None
    sizes = [[int(text) for text in _NUMBER.findall(some)] for some in _SIZES.findall(match[2])]
    left, right = _OPERANDS[match[1]]
    if len(sizes) <= right or not (sizes[left] and sizes[right]):
        return None
    a, b = sizes[left], sizes[right]
    if match[1] == "linear":
        if len(b) != 2 or a[-1] != b[1]:
            return None
        shape = 1, prod(a[:-1]), b[0], b[1]
    elif len(a) != len(b) or len(a) not in (2, 3) or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    else:
        shape = (a[0] if len(a) == 3 else 1), a[-2], b[-1], a[-1]
    return shape if prod(shape) < _MOST_WORK else None


def map_gemms(view: RankView) -> tuple[GemmShape, ...]:
    """Return the products of a rank by kernel and shape; none where no operator tells any."""
    trace = view.trace
    kernels, calls = trace.tables["kernels"], trace.tables.get("api_calls")
    events = trace.tables.get("nvtx_events")
    if events is None or calls is None or not len(calls) or not _any_sizes(events, trace.strings):
        return ()
    names, code = coded_names(kernels["demangled_name_id"], trace.strings)
    rules = rules_for(names)
    is_gemm = np.array([rules.classify(name).category in _GEMM for name in names], dtype=bool)
    launched = kernels["launch_row"] >= 0
    rows = np.flatnonzero(is_gemm[code] & launched & (kernels["graph_node_id"] < 0))
    if not rows.size:
        return ()
    call = kernels["launch_row"][rows]
    event = innermost_events(
        events, calls["start_ns"][call], calls["global_tid"][call], trace.last_end_ns
    )
    rows, event = rows[event >= 0], event[event >= 0]
    used, operator = np.unique(event, return_inverse=True)
    texts = event_texts(events.take(used), trace.strings).tolist()
    with_sizes = np.array([_SIZED in text for text in texts], dtype=bool)
    if not with_sizes.any():
        return ()
    length_ns = kernels["end_ns"][rows] - kernels["start_ns"][rows]
    return _grouped(texts, with_sizes, names, code[rows], operator, length_ns)


def _grouped(
    texts: Sequence[str],
    with_sizes: np.ndarray,
    names: Sequence[str],
    code: IntArray,
    operator: IntArray,
    length_ns: IntArray,
) -> tuple[GemmShape, ...]:
    total_ns = exact_sums(operator, length_ns, len(texts))
    launches_n = np.bincount(operator, minlength=len(texts))
    # The longest stands last of each operator, and is the one that stays.
    longest = np.zeros(len(texts), dtype=np.int64)
    order = np.argsort(length_ns, kind="stable")
    longest[operator[order]] = code[order]
    groups: dict[tuple[str, tuple[int, int, int, int] | None], list[int]] = {}
    for place in np.flatnonzero(with_sizes).tolist():
        groups.setdefault((names[longest[place]], shape_of(texts[place])), []).append(place)
    return tuple(
        GemmShape(kernel, shape, int(launches_n[places].sum()), total_ns[places])
        for (kernel, shape), places in sorted(groups.items(), key=str)
    )


def _any_sizes(events: Table, strings: Mapping[int, str]) -> bool:
    """Return whether the text of any event tells sizes; most profiles have none."""
    ids = distinct(events["text_id"])
    plain = np.flatnonzero(events["text_id"] == NULL_INT)
    texts = chain(map(strings.get, ids.tolist()), events["text"][plain].tolist())
    return any(text is not None and _SIZED in text for text in texts)
