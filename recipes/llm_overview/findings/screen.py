"""The facts of a run in one line, for the first screen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nsys_llm.capture.runs import SEGMENT
from nsys_llm.report.capture_summary import capture_caveats, little_work
from nsys_llm.report.findings import INCOMPLETE
from nsys_llm.report.group_words import group_names
from nsys_llm.report.price import PROFILED
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.screen import Scale, Screen
from nsys_llm.report.unprofiled import gone_line, step_share
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.step_names import GRAPH
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import counted, counted_range, first_sentence, format_ns, quoted

from ..tables.ranks import mean_step_ns

#: Remarks after which numbers read otherwise, the most first: time that is not the program's, work
#: that is hidden, waiting that nobody can place. What only lacks a name or a flag is none.
_CHANGE_READING: Final = (
    "unprofiled_step",
    "few_annotated",
    "shared_gpu",
    "whole_graphs",
    "fused_communication",
    "captures_apart",
    "clocks_apart",
    "clocks_too_uncertain",
    "profiler_in_gaps",
    "profiler",
    "uncertain_matches",
    "unmatched_collectives",
    "low_api_coverage",
    "copies_not_traced",
)

#: Lines of groups.
_MOST_GROUPS: Final = 3
#: Usual steps for each longer one, and what the mean step is above theirs, where they are told
#: apart.
_LEAST_USUAL: Final = 2
_UNEVEN_PCT: Final = 10.0
#: Share of a GPU's time from which kernels that match no rule are named ahead of all else.
_MOST_UNMATCHED_PCT: Final = 20.0


def screen(tables: Tables) -> Screen | None:
    """Return what stands on the first screen ahead of opportunities; None without GPU work."""
    gpus = [row for row in records(tables["ranks"]) if row["span_ns"]]
    if not gpus:
        return None
    names, groups = group_names(tables), grouped(gpus, "group")
    first = groups[min(groups)]
    reported = [str(row["headline"] or "").splitlines() for row in records(tables["recipes"])]
    told = tuple(line for some in reported for line in some) + unmatched_line(tables)
    lines = (*_group_lines(tables, groups, names), *told, *_gone(tables))
    facts, step_ns = _facts(tables, first)
    trust, little = _trust(tables), [little_work(tables)]
    if trust.lower().startswith(little[0].lower()):  # stands below, or is nothing
        little = []
    unit, last = _unit(first), max(first, key=lambda gpu: gpu["unrecorded_n"] or 0)
    if last["unrecorded_n"]:  # steps whose work left no row
        lost = f"{last['unrecorded_n']} of {counted(last['every_step_n'], unit)} not recorded"
        little.insert(0, lost)
    if segments := _segments(tables, len(gpus)):
        facts.insert(1, segments)
    if names:
        every = f"{_gpus(gpus)} in {len(names)} groups"
        steps = facts[2 + bool(segments) :]
        facts = [f"{every}; {names[0]}: {steps[0]}", *steps[1:]] if steps else [every]
    words = ", ".join([*facts, *filter(None, little)])
    ranks = frozenset(int(row["rank"]) for row in first) if names else None
    by_step, whole = step_ns is not None, f"a {unit}"
    if step_ns is None:
        step_ns, whole = float(max(row["span_ns"] for row in first)), "of one GPU"
    elif left := step_share(tables["wall"], {int(row["rank"]) for row in first}):
        step_ns, whole = step_ns * left, f"{whole} without the profiler"
    bound = next(iter(tables["recipes"]["kernels_bound"].dropna()), None)
    screen = Screen(words, step_ns, whole, by_step, trust, lines=lines, ranks=ranks)
    return replace(screen, kernels_bound=bound)


def _gone(tables: Tables) -> list[str]:
    """Return what has no gain without the profiler, most first; nothing where nobody asks."""
    rows = records(tables["all_findings"])
    gone = [(json.loads(row["numbers"]).get(PROFILED), row) for row in rows if not row["severity"]]
    named = sorted(((pct, row["title"]) for pct, row in gone if pct), key=lambda item: -item[0])
    line = gone_line(title for _, title in named)
    return [line] if line else []


def _segments(tables: Tables, gpus_n: int) -> str:
    """Return how many segments the profiles of a rank are; nothing where all are whole."""
    capture = tables["capture"]
    counts = capture.loc[capture["kind"] == SEGMENT, "of_n"].tolist()
    if not counts:
        return ""
    return f"{counted_range(counts, 'segment')}{' each' * (gpus_n > 1)}"


def _group_lines(
    tables: Tables, groups: Mapping[Any, Sequence[Record]], names: Mapping[int, str]
) -> list[str]:
    """Return what each group is, a line each; of many the first ones."""
    lines = [
        f"{quoted(names[group])}: {', '.join(_facts(tables, some)[0])}"
        for (group,), some in sorted(groups.items())
        if group in names
    ]
    if len(lines) <= _MOST_GROUPS:
        return lines
    more = counted(len(lines) - _MOST_GROUPS, "more group")
    return [*lines[:_MOST_GROUPS], f"and {more}: `ranks` lists them"]


def _unit(gpus: Sequence[Record]) -> str:
    return next((str(row["step_unit"]) for row in gpus if row["step_unit"]), "step")


def _gpus(gpus: Sequence[Record]) -> str:
    """Return how many GPUs there are, and how many processes where these share some."""
    known = [row["gpu"] for row in gpus if row["gpu"] is not None]
    gpus_n = len(gpus) - len(known) + len(set(known))
    shared = (
        f" shared by {counted(len(gpus), 'process', 'processes')}" if gpus_n < len(gpus) else ""
    )
    return f"{counted(gpus_n, 'GPU')}{shared}"


def _facts(tables: Tables, gpus: Sequence[Record]) -> tuple[list[str], float | None]:
    """Return the facts of a group: GPUs, their time, steps; and its mean step, if one tells."""
    spans = [int(row["span_ns"]) for row in gpus]
    least, most = (format_ns(ns) for ns in (min(spans), max(spans)))
    if least.split()[-1] == most.split()[-1]:
        least = least.split()[0]
    span = most if least == most.split()[0] else f"{least} to {most}"
    facts = [_gpus(gpus), f"{span}{' each' * (len(gpus) > 1)}"]
    step_ns, unit = mean_step_ns(gpus), _unit(gpus)
    uneven = _uneven_steps(tables, gpus, unit)
    if step_ns is None or uneven:
        return [*facts, *(uneven or _few_steps(gpus, unit))], None
    scale = Scale.of(step_ns)
    counts = [int(row["steps_n"]) for row in gpus if row["steps_n"]]
    # The last replay has no next launch to end it: there is one more of them than are full.
    steps = counted_range(counts, f"full {unit}" if unit == GRAPH else unit)
    return [*facts, steps, f"mean {scale.number(step_ns)} {scale.unit} a {unit}"], step_ns


def unmatched_line(tables: Tables) -> tuple[str, ...]:
    """Return what to say first where nobody knows what the kernels are that take the time."""
    walls = Walls(tables)
    shares = [
        100.0 * walls.detail_ns(gpu, COMPUTE, UNMATCHED) / max(walls.span_ns(*gpu), 1)
        for gpu in walls.gpus
    ]
    remarks = [row for row in records(tables["all_findings"]) if row["rule"] == "unmatched_kernels"]
    if max(shares, default=0.0) < _MOST_UNMATCHED_PCT or not remarks:
        return ()
    command = remarks[0]["ncu"]
    return (f"{remarks[0]['title']}{f': {command}' if command else ''}",)


def _few_steps(gpus: Sequence[Record], unit: str) -> list[str]:
    """Return the steps of a job whose time is mostly outside of them, with their share of it."""
    stepped = [row for row in gpus if row["steps_n"]]
    if not stepped:
        return []
    time_ns = sum(row["steps_n"] * row["step_ns"] for row in stepped)
    mean_ns = time_ns / sum(row["steps_n"] for row in stepped)
    share_pct = 100.0 * time_ns / sum(row["span_ns"] for row in gpus)
    most_n = max(int(row["steps_n"]) for row in stepped)
    return [f"{counted(most_n, unit)} of {format_ns(mean_ns)} ({share_pct:.0f} %)"]


def _uneven_steps(tables: Tables, gpus: Sequence[Record], unit: str) -> list[str]:
    """Return the usual steps and the few longer ones, which no mean describes; none where alike.

    The longer ones are of another phase, or hold what is no part of the others: an evaluation, a
    checkpoint, a pause. Of those that are longer by an event alone that is told.
    """
    row = max(gpus, key=lambda gpu: (gpu["longer_n"] or 0) * (gpu["longer_step_ns"] or 0.0))
    steps_n, longer_n = row["steps_n"] or 0, row["longer_n"] or 0
    if not 0 < _LEAST_USUAL * longer_n <= steps_n - longer_n:
        return []
    if 100 * row["step_ns"] < (100 + _UNEVEN_PCT) * row["usual_step_ns"]:
        return []
    if row["longer_phase"]:
        # A rank that was recorded for a shorter time is no measure of the others' number of steps.
        names = usual, longer = row["usual_phase"], row["longer_phase"]
        alike = [gpu for gpu in gpus if (gpu["usual_phase"], gpu["longer_phase"]) == names]
        usual_n = [gpu["steps_n"] - gpu["longer_n"] for gpu in alike]
        longer_n = [gpu["longer_n"] for gpu in alike]
        usual_ns, longer_ns = (format_ns(row[f"{of}_step_ns"]) for of in ("usual", "longer"))
        return [
            f"{counted_range(usual_n, f'{usual} {unit}')} of {usual_ns}",
            f"{counted_range(longer_n, longer, longer)} of {longer_ns}",
        ]
    longer_ns = row["longer_step_ns"] - row["usual_step_ns"]
    # For which alone steps are so much longer.
    firsts = (first for first, *_ in grouped(records(tables["when"]), "finding").values())
    events = [row for row in firsts if row["kind"] in ("once", "times", "every")]
    events = [row for row in events if 2 * row["excess_ns"] >= longer_ns * row["events_n"]]
    told_n = min(sum(event["steps_n"] for event in events), longer_n)
    usual = f"{counted(steps_n - longer_n + told_n, unit)} of {format_ns(row['usual_step_ns'])}"
    said = [_event_words(event, unit) for event in events]
    beyond_ns = longer_n * longer_ns - sum(event["excess_ns"] for event in events)
    beside_ns = (row["beside_n"] or 0) * (row["beside_ns"] or 0.0)
    if beside_ns and beside_ns / 2 <= beyond_ns <= 2 * beside_ns:
        name = quoted(row["beside_name"].removesuffix("#").strip())
        return [usual, f"{name} {row['beside_n']} of {format_ns(row['beside_ns'])}", *said]
    if told_n == longer_n:
        return [usual, *said]
    return [usual, f"{longer_n} of {format_ns(row['longer_step_ns'])} with more in it"]


def _event_words(event: Record, unit: str) -> str:
    each_n, each = event["events_n"], format_ns(event["excess_ns"] / event["events_n"])
    if each_n > 1:
        return f"{each_n} pauses of {each}"
    return f"one pause of {each} in {unit} {event['first_step']}"


def _trust(tables: Tables) -> str:
    """Return the remark or caveat that changes most how to read the run; empty if none does."""
    remarks = {row["rule"]: str(row["title"]) for row in records(tables["all_findings"])}
    titles = [remarks[rule] for rule in (*INCOMPLETE, *_CHANGE_READING) if rule in remarks]
    caveats = (first_sentence(text) for text in capture_caveats(tables))
    return next(iter(titles), next(caveats, ""))
