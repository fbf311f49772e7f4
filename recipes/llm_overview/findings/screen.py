"""The facts of a run in one line, for the first screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nsys_llm.report.capture_summary import capture_caveats, little_work
from nsys_llm.report.findings import INCOMPLETE
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.screen import Scale, Screen
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.step_names import GRAPH
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import counted, first_sentence, format_ns, quoted

from ..tables.ranks import mean_step_ns
from ..tables.views import step_unit

#: Remarks after which numbers read otherwise, the most first: time that is not the program's, work
#: that is hidden, waiting that nobody can place. What only lacks a name or a flag is none.
_CHANGE_READING: Final = (
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
    spans = [int(row["span_ns"]) for row in gpus]
    reported = [str(row["headline"] or "").splitlines() for row in records(tables["recipes"])]
    lines = tuple(line for some in reported for line in some) + unmatched_line(tables)
    facts = [counted(len(gpus), "GPU"), f"{_range_ns(spans)}{' each' * (len(gpus) > 1)}"]
    trust = _trust(tables)
    step_ns = mean_step_ns(gpus)
    unit = step_unit(tables)
    uneven, little = _uneven_steps(gpus, unit), [little_work(tables)]
    if trust.lower().startswith(little[0].lower()):  # stands below, or is nothing
        little = []
    little = [*_unrecorded_steps(gpus, unit), *filter(None, little)]
    if step_ns is None or uneven:
        facts += uneven or _few_steps(gpus, unit)
        words, span_ns = ", ".join([*facts, *little]), float(max(spans))
        return Screen(words, span_ns, "of one GPU", by_step=False, trust=trust, lines=lines)
    scale = Scale.of(step_ns)
    counts = [int(row["steps_n"]) for row in gpus if row["steps_n"]]
    least, most = min(counts), max(counts)
    # The last replay has no next launch to end it: there is one more of them than are full.
    words = counted(most, f"full {unit}" if unit == GRAPH else unit)
    steps = words if least == most else f"{least} to {words}"
    facts += [steps, f"{scale.number(step_ns)} {scale.unit} a {unit}", *little]
    return Screen(", ".join(facts), step_ns, f"a {unit}", by_step=True, trust=trust, lines=lines)


def _unrecorded_steps(gpus: Sequence[Record], unit: str) -> list[str]:
    """Return how many steps launched work that left no row, on the GPU with most of them."""
    row = max(gpus, key=lambda gpu: gpu["unrecorded_n"] or 0)
    if not row["unrecorded_n"]:
        return []
    return [f"{row['unrecorded_n']} of {counted(row['every_step_n'], unit)} not recorded"]


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


def _uneven_steps(gpus: Sequence[Record], unit: str) -> list[str]:
    """Return the usual steps and the few longer ones, which no mean describes; none where alike.

    The longer ones hold what is no part of the others: an evaluation, a checkpoint, a pause.
    """
    row = max(gpus, key=lambda gpu: (gpu["longer_n"] or 0) * (gpu["longer_step_ns"] or 0.0))
    steps_n, longer_n = row["steps_n"] or 0, row["longer_n"] or 0
    if not 0 < _LEAST_USUAL * longer_n <= steps_n - longer_n:
        return []
    if 100 * row["step_ns"] < (100 + _UNEVEN_PCT) * row["usual_step_ns"]:
        return []
    usual = f"{counted(steps_n - longer_n, unit)} of {format_ns(row['usual_step_ns'])}"
    beyond_ns = longer_n * (row["longer_step_ns"] - row["usual_step_ns"])
    if 2 * (row["beside_n"] or 0) * (row["beside_ns"] or 0.0) >= beyond_ns:
        name = quoted(row["beside_name"].removesuffix("#").strip())
        return [usual, f"{name} {row['beside_n']} of {format_ns(row['beside_ns'])}"]
    return [usual, f"{longer_n} of {format_ns(row['longer_step_ns'])} with more in it"]


def _range_ns(spans: Sequence[int]) -> str:
    least, most = format_ns(min(spans)), format_ns(max(spans))
    if least.split()[-1] == most.split()[-1]:
        least = least.split()[0]
    return most if least == most.split()[0] else f"{least} to {most}"


def _trust(tables: Tables) -> str:
    """Return the remark or caveat that changes most how to read the run; empty if none does."""
    remarks = {row["rule"]: str(row["title"]) for row in records(tables["all_findings"])}
    titles = [remarks[rule] for rule in (*INCOMPLETE, *_CHANGE_READING) if rule in remarks]
    caveats = (first_sentence(text) for text in capture_caveats(tables))
    return next(iter(titles), next(caveats, ""))
