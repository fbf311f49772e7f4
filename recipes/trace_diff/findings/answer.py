"""The answer of trace_diff: which run is faster, by how much, and what explains it; and caveats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import counted, format_change, format_count, format_ns, format_percent

from ..tables.checks import ALL, DIFFERS, NAMES, RANKS, TOTALS, check_words
from ..tables.comparability import NOT_COMPARABLE, OTHER_WORK, STEP
from ..tables.equal_work import LEAST_STEPS
from ..tables.step_splits import SPAN
from ..tables.step_verdict import (
    BURSTS,
    BURSTS_ALPHA,
    CHANCE,
    MIXED,
    NOISE,
    ORDER,
    PROBABLY,
    UNCERTAIN,
)
from . import texts
from .change import ClassChange, Clock, pair_words, scale_of
from .changes import capital, count_words, find_changes, slow_words

#: A detail names the change of its class from this share of it on.
_MOST_SHARE: Final = 0.5
#: Share of a step that a class or category takes to stand side by side.
_LEAST_SHOWN: Final = 0.01
#: Correlation from which on neighbors are alike.
_ALIKE: Final = 0.5
#: Differences of two percentages that show as none.
_NOTHING_PCT: Final = 0.05
#: What a token is called in steps of a unit.
_TOKENS: Final = {"decode step": "generated token", "prefill step": "prompt token"}


def answer(tables: Tables) -> str:
    """Return the verdict in lines: which run is faster, what the change is made of, and its cause.

    Then, as prose, how sure it is and what else changed.
    """
    if tables["kernels"].empty and tables["memops"].empty:
        return texts.NO_KERNELS
    clock = Clock(tables)
    verdict = clock.verdict
    changes = find_changes(clock) if verdict["word"] != OTHER_WORK else []
    lines = list(_lines(clock, changes))
    if changes and verdict["basis"] != SPAN:
        first = changes[0].what
        cause = first if first.startswith("the host: ") else changes[0].sentence
        sure = "likely cause" if verdict["word"].startswith((UNCERTAIN, PROBABLY)) else "cause"
        lines.append(f"{sure}: {cause}")
    others = [capital(f"{change.sentence}.") for change in changes[1:]]
    checks = tables["comparability"].set_index("check")["status"]
    if verdict["basis"] == STEP and not verdict["work"] and checks.get(NAMES) == DIFFERS:
        others.insert(0, texts.OTHER_KERNELS)
    prose = [*_sums(tables, verdict), _sure(clock), *others, *_graphs(tables)]
    return "\n".join([*lines, " ".join(part for part in prose if part)]).strip()


def _lines(clock: Clock, changes: list[ClassChange]) -> Iterator[str]:
    verdict = clock.verdict
    if verdict["baseline_ns"] is None:
        yield f"{verdict['word']}: {verdict['reason']}."
        return
    yield _first_line(clock, changes)
    ranks = next(row for row in records(clock.tables["comparability"]) if row["check"] == RANKS)
    if ranks["status"] == TOTALS:
        yield ranks["meaning"]
    if verdict["word"] != OTHER_WORK and verdict["basis"] != SPAN and verdict["work"]:
        covered = verdict["covered_pct"]
        share = "" if covered is None else f" ({format_percent(covered)} of them)"
        yield f"{capital(verdict['work'])}{share}."
    if verdict["since"]:
        yield f"{capital(verdict['since'])}."
    if verdict["word"] == NOT_COMPARABLE:
        yield from _side_by_side(clock)
        return
    if basis := [part for part in (_left_out(verdict), verdict["note"]) if part]:
        yield f"{capital('; '.join(basis))}."
    if classes := _classes(clock):
        yield classes


def _left_out(verdict: Record) -> str | None:
    """Say that the times are not the means of all steps; None where they are, or other words do."""
    is_whole = verdict["slow_p_value"] is not None and verdict["slow_p_value"] < BURSTS_ALPHA
    if verdict["covered_pct"] is None or is_whole or verdict["word"] == OTHER_WORK:
        return None
    return texts.EQUAL_WORK.format(
        steps=" and ".join(
            dict.fromkeys(format_count(verdict[f"{side}_steps_n"]) for side in COMPARED)
        ),
        unit=verdict["unit"],
    )


def _first_line(clock: Clock, changes: list[ClassChange]) -> str:
    verdict, a_step = clock.verdict, f"a {clock.unit}"
    word, change = verdict["word"], format_change(verdict["change_pct"])
    pair = pair_words(verdict["baseline_ns"], verdict["input_ns"])
    if word == NOT_COMPARABLE:
        return f"{word}: {verdict['reason']}; {a_step} {pair} ({change})"
    if verdict["basis"] == SPAN and verdict["work"]:
        cause = f": {changes[0].what}" if changes else ""
        return f"{word}  {pair} {verdict['work']}{cause}"
    if verdict["basis"] == SPAN:
        return f"{word}  {pair} of a GPU's span ({'; '.join([change, *_profiler(verdict)])})"
    if word == OTHER_WORK:
        before, after = (verdict[f"{side}_token_ns"] for side in COMPARED)
        line = f"{OTHER_WORK}: {verdict['work']}"
        if not before or not after:
            return f"{line}; {a_step} {pair} ({change})"
        token = f"{format_ns(after)} a {_TOKENS.get(verdict['unit'], 'token')}"
        a_token = f"{100 * (after / before - 1):+.1f} % a token"
        return f"{line}; {a_token}; {a_step} {pair} ({change}), {token}"
    slow = slow_words(clock)
    if slow is not None and verdict["word_reason"] == BURSTS:
        return f"{slow}; mean {pair} {a_step} ({change})"
    if word == UNCERTAIN and verdict["word_reason"] != MIXED and verdict["low_pct"] is not None:
        change += f", 95 % interval {_ends(verdict)}"
    inside = "; ".join([change, *_profiler(verdict), *_doubt(clock)])
    if verdict["word_reason"] == ORDER:
        return f"{word}: {pair} {a_step} ({inside}); {_order(clock)}"
    line = f"{word}  {pair} {a_step} ({inside})"
    if verdict["word_reason"] == MIXED:
        most, mean = ("faster", "slower")[:: 1 if verdict["all_change_pct"] > 0 else -1]
        return line + texts.MIXED.format(unit=clock.unit, most=most, mean=mean)
    return line if slow is None else f"{line}; {slow.rpartition(': ')[2]}"


def _profiler(verdict: Record) -> Iterator[str]:
    program_pct = verdict["program_change_pct"]
    if abs(program_pct - verdict["change_pct"]) >= _NOTHING_PCT:
        yield f"{format_change(program_pct)} without the profiler's flushes"


def _doubt(clock: Clock) -> Iterator[str]:
    """Say why nothing more is known, and what would decide."""
    verdict = clock.verdict
    if verdict["word"] == UNCERTAIN and verdict["enough_steps_n"] is not None:
        if _has_more_slow_steps(verdict):
            yield f"{count_words(clock)}, which may be chance"
        enough = format_count(verdict["enough_steps_n"])
        yield texts.ENOUGH.format(enough=enough, unit=clock.unit)
    elif verdict["word_reason"] == NOISE:
        yield "within noise"
    all_pct = verdict["all_change_pct"]
    if all_pct is not None and abs(all_pct - verdict["change_pct"]) >= 1:
        yield f"{format_change(all_pct)} with slow {verdict['unit']}s"


def _order(clock: Clock) -> str:
    """Say how many steps of the input pass how many of the baseline, and what would decide."""
    verdict, unit = clock.verdict, clock.unit
    passed, n, before, after = (
        int(verdict[f"{side}_{what}_n"]) for what in ("order", "steps") for side in COMPARED
    )
    doubt = texts.ALIKE if verdict["neighbor_correlation"] >= _ALIKE else texts.FEW_PROVE
    return texts.ORDER.format(
        steps=f"each of {after} {unit}s" if n == after else f"each of {n} of the {after} {unit}s",
        takes="takes longer" if clock.is_slower else "takes less time",
        work="" if verdict["covered_pct"] is None else ", for its work,",
        passed=f"{passed} of the {before}",
        doubt=capital(doubt.format(unit=unit)),
        runs="" if verdict["noise_ns"] is not None else texts.MORE_RUNS,
        enough=f"{format_count(verdict['enough_steps_n'])} {unit}s",
    )


def _has_more_slow_steps(verdict: Record) -> bool:
    """Tell whether slow steps are in the figure: one run has more of them."""
    n0, n1 = (verdict[f"{side}_slow_n"] / verdict[f"{side}_steps_n"] for side in COMPARED)
    return bool(n0 != n1 and verdict["covered_pct"] is None)


def _ends(verdict: Record) -> str:
    low, high = verdict["low_pct"], verdict["high_pct"]
    digits = 1 if high - low < 10 else 0
    return f"{low:+.{digits}f} to {high:+.{digits}f} %"


def _sure(clock: Clock) -> str:
    """Say how sure the verdict is; empty where nothing was compared."""
    verdict = clock.verdict
    if verdict["baseline_ns"] is None:
        return ""
    if verdict["basis"] == SPAN:
        return texts.NO_STEPS
    steps = counted(verdict["input_steps_n"], f"full {clock.unit}")
    text = f"{format_count(verdict['baseline_steps_n'])} -> {steps} per GPU"
    if verdict["p_value"] is None:
        text += f": {texts.FEW.format(least=LEAST_STEPS)}"
    elif verdict["low_pct"] is not None:
        text += f", 95 % interval {_ends(verdict)}"
    is_said = verdict["word_reason"] == CHANCE and _has_more_slow_steps(verdict)
    is_slow = any(verdict[f"{side}_slow_n"] for side in COMPARED)
    if is_slow and verdict["p_value"] is not None and verdict["word_reason"] != BURSTS:
        text += "" if is_said else f"; {count_words(clock)}"
    if verdict["noise_ns"] is not None:
        noise_pct = 100 * verdict["noise_ns"] / verdict["baseline_ns"]
        text += f", noise of the baselines {format_percent(noise_pct)}"
    return f"{text}."


def _classes(clock: Clock) -> str:
    """Return what the change is made of, largest first; empty where nothing shows."""
    rows = [row for row in clock.rows if row["rank"] is None]
    scale, _, digits = scale_of(max(clock.verdict["baseline_ns"], clock.verdict["input_ns"]))
    classes = [(row["change_ns"], row["wall_class"]) for row in rows if row["detail"] is None]
    reported = []
    for ns, name in sorted(classes, key=lambda item: -abs(item[0])):
        if round(abs(ns) / scale, digits):
            of_class = [row for row in rows if row["wall_class"] == name and row["detail"]]
            details = [(row["change_ns"] / ns, row["detail"]) for row in of_class]
            share, detail = max(details, default=(0.0, ""))
            is_said = name == COMMUNICATION and share >= _MOST_SHARE
            reported.append(f"{name} {ns / scale:+.{digits}f}{f' ({detail})' if is_said else ''}")
    return " | ".join(reported)


def _side_by_side(clock: Clock) -> Iterator[str]:
    """Yield what each class takes in both runs, and each category of kernels."""
    rows = [row for row in clock.rows if row["rank"] is None]
    least_ns = _LEAST_SHOWN * clock.verdict["baseline_ns"]
    categories = [row for row in rows if row["wall_class"] == COMPUTE and row["detail"]]
    classes = [row for row in rows if row["detail"] is None]
    for title, name, some in (("class", "wall_class", classes), ("category", "detail", categories)):
        parts = []
        for row in some:
            before, after = row["baseline_ns"], row["input_ns"]
            if max(before, after) >= least_ns:
                share = f" ({format_change(100 * (after / before - 1))})" if before else ""
                parts.append(f"{row[name]} {pair_words(before, after)}{share}")
        if parts:
            yield f"by {title}: {' | '.join(parts)}"


def _sums(tables: Tables, verdict: Record) -> Iterator[str]:
    """Say why sums over the runs are not comparable, where no steps are compared instead."""
    rows = records(tables["comparability"])
    sums = [row for row in rows if row["status"] == TOTALS and row["check"] != RANKS]
    if sums and verdict["basis"] != STEP and ALL not in {row["status"] for row in rows}:
        yield f"{texts.SUMS}: {'; '.join(map(check_words, sums))}."


def _graphs(tables: Tables) -> Iterator[str]:
    """Say what kernel times leave out where CUDA graphs were traced as a whole."""
    runs = tables["runs"].set_index("run").loc[list(COMPARED)]
    if runs["whole_graphs_n"].any():
        before, after = (format_ns(float(ns)) for ns in runs["busy_ns"])
        counts = " and ".join(format_count(int(n)) for n in runs["whole_graphs_n"])
        yield texts.WHOLE_GRAPHS.format(counts=counts, before=before, after=after)


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    repeats_n = int(tables["runs"]["tells_noise"].sum())
    if repeats_n:
        return [
            f"Noise is the spread of the baseline and {counted(repeats_n, 'further run')} of it: "
            "largest minus smallest value. A few runs underestimate it."
        ]
    return [
        "Significance is within-run only: launches of one run are not independent, and two runs of "
        "the same code may differ by more than chance among launches allows. Pass further runs of "
        "the baseline to `--baselines` to measure their noise."
    ]
