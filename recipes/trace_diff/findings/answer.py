"""The answer of trace_diff: which run is faster, by how much, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import (
    NOT_KNOWN,
    counted,
    format_change,
    format_count,
    format_ns,
    format_percent,
    quoted,
)

from ..tables.checks import ALL, BLOCKING, DIFFERS, NAMES, RANKS, WORK, WORK_OF_ALL
from ..tables.comparability import OTHER_WORK
from ..tables.equal_work import LEAST_STEPS
from ..tables.step_verdict import BURSTS, NOISE, SAME, UNCERTAIN
from . import texts
from .bursts import bursts, takes
from .changes import find_changes
from .step_words import digits_of, pair_words, scale_of

#: A detail names the change of its class from this share of it on.
_MOST_SHARE: Final = 0.5
#: Differences of two percentages that show as none.
_NOTHING_PCT: Final = 0.05
#: Copies in a run without steps are what the first line is about.
_SPAN: Final = "window"


def answer(tables: Tables) -> str:
    """Return the verdict in lines: which run is faster, what the change is made of, and its cause.

    Then, as prose, how sure it is and what else changed.
    """
    if tables["kernels"].empty and tables["memops"].empty:
        return texts.NO_KERNELS
    verdict = first_record(tables["verdict"])
    lines = list(_lines(tables, verdict))
    changes = find_changes(tables) if verdict["word"] != OTHER_WORK else []
    sentences = [change.sentence for change in changes]
    if changes and verdict["basis"] != _SPAN:
        first = changes[0].explained.what
        cause = first if first.startswith("the host: ") else sentences[0]
        sure = "cause" if verdict["word"] != UNCERTAIN else "likely cause"
        lines.append(f"{sure}: {cause}")
    others = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences[1:]]
    prose = [
        _blocked(tables),
        _sure(verdict),
        _other_kernels(tables, verdict),
        *others,
        _nothing(tables, verdict),
    ]
    prose.append(_graphs(tables))
    return "\n".join([*lines, " ".join(part for part in prose if part)]).strip()


def _lines(tables: Tables, verdict: Record) -> Iterator[str]:
    if verdict["baseline_ns"] is None:
        yield f"{verdict['word']}: {verdict['reason']}."
    else:
        yield _first_line(tables, verdict)
    checks = tables["comparability"].set_index("check")
    missing = str(checks.loc[RANKS, "meaning"]) if RANKS in checks.index else ""
    if " missing in the " in missing:
        yield missing.rpartition("; ")[0]
    if verdict["baseline_ns"] is None:
        return
    if verdict["word"] != OTHER_WORK and verdict["basis"] != _SPAN and verdict["work"]:
        yield f"{verdict['work'][0].upper()}{verdict['work'][1:]}{_covered(verdict)}."
    if verdict["note"]:
        yield f"{verdict['note'][0].upper()}{verdict['note'][1:]}."
    classes = _classes(tables, verdict)
    if classes:
        yield classes


def _first_line(tables: Tables, verdict: Record) -> str:
    pair = pair_words(verdict["baseline_ns"], verdict["input_ns"])
    change = format_change(verdict["change_pct"])
    if verdict["basis"] == _SPAN:
        return _of_span(tables, verdict, pair, change)
    a_step = f"a {verdict['unit']}"
    if verdict["word"] == OTHER_WORK:
        return _of_other_work(verdict, pair, change)
    burst = bursts(tables)
    if burst is not None and verdict["word_reason"] == BURSTS:
        return f"{burst.words}; mean {pair} {a_step} ({change})"
    if verdict["word"] == UNCERTAIN and verdict["low_pct"] is not None:
        change += f", 95 % interval {_ends(verdict)}"
    inside = [change, *_profiler(verdict), *_doubt(verdict)]
    line = f"{verdict['word']}  {pair} {a_step} ({'; '.join(inside)})"
    return line if burst is None else f"{line}; {burst.words.rpartition(': ')[2]}"


def _of_span(tables: Tables, verdict: Record, pair: str, change: str) -> str:
    if not verdict["work"]:
        inside = "; ".join([change, *_profiler(verdict)])
        return f"{verdict['word']}  {pair} of a GPU's span ({inside})"
    changes = find_changes(tables)
    cause = f": {changes[0].explained.what}" if changes else ""
    return f"{verdict['word']}  {pair} {verdict['work']}{cause}"


def _of_other_work(verdict: Record, pair: str, change: str) -> str:
    parts = [f"a {verdict['unit']} {pair} ({change})"]
    tokens = verdict["baseline_token_ns"], verdict["input_token_ns"]
    words = str(verdict["work"])
    if tokens[0] and tokens[1]:
        kind = {"decode step": "generated token", "prefill step": "prompt token"}
        token = kind.get(verdict["unit"], "token")
        parts.append(f"{format_ns(tokens[1])} a {token}")
        words += f"; {100 * (tokens[1] / tokens[0] - 1):+.1f} % a token"
    return f"{OTHER_WORK}: {words}; {', '.join(parts)}"


def _profiler(verdict: Record) -> Iterator[str]:
    program_pct = verdict["program_change_pct"]
    if abs(program_pct - verdict["change_pct"]) >= _NOTHING_PCT:
        yield f"{format_change(program_pct)} without the profiler's flushes"


def _doubt(verdict: Record) -> Iterator[str]:
    """Say why nothing more is known, and what would decide."""
    if verdict["word"] == UNCERTAIN and verdict["enough_steps_n"] is not None:
        n = format_count(verdict["enough_steps_n"])
        yield texts.ENOUGH.format(n=n, unit=verdict["unit"])
    elif verdict["word_reason"] == NOISE:
        yield "within noise"
    all_pct = verdict["all_change_pct"]
    if all_pct is not None and abs(all_pct - verdict["change_pct"]) >= 1:
        yield f"{format_change(all_pct)} with slow {verdict['unit']}s"


def _ends(verdict: Record) -> str:
    low, high = verdict["low_pct"], verdict["high_pct"]
    digits = 1 if high - low < 10 else 0
    return f"{low:+.{digits}f} to {high:+.{digits}f} %"


def _covered(verdict: Record) -> str:
    covered_pct = verdict["covered_pct"]
    return "" if covered_pct is None else f" ({format_percent(covered_pct)} of them)"


def _sure(verdict: Record) -> str:
    """Say how sure the verdict is; empty where nothing was compared."""
    if verdict["baseline_ns"] is None:
        return ""
    if verdict["basis"] == _SPAN:
        return texts.NO_STEPS
    unit, counts = verdict["unit"], (verdict["baseline_steps_n"], verdict["input_steps_n"])
    text = f"{format_count(counts[0])} -> {counted(counts[1], f'full {unit}')} per GPU"
    if verdict["p_value"] is None:
        text += f": {texts.FEW.format(least=LEAST_STEPS)}"
    elif verdict["low_pct"] is not None:
        text += f", 95 % interval {_ends(verdict)}"
    slow = verdict["baseline_slow_n"], verdict["input_slow_n"]
    if any(slow) and verdict["word_reason"] != BURSTS:
        text += "; " + texts.OTHER_SLOW.format(
            slow=slow[1], steps=counts[1], before=slow[0], unit=unit, take=takes(slow[1])
        )
        text += f"; medians {pair_words(verdict['baseline_p50_ns'], verdict['input_p50_ns'])}"
    if verdict["noise_ns"] is not None:
        noise_pct = 100 * verdict["noise_ns"] / verdict["baseline_ns"]
        text += f", noise of the baselines {format_percent(noise_pct)}"
    return f"{text}."


def _classes(tables: Tables, verdict: Record) -> str:
    """Return what the change is made of, largest first; empty where nothing shows."""
    rows = [row for row in records(tables["wall_change"]) if row["rank"] is None]
    largest_ns = max(verdict["baseline_ns"], verdict["input_ns"])
    scale, _ = scale_of(largest_ns)
    digits = digits_of(largest_ns / scale)
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
    return "" if most is None or details[most] / ns < _MOST_SHARE else f" ({most})"


def _other_kernels(tables: Tables, verdict: Record) -> str:
    """Say that steps of the same name run other kernels; empty where they do not."""
    checks = tables["comparability"].set_index("check")["status"]
    other = verdict["basis"] == "step" and not verdict["work"] and checks.get(NAMES) == DIFFERS
    return texts.OTHER_KERNELS if other else ""


def _blocked(tables: Tables) -> str:
    """Say which numbers mean nothing against each other, and why; empty where all do."""
    rows = tables["comparability"]
    for status, what in BLOCKING.items():
        some = records(rows[(rows["status"] == status) & (rows["check"] != RANKS)])
        reported = [
            f"{row['check']} ({sides[0]}, then {sides[1]}; {row['meaning']})"
            for row in some
            for sides in [[quoted(row[side]) if row[side] else NOT_KNOWN for side in COMPARED]]
            if row["check"] not in (WORK, WORK_OF_ALL)
        ]
        if reported:
            return f"{what} are not comparable: {'; '.join(reported)}."
    return ""


def _nothing(tables: Tables, verdict: Record) -> str:
    rows = tables["comparability"]
    if verdict["word"] != SAME or verdict["change_ns"] != 0 or (rows["status"] == ALL).any():
        return ""
    kernels = tables["kernels"]
    same = (kernels["change_ns"] == 0) & (
        kernels["baseline_launches_n"] == kernels["input_launches_n"]
    )
    runs = tables["runs"].set_index("run").loc[list(COMPARED), ["window_ns", "busy_ns"]]
    return texts.NOTHING if bool(same.all() and (runs.nunique() == 1).all()) else ""


def _graphs(tables: Tables) -> str:
    """Say what kernel times leave out where CUDA graphs were traced as a whole."""
    runs = tables["runs"].set_index("run").loc[list(COMPARED)]
    graphs = runs["whole_graphs_n"]
    if not graphs.any():
        return ""
    before, after = (format_ns(float(ns)) for ns in runs["busy_ns"])
    counts = " and ".join(format_count(int(n)) for n in graphs)
    return texts.WHOLE_GRAPHS.format(counts=counts, before=before, after=after)
