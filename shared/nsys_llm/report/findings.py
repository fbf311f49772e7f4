"""Findings: what a run wants its reader to know, each with the evidence for it.

A finding is made from tables alone, and never without evidence. Its texts are prose in which names
out of a trace stand in backticks (see `nsys_llm.view.text.quoted`); every renderer escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from nsys_llm.core.errors import ManifestError
from nsys_llm.report.gains import TAIL, Gain

#: What a finding tells: time that a fix could gain; time that a change has gained; or what the
#: capture holds or lacks, which qualifies the others and has no severity.
PERFORMANCE: Final = "performance"
IMPROVEMENT: Final = "improvement"
CAPTURE: Final = "capture"
KINDS: Final = (PERFORMANCE, IMPROVEMENT, CAPTURE)

#: Most severe first.
SEVERITIES: Final = ("high", "medium", "low", TAIL)

#: Rules on what a run does not hold: they are read first, because they qualify all others.
INCOMPLETE: Final = ("missing_ranks", "unrelated_profiles", "no_gpu_work", "opaque_graphs")

#: What a finding can be about.
SCOPES: Final = ("run", "rank", "device", "kernel", "category", "api", "copy", "phase")
#: Those of them whose name has a column of its own.
NAMED_SCOPES: Final = ("kernel", "category", "api", "phase")


@dataclass(frozen=True)
class Evidence:
    """One cell of a table that a finding rests on.

    Attributes:
        table: Name of the table.
        where: Columns and values that choose the row; none where the table has one.
        column: Which cell.
        value: What it holds; None for null.
    """

    table: str
    where: tuple[tuple[str, Any], ...]
    column: str
    value: Any


def cells(
    table: str, row: Mapping[str, Any], where: Sequence[str], columns: Sequence[str]
) -> tuple[Evidence, ...]:
    """Return cells of one row as evidence.

    Args:
        table: Name of the table.
        row: One of its rows, see `nsys_llm.report.records.records`.
        where: Columns that choose the row.
        columns: Those whose values a sentence names.
    """
    chosen = tuple((name, row[name]) for name in where)
    return tuple(Evidence(table, chosen, column, row[column]) for column in columns)


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        rule: Name of the rule that found it, the same in every run: `slow_rank`.
        kind: One of `KINDS`.
        severity: Of a performance finding, as its gain has it; None of all others, and of gains too
            small to be shown.
        scope: One of `SCOPES`.
        title: The finding in one line, without a full stop: what, where, how much.
        details: The numbers, with units, in sentences.
        tables: Tables in which those numbers stand.
        recommendation: What to do next, in one or two sentences.
        evidence: The cells that the numbers in title and details are.
        numbers: Numbers in title and details that are no cell: sums, shares, limits; by name.
        gain: What a fix could gain; None where `kind` is capture.
        cause: Key of the cause that the time is attributed to (see `taxonomy.idle_causes`).
        cause_ns: Its time on that GPU, as the table `wall` has it.
        culprit: What to change, as `kind:name` (`rank:2`, `kernel:attention`): findings of several
            recipes with the same one are one opportunity.
        ranks: All ranks that it is true of.
        rank: Which rank, where it is about one; of several the one with the largest gain.
        device_id: Which device, where it is about one.
        name: Which kernel, category, API function or phase, as the tables have it.
        window_ns: Where to look: start and end in the clock of the rank's profile, as
            `--filter-time` takes them.
        window_shows: What there is to see in that window, in few words.
        record: What to record next time to know more: flags of `nsys profile`, and nothing else,
            so that they can be pasted.
        impact_ns: GPU or host time that it is about.
    """

    rule: str
    severity: str | None
    scope: str
    title: str
    details: str
    tables: tuple[str, ...]
    recommendation: str
    kind: str = PERFORMANCE
    evidence: tuple[Evidence, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    gain: Gain | None = None
    cause: str | None = None
    cause_ns: int | None = None
    culprit: str | None = None
    ranks: tuple[int, ...] = ()
    rank: int | None = None
    device_id: int | None = None
    name: str | None = None
    window_ns: tuple[int, int] | None = None
    window_shows: str | None = None
    record: str | None = None
    impact_ns: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.scope not in SCOPES:
            raise ManifestError(f"finding {self.rule}: kind or scope is not one that there is.")
        if self.severity is not None and self.severity not in SEVERITIES:
            raise ManifestError(f"finding {self.rule}: there is no severity {self.severity}.")
        if not (self.title and self.details and self.tables and self.recommendation):
            raise ManifestError(f"finding {self.rule}: a finding never fires without evidence.")
        if self.record is not None and not all(
            word.startswith("--") for word in self.record.split(" ")
        ):
            raise ManifestError(f"finding {self.rule}: what to record is more than flags.")
        # Out of a data frame comes a numpy.float64, which is a float to type checkers alone.
        plain = {name: _plain(value) for name, value in self.numbers.items()}
        object.__setattr__(self, "numbers", plain)


def _plain(value: float) -> float:
    return value.item() if isinstance(value, np.generic) else value


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order in which to read them.

    Performance by severity and gain, then improvements, then remarks on the capture, of these those
    on what is missing first. Gains too small to be shown are left out.
    """
    return sorted((finding for finding in findings if _is_shown(finding)), key=_place)


def _is_shown(finding: Finding) -> bool:
    return finding.kind != PERFORMANCE or finding.severity is not None


def _expected_pct(finding: Finding) -> float:
    """Return the gain by which a finding stands among others: beside a bound that of its replay."""
    if finding.gain is None:
        return 0.0
    replayed_pct = finding.gain.replayed_pct
    return finding.gain.gain_pct if replayed_pct is None else replayed_pct


def _place(finding: Finding) -> tuple[Any, ...]:
    severity = finding.severity or SEVERITIES[-1]
    return (
        KINDS.index(finding.kind),
        SEVERITIES.index(severity),
        finding.rule not in INCOMPLETE,
        -_expected_pct(finding),
        -finding.impact_ns,
        finding.rule,
        -1 if finding.rank is None else finding.rank,
        finding.name or "",
    )


def remarks(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings on the capture, in order."""
    return [finding for finding in findings if finding.kind == CAPTURE]


def opportunities(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are not on the capture, in order."""
    return [finding for finding in findings if finding.kind != CAPTURE]


def severity_counts(findings: Sequence[Finding]) -> str:
    """Return how many findings there are of each severity: `1 high, 4 low`."""
    counts = {name: sum(finding.severity == name for finding in findings) for name in SEVERITIES}
    counts["improved"] = sum(finding.kind == IMPROVEMENT for finding in findings)
    # The others are adjectives.
    words = {TAIL: "in rare steps"}
    return ", ".join(f"{n} {words.get(name, name)}" for name, n in counts.items() if n)


def finding_columns(findings: Sequence[Finding], names: Iterable[str]) -> dict[str, list[Any]]:
    """Return the named columns of the table `findings`, in the given order of findings."""
    rows = [finding_row(finding) for finding in findings]
    return {name: [row[name] for row in rows] for name in names}


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return one row of the table `findings`: what is several values is text or JSON."""
    start_ns, end_ns = finding.window_ns or (None, None)
    scoped = {name: finding.name if finding.scope == name else None for name in NAMED_SCOPES}
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        **_gain_row(finding.gain),
        "rule": finding.rule,
        "scope": finding.scope,
        "rank": finding.rank,
        "device_id": finding.device_id,
        "ranks": ",".join(map(str, finding.ranks)) or None,
        "name": finding.name,
        **scoped,
        "cause": finding.cause,
        "cause_ns": finding.cause_ns,
        "culprit": finding.culprit,
        "title": finding.title,
        "details": finding.details,
        "recommendation": finding.recommendation,
        "record": finding.record,
        "tables": ", ".join(finding.tables),
        "evidence": json.dumps(evidence_record(finding), ensure_ascii=False),
        "numbers": json.dumps(dict(finding.numbers)),
        "window_start_ns": start_ns,
        "window_end_ns": end_ns,
        "impact_ns": finding.impact_ns,
    }


def evidence_record(finding: Finding) -> list[dict[str, Any]]:
    """Return the evidence of a finding as JSON has it."""
    return [{**asdict(cell), "where": dict(cell.where)} for cell in finding.evidence]


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a finding as report.json has it: the table's columns, with lists and objects."""
    return {
        **finding_row(finding),
        "ranks": list(finding.ranks),
        "tables": list(finding.tables),
        "wall_classes": [] if finding.gain is None else list(finding.gain.wall_classes),
        "evidence": evidence_record(finding),
        "numbers": dict(finding.numbers),
        "window_shows": finding.window_shows,
    }


def _gain_row(gain: Gain | None) -> dict[str, Any]:
    return {
        "gain_ns": None if gain is None else gain.gain_ns,
        "gain_pct": None if gain is None else gain.gain_pct,
        "gain_step_ns": None if gain is None else gain.gain_step_ns,
        "gain_is_bound": None if gain is None else gain.is_bound,
        "gain_basis": None if gain is None else gain.basis,
        "gain_tail_pct": None if gain is None else gain.tail_pct,
        "span_ns": None if gain is None else gain.span_ns,
        "wall_classes": None if gain is None else ", ".join(gain.wall_classes),
    }
