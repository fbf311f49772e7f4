"""What to know of a capture before its numbers: its facts, its caveats, what it did not record.

All texts are prose in which names out of a report stand in backticks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from nsys_llm.profile.capture import NO_KERNEL, CaptureFacts
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.report.report import Unrecorded
from nsys_llm.report.run import Run
from nsys_llm.taxonomy.categories import detect_engine
from nsys_llm.taxonomy.step_names import recording_advice
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.outcomes import ProfileOutcome
from nsys_llm.trace.rank_sets import BASELINE, INPUT
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

_ORDER: Final = {BASELINE: 0, INPUT: 1}

#: Tables of all recipes that say which side a row is of.
_SIDED: Final = ("files", "coverage", "capture")


def run_facts(run: Run, tables: Tables) -> list[tuple[str, str]]:
    """Return what the reports say of themselves: one text a label, or one for each side."""
    if not run.manifest.sided:
        return capture_facts(run.profiles, run.ranks, run.options, tables)
    reported: dict[str, dict[str, str]] = {}
    for side in _sides(tables):
        own = run.side(side)
        for label, text in capture_facts(own.profiles, own.ranks, run.options, _of(tables, side)):
            reported.setdefault(label, {})[side] = text
    sides_n = len(_sides(tables))
    return [(label, _joined(texts, sides_n)) for label, texts in reported.items()]


def sided_caveats(tables: Tables) -> list[str]:
    """Return what makes the numbers incomplete, and on which sides; see `capture_caveats`."""
    reported: dict[str, list[str]] = {}
    sides = _sides(tables)
    for side in sides:
        for text in capture_caveats(_of(tables, side)):
            reported.setdefault(text, []).append(side)
    return [
        f"Each run: {text}" if len(affected) == len(sides) else f"{', '.join(affected)}: {text}"
        for text, affected in reported.items()
    ]


def _sides(tables: Tables) -> list[str]:
    sides = dict.fromkeys(tables["files"]["run"].tolist())
    return sorted(sides, key=lambda side: (_ORDER.get(side, 2), side))


def _of(tables: Tables, side: str) -> dict[str, pd.DataFrame]:
    return {
        name: table[table["run"] == side] if name in _SIDED else table
        for name, table in tables.items()
    }


def _joined(texts: Mapping[str, str], sides_n: int) -> str:
    distinct = list(dict.fromkeys(texts.values()))
    if len(distinct) == 1 and len(texts) == sides_n:
        return distinct[0]
    return "; ".join(f"{side}: {text}" for side, text in texts.items())


_MOST_SHOWN: Final = 3
_FILTERS: Final = (
    *("filter_time", "filter_nvtx", "filter_projected_nvtx", "steps", "skip_warmup"),
    *("phase", "device", "ranks"),
)
#: A capture with less says little, whatever its numbers are; ours.
_LEAST_OPS: Final = 1_000
_LEAST_SPAN_NS: Final = 5_000_000
_CUDA: Final = "--trace=cuda"
_NVTX: Final = "--trace=nvtx"
#: How much node-level tracing of CUDA graphs lengthens absolute times, by the users' experience
#: that the design names.
_NODE_TRACING: Final = "30 to 60 %"


def capture_facts(
    profiles: Sequence[ProfileOutcome],
    ranks: Sequence[Rank],
    options: Mapping[str, Any],
    tables: Tables,
) -> list[tuple[str, str]]:
    """Return what the reports say of themselves, as (label, text).

    Args:
        options: Its filters are told, because all numbers are of what they leave.
        tables: The run's tables; `devices` gives the window, where the recipe has it.
    """
    facts = [profile.facts for profile in profiles if profile.facts is not None]
    working = [rank for profile in profiles for rank in profile.ranks]
    sources = {rank.source for rank in ranks if rank.source is not None}
    source = sorted(sources)[0] if sources else ""
    numbered = f", numbered by {quoted(source)}" if source else ""
    if source == "index":
        numbered = ", by name (no profile gives its rank)"
    shown = [
        ("ranks", f"{len(working)} with GPU work in {counted(len(profiles), 'profile')}{numbered}"),
        ("hosts", _values(facts, lambda capture: capture.host)),
        ("GPUs", _values(facts, lambda capture: ", ".join(sorted(set(capture.gpus))) or None)),
        ("only", _filters(options)),
        ("window", _window(tables)),
        ("driver", _values(facts, lambda capture: capture.driver_version)),
        ("CUDA of the driver", _values(facts, lambda capture: capture.cuda_version)),
        ("exported by nsys", _values(facts, lambda capture: capture.nsys_version)),
        ("export schema", _values(facts, lambda capture: capture.schema_version)),
        ("traced", _values(facts, lambda capture: ", ".join(capture.traced) or None)),
        ("CUDA graphs", _values(facts, lambda capture: capture.graph_mode)),
    ]
    return [(label, text) for label, text in shown if text]


def capture_caveats(tables: Tables) -> list[str]:
    """Return what makes the numbers differ from those of an unprofiled run, or incomplete."""
    little = little_work(tables)
    return [
        *([f"{little[0].upper()}{little[1:]}."] if little else ()),
        *_graph_caveats(tables["coverage"]),
        *_join_caveats(tables["coverage"]),
        *_clock_caveats(tables["coverage"]),
        *_row_caveats(tables["coverage"]),
    ]


def little_work(tables: Tables) -> str:
    """Return how little a capture holds where that is too little to judge, as a clause; else ""."""
    coverage, spans_ns = tables["coverage"], tables["wall"]["span_ns"].dropna()
    ops_n, span_ns = int(coverage["total_n"].sum()), int(spans_ns.max()) if len(spans_ns) else 0
    # A graph that was traced whole is one operation, whatever is in it.
    has_graphs = bool((coverage["op"].eq("graph") & coverage["total_n"].gt(0)).any())
    if not span_ns or (span_ns >= _LEAST_SPAN_NS and (ops_n >= _LEAST_OPS or has_graphs)):
        return ""
    return f"too little to judge: {counted(ops_n, 'GPU operation')} in {format_ns(span_ns)}"


def unrecorded(run: Run) -> list[Unrecorded]:
    """Return what the reports could not show.

    A table that no flag records is not spoken of, nor one of CUDA where CUDA was traced: nothing of
    it happened.
    """
    items = []
    readable = [profile for profile in run.profiles if profile.reason is None]
    for read in run.manifest.reads:
        lacking = [profile for profile in readable if _lacks(profile, read.table)]
        if not lacking or not read.capture:
            continue
        if read.capture == _CUDA and all(
            profile.facts is not None and "Cuda" in profile.facts.traced for profile in lacking
        ):
            continue
        is_marked = read.capture == _NVTX and nvtx_was_traced(lacking)
        record = engine_switch(readable) if is_marked else read.capture
        items.append(Unrecorded(f"{read.lost}{_who(len(lacking), len(readable))}", record))
    return [*items, *_forbidden_samples(run, readable)]


def _lacks(profile: ProfileOutcome, table: str) -> bool:
    """Return whether a profile does not have a table, in no form whatever."""
    unknown = profile.facts.unknown_tables if profile.facts is not None else ()
    return table in profile.absent_tables and all(name != table for name, _ in unknown)


def _forbidden_samples(run: Run, readable: Sequence[ProfileOutcome]) -> Iterable[Unrecorded]:
    """Say what Linux did not allow to be sampled: from level 2 on the kernel, above it anything.

    Root may sample at any level: above 2, who has samples has all of them.
    """
    levels = [(item.facts and item.facts.paranoid_level) or 0 for item in readable]
    none = [
        level
        for level, item in zip(levels, readable, strict=True)
        if level > NO_KERNEL and "cpu_samples" in item.absent_tables
    ]
    no_kernel = [level for level in levels if level == NO_KERNEL]
    for read in run.manifest.reads:
        if read.table != "cpu_samples" or not read.capture:
            continue
        for what, some in (("CPU samples", none), ("CPU samples of the kernel", no_kernel)):
            if some:
                lost = (
                    f"{what}, which `kernel.perf_event_paranoid` {max(some)} forbids and 1 allows"
                )
                yield Unrecorded(f"{lost}{_who(len(some), len(levels))}", read.capture)


def _who(some_n: int, all_n: int) -> str:
    """Return how many profiles it is about, unless all."""
    return f" ({format_count(some_n)} of {counted(all_n, 'profile')})" if some_n < all_n else ""


def _graph_caveats(coverage: pd.DataFrame) -> Iterable[str]:
    nodes_n, total_n = _sum(coverage, "graph_node_n"), _sum(coverage, "total_n")
    if nodes_n:
        yield (
            f"{format_count(nodes_n)} of {format_count(total_n)} recorded GPU operations ran "
            "inside CUDA graphs that were traced node by node. That lengthens absolute times by "
            f"about {_NODE_TRACING}; shares and comparisons are more reliable."
        )


def _join_caveats(coverage: pd.DataFrame) -> Iterable[str]:
    missing_n, cut_n = _sum(coverage, "api_missing_n"), _sum(coverage, "api_cut_n")
    if missing_n:
        who = "" if cut_n == missing_n else f"{format_count(cut_n)} of them "
        yield (
            f"{format_count(missing_n)} of "
            f"{counted(_sum(coverage, 'total_n'), 'recorded GPU operation')} "
            f"({format_ns(_sum(coverage, 'api_missing_ns'))}) {'has' if missing_n == 1 else 'have'}"
            " no API call in the profile"
            f"{f': {who}launched before the capture began' if cut_n else ''}."
        )


def _clock_caveats(coverage: pd.DataFrame) -> Iterable[str]:
    kernels = coverage[coverage["op"] == "kernel"]
    early_n, launched_n = _sum(kernels, "early_start_n"), _sum(kernels, "total_n")
    launched_n -= _sum(kernels, "api_missing_n")
    if not early_n:
        return
    usual_ns = int(kernels["early_start_p99_ns"].max())
    limit = (
        f"host and GPU clocks disagree by {format_ns(usual_ns)} or more, and launch latencies and "
        "causes of shorter gaps are not known"
        if usual_ns
        else "99 % do not, so the clocks agree but for these"
    )
    yield (
        f"{format_count(early_n)} of {counted(launched_n, 'launched kernel')} "
        f"({format_percent(100 * early_n / launched_n)}) {'starts' if early_n == 1 else 'start'} "
        f"before {'its' if early_n == 1 else 'their'} launch call begins, by up to "
        f"{format_ns(int(kernels['early_start_max_ns'].max()))}: {limit}."
    )


def _row_caveats(coverage: pd.DataFrame) -> Iterable[str]:
    for column, what, words in (
        ("unknown_name_n", "kernel", "without a name in the profile"),
        ("duplicate_key_n", "join key", "claimed by several API calls; the earliest is taken"),
        ("no_process_n", "row", "without a process"),
    ):
        if count := _sum(coverage, column):
            yield f"{counted(count, what)} {words}."


def _filters(options: Mapping[str, Any]) -> str:
    given = {name: options.get(name) for name in _FILTERS}
    words = [
        f"--{name.replace('_', '-')}{'' if value is True else f' {_typed(name, value)}'}"
        for name, value in given.items()
        if value is not None and value is not False
    ]
    return f"what {quoted(' '.join(words))} leaves of the profiles" if words else ""


def _typed(name: str, value: Any) -> str:
    """Return an option's value about as it was typed."""
    if isinstance(value, str):
        return value
    between = {"filter_time": "/", "steps": ":"}.get(name, ",")
    return between.join("" if item is None else str(item) for item in value)


def _window(tables: Tables) -> str:
    if "devices" not in tables or not len(tables["devices"]):
        return ""
    windows = tables["devices"]["window_ns"].astype("int64")
    shortest, longest = format_ns(int(windows.min())), format_ns(int(windows.max()))
    return f"{shortest if shortest == longest else f'{shortest} to {longest}'} a device"


def _values(facts: Sequence[CaptureFacts], of: Callable[[CaptureFacts], str | None]) -> str:
    """Return the distinct values of a fact, with how many reports have each if they differ."""
    counts = Counter(filter(None, map(of, facts)))
    if len(counts) == 1:
        return quoted(next(iter(counts)))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{quoted(value)} ({counted(n, 'profile')})" for value, n in ordered[:_MOST_SHOWN]]
    more_n = len(ordered) - _MOST_SHOWN
    return ", ".join(shown) + (f" and {more_n} more" if more_n > 0 else "")


def _sum(table: pd.DataFrame, column: str) -> int:
    return int(table[column].sum()) if len(table) else 0


_TRACE: Final = "--trace="
#: Words of the flag, and what a capture that had them says.
_TRACED: Final = {"nvtx": "NvtxEvents", "cuda": "Cuda"}
#: Where no engine is known that marks its steps.
_ANY_ENGINE: Final = (
    "PyTorch marks its operators under nsys profile --pytorch=autograd-nvtx, and code of one's own "
    "with torch.cuda.nvtx.range_push"
)


def nvtx_was_traced(profiles: Iterable[ProfileOutcome]) -> bool:
    """Return whether all profiles that could be read traced NVTX, so that the flag adds nothing."""
    facts = [profile.facts for profile in profiles if profile.facts is not None]
    return bool(facts) and all(_TRACED["nvtx"] in some.traced for some in facts)


def engine_switch(profiles: Sequence[ProfileOutcome]) -> str:
    """Return what makes the engine whose kernels these are write NVTX ranges, as a clause."""
    walls = [rank.wall for profile in profiles for rank in profile.ranks]
    advice = recording_advice(detect_engine({name for wall in walls for name in wall.kernel_names}))
    return _ANY_ENGINE if advice is None else advice[1]


def without_traced(
    findings: Iterable[Finding], profiles: Sequence[ProfileOutcome]
) -> list[Finding]:
    """Return findings that advise the engine's switch where NVTX was traced."""
    every = list(findings)
    if not nvtx_was_traced(profiles):
        return every
    return [_without(finding, profiles) for finding in every]


def _without(finding: Finding, profiles: Sequence[ProfileOutcome]) -> Finding:
    flags = (finding.record or "").split(" ")
    if not any(flag.startswith(_TRACE) and "nvtx" in flag for flag in flags):
        return finding
    left = " ".join(filter(None, map(_remaining, flags)))
    if left:
        return replace(finding, record=left)
    switch = engine_switch(profiles)
    text = f"{finding.recommendation} NVTX was traced: {switch}."
    return replace(finding, record=None, recommendation=text)


def _remaining(flag: str) -> str:
    """Return a flag without what was traced; empty where nothing is left of it."""
    if not flag.startswith(_TRACE):
        return flag
    words = flag.removeprefix(_TRACE).split(",")
    # CUDA stands beside what else is asked for: that flag alone would end it.
    return flag.replace(",nvtx", "") if set(words) - set(_TRACED) else ""
