"""Options that choose what a rank does not have, and what it has instead.

A name that nothing, a number that no instance, or a device or window without GPU work on any rank
is a mistake of the command line, and ends the run before anything is published. Where some ranks
have it, the others say so in a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.numeric.grouping import distinct
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.filters import RANGE_OPTIONS, numbers_there
from nsys_llm.trace.ranges import distinct_ranges, typed_name
from nsys_llm.trace.rank_trace import RankTrace

#: Of each rank; of all ranks those that are shown.
_MOST_OF_A_RANK: Final = 10
_MOST_SHOWN: Final = 5
#: Longer names are cut in the message.
_LONGEST: Final = 100

_RANGES: Final = ("filter_nvtx", "filter_projected_nvtx", "step")
_KERNEL: Final = "step_kernel"
_KERNEL_NAMES: Final = ("demangled_name_id", "short_name_id", "mangled_name_id")
#: Not options: all filters together, where each alone leaves something; launches, which filters by
#: ranges need.
_FILTERS: Final = "filters"
_CALLS: Final = "calls"
_DEVICE: Final = "device"
_WINDOW: Final = "filter_time"
_LEAVE_NOTHING: Final = (_CALLS, _DEVICE, _WINDOW, _FILTERS)
_FLAGS: Final = {"range": "--trace=nvtx", "kernel": "--trace=cuda"}

#: Names that are compared letter by letter: some 100 us a name.
_MOST_COMPARED: Final = 1_000


@dataclass(frozen=True)
class Unmatched:
    """An option that matches nothing on one rank.

    Attributes:
        nearest: Names of the rank near to what was typed, as the option takes them; at most 10. Of
            --device all devices with GPU work; of a window, and of all filters, when that begins
            and ends.
        there_n: Where only the number is beyond the last instance: how many there are; else None.
    """

    option: str
    nearest: tuple[str, ...]
    there_n: int | None = None


def unmatched_options(trace: RankTrace, options: Mapping[str, Any]) -> tuple[Unmatched, ...]:
    """Return the options that match no name, or no instance, of a rank, before any filter."""
    searches: dict[str, Callable[[RankTrace, str], Collection[str] | None]] = {
        **dict.fromkeys(_RANGES, _other_ranges),
        _KERNEL: _other_kernels,
    }
    others = {
        option: names
        for option, search in searches.items()
        if options.get(option) and (names := search(trace, options[option])) is not None
    }
    named = tuple(
        Unmatched(option, nearest_names(options[option], names, _MOST_OF_A_RANK))
        for option, names in (*others.items(), *trace.others.items())
    )
    numbered = tuple(Unmatched(option, (), n) for option, n in trace.there_n.items())
    return named + numbered or _without_work(trace, options)


def _without_work(trace: RankTrace, options: Mapping[str, Any]) -> tuple[Unmatched, ...]:
    """Return the option that leaves no GPU work of a rank that has some."""
    ops = [op for op in trace.unfiltered.values() if len(op)]
    if not ops or any(len(trace.tables[name]) for name in trace.unfiltered):
        return ()
    if not trace.device_ids:
        used = {device for op in ops for device in distinct(op["device_id"]).tolist()}
        return (Unmatched(_DEVICE, tuple(map(str, sorted(used)))),)
    traced = len(trace.tables.get("api_calls", ())) > 0
    if not traced and any(options.get(name) for name in RANGE_OPTIONS):
        return (Unmatched(_CALLS, ()),)
    first_ns = min(int(op["start_ns"].min()) for op in ops)
    last_ns = max(int(op["end_ns"].max()) for op in ops)
    low_ns, high_ns = options.get(_WINDOW) or (None, None)
    in_window = (
        (op["end_ns"] > (first_ns - 1 if low_ns is None else low_ns))
        & (op["start_ns"] < (last_ns + 1 if high_ns is None else high_ns))
        for op in ops
    )
    option = _FILTERS if any(inside.any() for inside in in_window) else _WINDOW
    return (Unmatched(option, (str(first_ns), str(last_ns))),)


def unmatched_notes(
    unmatched: Sequence[Unmatched], options: Mapping[str, Any], notes: Iterable[str]
) -> tuple[str, ...]:
    """Return the notes of a rank, with one for each unmatched option that none speaks of."""
    notes = tuple(notes)
    reported = "\n".join(notes)
    # The filters have told what of numbers is to be told.
    items = [item for item in unmatched if item.there_n is None]
    return notes + tuple(
        note for item in items if (note := _note(item, options, reported)) is not None
    )


def _note(item: Unmatched, options: Mapping[str, Any], reported: str) -> str | None:
    if item.option in _LEAVE_NOTHING:
        return None if reported else _nothing_left([item])
    named = f"'{options[item.option]}'"
    return None if named in reported else f"no {_kind(item.option)} {named} ({_flag(item.option)})"


def refuse_unmatched(ranks: Sequence[Sequence[Unmatched]], options: Mapping[str, Any]) -> None:
    """Stop the run if an option matches nothing on any rank.

    Raises:
        UsageError: There is such an option.
    """
    of_ranks = [{item.option: item for item in rank} for rank in ranks]
    shared = [
        option
        for option in (*options, _CALLS, _FILTERS)
        if of_ranks and all(option in rank for rank in of_ranks)
    ]
    if not {"step", "step_kernel"}.isdisjoint(shared):
        shared = [option for option in shared if option != "steps"]  # there are none to count
    if shared:
        raise UsageError("; ".join(_line(option, of_ranks, options) for option in shared) + ".")


def _line(
    option: str, of_ranks: Sequence[Mapping[str, Unmatched]], options: Mapping[str, Any]
) -> str:
    unmatched = [rank[option] for rank in of_ranks]
    where = "the rank" if len(of_ranks) == 1 else f"any of {len(of_ranks)} ranks"
    if counts := [item.there_n for item in unmatched if item.there_n is not None]:
        most = " on the rank with most" if len({*counts}) > 1 else ""
        advice = "" if max(counts) else "; name what a step is with --step or --step-kernel"
        there = numbers_there(option, options, max(counts))
        return f"{there}{most}; nothing is selected on {where}{advice}"
    if option in _LEAVE_NOTHING:
        return _nothing_left(unmatched, f" on {where}")
    typed, kind = str(options[option]), _kind(option)
    names = {name for item in unmatched for name in item.nearest}
    line = f"{_flag(option)}: no {kind} '{_cut(typed)}' on {where}"
    if not names:
        flags = _FLAGS["kernel" if option == _KERNEL else "range"]
        return f"{line}, which recorded none at all (record with {flags})"
    shown = nearest_names(typed, names, _MOST_SHOWN)
    return f"{line}; nearest: " + ", ".join(f"'{_cut(name)}'" for name in shown)


def _nothing_left(unmatched: Sequence[Unmatched], where: str = "") -> str:
    """Say what leaves no GPU work, and what there is."""
    option = unmatched[0].option
    if option == _CALLS:
        return f"no API calls were traced{where}, so no launch can be assigned to an NVTX range"
    there = [list(map(int, item.nearest)) for item in unmatched]
    if option == _DEVICE:
        ids = ", ".join(map(str, sorted(set(chain(*there)))))
        return (
            f"--device: none of these has GPU work{where}; there is some on device {ids}, as its "
            "process counts them (--ranks chooses ranks)"
        )
    first_ns, last_ns = min(first for first, _ in there), max(last for _, last in there)
    # A number alone is ns, and who writes 5 means seconds.
    what = "--filter-time (in ns, or 5s, 60ms) leaves" if option == _WINDOW else "the filters leave"
    milliseconds = f"{first_ns / 1e6:,.1f} to {last_ns / 1e6:,.1f} ms"
    return (
        f"{what} no GPU work{where}; there is some from {first_ns} to {last_ns} ns ({milliseconds})"
    )


def _kind(option: str) -> str:
    if option == "phase":
        return option
    return "kernel" if option == _KERNEL else "NVTX range"


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _other_ranges(trace: RankTrace, text: str) -> Collection[str] | None:
    """Return what ranges there are, if the choice names none of them; else None."""
    choice, events = parse_choice(text), trace.tables.get("nvtx_events", Table({}))
    ranges = distinct_ranges(events, trace.strings, trace.last_end_ns) if len(events) else set()
    if any(choice.holds(domain) and choice.names(name) for name, domain in ranges):
        return None
    of_domain = choice.domain is not None
    return {typed_name(range_key(name), domain if of_domain else None) for name, domain in ranges}


def _other_kernels(trace: RankTrace, text: str) -> Collection[str] | None:
    kernels = trace.unfiltered.get("kernels")
    if kernels is None:
        return ()
    pattern = parse_pattern(text)
    names = {
        name
        for column in _KERNEL_NAMES
        if column in kernels
        for name in coded_names(kernels[column], trace.strings)[0]
    }
    return None if any(map(pattern.matches, names)) else names


def nearest_names(typed: str, names: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the names nearest to what was typed: those that hold it, then the most similar.

    Upper and lower case are the same. The nearest of all ranks' names are among the nearest of each
    rank, so that few of each are enough.

    Args:
        typed: A name, or `re:` and an expression, of which the letters and digits count.
    """
    wanted = typed.casefold()
    if typed.startswith("re:"):
        wanted = "".join(re.findall(r"\w+", wanted.removeprefix("re:")))

    def roughly(name: str) -> tuple[bool, int, str]:
        return wanted not in name.casefold(), abs(len(name) - len(wanted)), name

    def closely(name: str) -> tuple[bool, float, str]:
        alike = SequenceMatcher(None, wanted, name.casefold(), autojunk=False).ratio()
        return wanted not in name.casefold(), -alike, name

    return tuple(nsmallest(most, nsmallest(_MOST_COMPARED, set(names), key=roughly), key=closely))
