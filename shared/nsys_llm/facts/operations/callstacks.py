"""Where one rank's slow API calls were made: the call stacks that `--cudabacktrace` records.

The capture records stacks of calls that are longer than its threshold (80 us by default), so every
call with a stack is one that its user thought slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import coded, distinct_codes, distinct_rows, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.host_modules import module_class
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names, text_of
from nsys_llm.trace.rank_trace import RankTrace

#: Frames of a stack that are shown; the rest is said to be there.
_MOST_FRAMES: Final = 64


@dataclass(frozen=True)
class CallStack:
    """One call stack of one API function. See the table `callstacks` of the manifest."""

    api: str
    stack: str
    calls_n: int
    total_ns: int
    max_ns: int
    first_start_ns: int


def map_callstacks(trace: RankTrace, options: Mapping[str, Any]) -> tuple[CallStack, ...]:
    """Return the call stacks of a rank with the most time, at most --top of them."""
    chains = trace.tables["cuda_callchains"]
    if not len(chains) or "callchain_id" not in trace.tables["api_calls"]:
        return ()
    calls = trace.host_calls("api_calls")
    calls = calls.take(trace.starts_inside(calls) & np.isin(calls["callchain_id"], chains["id"]))
    ids, chain = distinct_codes(calls["callchain_id"])
    stacks, stack = _stacks(chains, ids, trace.strings, options["anonymize"])
    names, api = coded_names(calls["name_id"], trace.strings, strip_api_version)
    used, group = distinct_codes(stack[chain] * max(len(names), 1) + api)
    whole_ns = calls["end_ns"] - calls["start_ns"]
    calls_n, total_ns = np.bincount(group, minlength=len(used)), summed(group, whole_ns, len(used))
    longest_ns = np.zeros(len(used), dtype=np.int64)
    np.maximum.at(longest_ns, group, whole_ns)
    first_ns = np.full(len(used), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, group, calls["start_ns"])
    rows = [
        CallStack(
            names[code % len(names)], stacks[code // len(names)], count, total, longest, first
        )
        for code, count, total, longest, first in zip(
            *(item.tolist() for item in (used, calls_n, total_ns, longest_ns, first_ns)),
            strict=True,
        )
    ]
    rows.sort(key=lambda row: (-row.total_ns, row.api, row.stack))
    return tuple(rows[: options["top"]])


def _stacks(
    chains: Table, ids: IntArray, strings: Mapping[int, str], anonymize: bool
) -> tuple[tuple[str, ...], IntArray]:
    """Return the distinct stacks as text, sorted, and the position of each chain's among them.

    Args:
        ids: Shape (n,), the chains that are wanted, sorted, each once.
        anonymize: Whether a library's class stands for its name.
    """
    frames = chains.take(np.isin(chains["id"], ids))
    frames = frames.take(np.lexsort((frames["depth"], frames["id"])))
    symbols, modules = frames["symbol_id"], frames["module_id"]
    first, frame = distinct_rows([symbols, modules])
    pairs = zip(symbols[first].tolist(), modules[first].tolist(), strict=True)
    words = [_frame(symbol_id, module_id, strings, anonymize) for symbol_id, module_id in pairs]
    # Chains are alike where their frames are: each distinct one is written once.
    parts = np.split(frame, np.searchsorted(frames["id"], ids))[1:]
    keys = [part.tobytes() for part in parts]
    texts = {
        key: _joined([words[at] for at in np.frombuffer(key, frame.dtype).tolist()])
        for key in set(keys)
    }
    return coded([texts[key] for key in keys])


def _frame(symbol_id: int, module_id: int, strings: Mapping[int, str], anonymize: bool) -> str:
    symbol = text_of(symbol_id, strings)
    if not symbol.startswith("0x") or module_id == NULL_INT:
        return symbol
    # An address says nothing by itself; the library that it lies in does.
    path = text_of(module_id, strings)
    return f"{module_class(path) if anonymize else PurePosixPath(path).name}!{symbol}"


def _joined(frames: list[str]) -> str:
    more = len(frames) - _MOST_FRAMES
    return " < ".join(frames[:_MOST_FRAMES]) + (f" < ({more} more frames)" if more > 0 else "")
