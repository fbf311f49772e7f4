"""The first lines of the answer: the verdict, what the change is made of, and its cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.view.text import counted, format_change, format_ns, format_percent

from ..tables.step_splits import SPAN, TOKEN
from ..tables.step_verdict import LEAST_PCT, LEAST_STEPS, SAME

#: A detail names the change of its class from this share of it on.
_MOST_SHARE: Final = 0.5
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
#: Differences of the two percentages that show as none.
_NOTHING_PCT: Final = 0.05


def pair_words(before_ns: float, after_ns: float) -> str:
    """Return two times in one unit: `17.74 -> 19.98 ms`."""
    scale, unit = _scale(max(abs(before_ns), abs(after_ns)))
    before, after = before_ns / scale, after_ns / scale
    digits = _digits(max(abs(before), abs(after)))
    return f"{before:.{digits}f} -> {after:.{digits}f} {unit}"


def median_words(before_ns: float, after_ns: float) -> str:
    """Return two times in three figures each, as findings have them: `5.65 -> 8.41 us`."""
    before, after = format_ns(before_ns), format_ns(after_ns)
    unit = after.rpartition(" ")[2]
    return f"{before.removesuffix(f' {unit}')} -> {after}"


def verdict_lines(tables: Tables) -> list[str]:
    """Return the verdict, what is not known of it, and the classes of which the change is made."""
    verdict = first_record(tables["verdict"])
    if verdict["baseline_ns"] is None:
        return [f"{verdict['word']}: {verdict['reason']}."]
    work = f"{verdict['work'][0].upper()}{verdict['work'][1:]}." if verdict["work"] else ""
    return [line for line in (_first_line(verdict), work, _classes(tables, verdict)) if line]


def sure_words(verdict: Record) -> str:
    """Say how sure the verdict is; empty where nothing was compared."""
    if verdict["baseline_ns"] is None:
        return ""
    unit, counts = verdict["unit"], (verdict["baseline_steps_n"], verdict["input_steps_n"])
    if verdict["basis"] == SPAN:
        return "No step was found: the spans of the GPUs are compared, as launches agree."
    steps = "step" if unit == TOKEN else unit
    text = f"{counts[0]} -> {counted(counts[1], f'full {steps}')} per GPU"
    if verdict["p_value"] is None:
        text += f": fewer than {LEAST_STEPS}, so only the size is known"
    elif verdict["low_pct"] is not None:
        low, high = verdict["low_pct"], verdict["high_pct"]
        text += f", 95 % interval {low:+.1f} to {high:+.1f} %"
    if is_by_chance(verdict):
        medians = verdict["baseline_p50_ns"], verdict["input_p50_ns"]
        text += f"; medians {pair_words(*medians)}"
        if 100 * abs(medians[1] - medians[0]) < LEAST_PCT * medians[0]:
            text += ": a few steps make the difference of the means"
    if verdict["noise_ns"] is not None:
        noise_pct = 100 * verdict["noise_ns"] / verdict["baseline_ns"]
        text += f", noise of the baselines {format_percent(noise_pct)}"
    return f"{text}."


def is_by_chance(verdict: Record) -> bool:
    """Tell whether means differ by more than the least change and the noise, and yet by chance."""
    program_pct = verdict["program_change_pct"]
    if verdict["word"] != SAME or program_pct is None or verdict["p_value"] is None:
        return False
    change_ns = abs(program_pct) / 100 * verdict["baseline_ns"]
    return bool(abs(program_pct) >= LEAST_PCT and change_ns >= (verdict["noise_ns"] or 0.0))


def is_of_few_steps(verdict: Record) -> bool:
    """Tell whether so few steps make a difference by chance that its mean may as well be none."""
    return is_by_chance(verdict) and verdict["low_pct"] <= 0 <= verdict["high_pct"]


def _first_line(verdict: Record) -> str:
    unit = "of a GPU's span" if verdict["basis"] == SPAN else f"a {verdict['unit']}"
    change = format_change(verdict["change_pct"])
    program_pct = verdict["program_change_pct"]
    profiler = ""
    if abs(program_pct - verdict["change_pct"]) >= _NOTHING_PCT:
        profiler = f"; {format_change(program_pct)} without the profiler's flushes"
    uncertain = ", uncertain" if verdict["uncertain"] else ""
    least = ""
    if verdict["word"] == SAME and abs(program_pct) >= LEAST_PCT:
        least = "; not beyond chance" if is_by_chance(verdict) else "; within noise"
    pair = pair_words(verdict["baseline_ns"], verdict["input_ns"])
    return f"{verdict['word']}{uncertain}  {pair} {unit} ({change}{profiler}{least})"


def _classes(tables: Tables, verdict: Record) -> str:
    """Return what the change is made of, largest first; empty where nothing shows."""
    rows = [row for row in records(tables["wall_change"]) if row["rank"] is None]
    scale, _ = _scale(max(verdict["baseline_ns"], verdict["input_ns"]))
    digits = _digits(max(verdict["baseline_ns"], verdict["input_ns"]) / scale)
    by_class = {row["wall_class"]: row["change_ns"] for row in rows if row["detail"] is None}
    reported = []
    for name, ns in sorted(by_class.items(), key=lambda item: -abs(item[1])):
        if round(abs(ns) / scale, digits):
            inside = _inside(rows, name, ns) if name == COMMUNICATION else ""
            reported.append(f"{name} {ns / scale:+.{digits}f}{inside}")
    return " | ".join(reported)


def _inside(rows: list[Record], name: str, ns: float) -> str:
    """Return the detail that has most of the change of a class, where one has."""
    details: Mapping[str, float] = {
        row["detail"]: row["change_ns"]
        for row in rows
        if row["wall_class"] == name and row["detail"] is not None
    }
    most = max(details, key=lambda key: details[key] * (1 if ns > 0 else -1), default=None)
    if most is None or details[most] / ns < _MOST_SHARE:
        return ""
    return f" ({most})"


def _scale(value_ns: float) -> tuple[float, str]:
    return next(((scale, unit) for scale, unit in _UNITS if value_ns >= scale), _UNITS[-1])


def _digits(value: float) -> int:
    """Return decimals for four figures, two at most."""
    return 2 if value < 100 else 1 if value < 1000 else 0
