"""Findings: what a run wants its reader to know, each with the evidence for it.

A finding is made from tables alone, and never without evidence. Its texts are prose in which names
out of a trace stand in backticks (see `nsys_llm.view.text.quoted`); every renderer escapes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from nsys_llm.core.errors import ManifestError
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.price import PROFILED, TAIL, Price
from nsys_llm.report.records import Tables

#: What a finding tells: time that a fix could gain; time that a change has gained; or what the
#: capture holds or lacks, which qualifies the others and has no severity.
PERFORMANCE: Final = "performance"
IMPROVEMENT: Final = "improvement"
CAPTURE: Final = "capture"
KINDS: Final = (PERFORMANCE, IMPROVEMENT, CAPTURE)

#: Most severe first.
SEVERITIES: Final = ("high", "medium", "low", TAIL)

#: Rules on what a run does not hold: they are read first, because they qualify all others.
INCOMPLETE: Final = (
    "earlier_run",
    "silent_processes",
    "missing_ranks",
    "lost_work",
    "no_gpu_work",
    "broken_times",
    "unknown_table",
    "unrecorded_work",
)
#: The last of them: idle time and what bounds a run are then not what tables of operations say.
UNRECORDED_WORK: Final = INCOMPLETE[-1]

#: What a finding can be about.
SCOPES: Final = ("run", "rank", "device", "kernel", "category", "api", "copy", "phase")
#: Those of them whose name has a column of its own.
NAMED_SCOPES: Final = ("kernel", "category", "api", "phase")

#: Columns of what a change gains; null where nobody knows.
_GAINS: Final = ("gain_ns", "gain_pct", "gain_step_ns")
#: The other columns of a price, and what it calls them.
_PRICED: Final = {
    **{name: name for name in ("bound_ns", "bound_pct", "about_basis", "replay_reason")},
    **{"gain_tail_pct": "tail_pct", "measured_ns": "measured_ns", "span_ns": "span_ns"},
}

#: What is made of the cells of a column: of `cell` they are one value.
How = Literal["cell", "sum", "max", "min", "median", "mean", "count", "distinct"]

_TERMS: Final = re.compile(r"(?=[+-])")
_METHODS: Final = {"cell": "max", "distinct": "nunique"}


@dataclass(frozen=True)
class Evidence:
    """A number that a finding rests on: a cell of a table, or what a column's cells add up to.

    Attributes:
        where: Columns and values that choose the rows, of a tuple any of its values; none where all
            rows are meant. They hold every rank, kernel, call, range or phase that a sentence with
            this number names.
        column: Its name; of numbers of one row also what they add up to: `end_ns-start_ns`.
        value: The number, or a text; None for null.
        name: Field of the rule's templates; empty where it is the column.
        over: What it is divided by; with a name that ends in `_pct` it is the share in that, 0 to
            100.
    """

    table: str
    where: tuple[tuple[str, Any], ...]
    column: str
    value: Any
    name: str = ""
    how: How = "cell"
    over: Evidence | None = None

    @property
    def field(self) -> str:
        """Its field of the rule's templates."""
        return self.name or self.column


def cells(
    table: str, row: Mapping[str, Any], where: Sequence[str], columns: Sequence[str]
) -> tuple[Evidence, ...]:
    """Return cells of one row as evidence.

    Args:
        row: One of its rows, see `nsys_llm.report.records.records`.
        where: Columns that choose the row.
        columns: Those whose values a sentence names.
    """
    chosen = tuple((name, row[name]) for name in where)
    return tuple(Evidence(table, chosen, column, row[column]) for column in columns)


def claim(
    tables: Tables,
    name: str,
    table: str,
    column: str,
    how: How = "sum",
    over: Evidence | None = None,
    /,
    **where: Any,
) -> Evidence:
    """Return a number that rows of a table add up to, made from nothing else.

    Args:
        name: Field of the rule's templates, with its unit at the end.
        column: Whose cells; null ones are left out.
        how: What is made of them; `count` is the number of cells that are not null, `distinct`
            that of different values.
        over: What it is divided by, see `Evidence`.
        where: What the rows hold, by column; of a tuple any of its values.

    Raises:
        ManifestError: What is said to be one cell has several values.
    """
    rows = tables[table]
    for key, wanted in where.items():
        some = wanted if isinstance(wanted, tuple) else (wanted,)
        rows = rows[
            rows[key].isin([value for value in some if value is not None])
            | (rows[key].isna() & (None in some))
        ]
    first, *terms = _TERMS.split(column)
    values = rows[first]
    for term in terms:
        other = rows[term[1:]]
        values = values + other if term[0] == "+" else values - other
    values = values.dropna()
    if how == "cell":
        values = values.drop_duplicates()
        if len(values) > 1:
            raise ManifestError(f"{table}.{column} of {where} is no one value.")
    known = how in ("sum", "count", "distinct") or len(values)
    value = getattr(values, _METHODS.get(how, how))() if known else None
    if value is not None:
        value = part_of(value, name, over)
    return Evidence(table, tuple(where.items()), column, plain(value), name, how, over)


def part_of(value: Any, name: str, over: Evidence | None) -> Any:
    """Return a number divided as evidence of a name is; None by nothing, or by 0."""
    if over is None:
        return value
    times = 100.0 if name.endswith("_pct") else 1.0
    return times * value / over.value if over.value else None


@dataclass(frozen=True)
class Finding:
    """One finding; its texts, and how precise it is, are as its `Rule` says.

    Attributes:
        rule: Name of the rule that found it, the same in every run: `slow_gpu`.
        evidence: The cells that the numbers in title and details are.
        numbers: Numbers in title and details that are no cell: sums, shares, limits; by name.
        change: What somebody would do; None where two runs measured what it is worth.
        price: What that gains, which `prices` computes; None where `kind` is not performance.
        rank: Which rank, where it is about one; of several the one with the largest gain.
        name: Which kernel, category, API function or phase, as the tables have it.
        window_ns: Where to look: start and end in the clock of the rank's profile, as
            `--filter-time` takes them.
        steps: The first and the last step of the job that it is about, where that is not all.
        ncu: The command that profiles one launch of its kernel, see `nsys_llm.report.ncu`.
        impact_ns: GPU or host time that it is about.
    """

    rule: str
    scope: str
    title: str
    details: str
    tables: tuple[str, ...]
    recommendation: str
    kind: str = PERFORMANCE
    evidence: tuple[Evidence, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    cause: Cause | None = None
    change: Change | None = None
    price: Price | None = None
    specificity: int = 0
    ranks: tuple[int, ...] = ()
    rank: int | None = None
    device_id: int | None = None
    name: str | None = None
    window_ns: tuple[int, int] | None = None
    window_shows: str | None = None
    steps: tuple[int, int] | None = None
    record: str | None = None
    ncu: str | None = None
    impact_ns: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.scope not in SCOPES:
            raise ManifestError(f"finding {self.rule}: kind or scope is not one that there is.")
        if not (self.title and self.details and self.tables and self.recommendation):
            raise ManifestError(f"finding {self.rule}: a finding never fires without evidence.")
        if self.record is not None and not all(
            word.startswith("--") for word in self.record.split(" ")
        ):
            raise ManifestError(f"finding {self.rule}: what to record is more than flags.")
        numbers = {name: plain(value) for name, value in self.numbers.items()}
        object.__setattr__(self, "numbers", numbers)

    @property
    def severity(self) -> str | None:
        """One of `SEVERITIES`; None of what is no performance, and of what gains too little."""
        return self.price.severity if self.price and self.kind == PERFORMANCE else None

    @property
    def order(self) -> tuple[Any, ...]:
        """Where it stands among others on time: the one order of everything that lists findings.

        By `Price.order`: the estimate, else half of the bound or of the time of a verdict; severity
        `tail` after all; ties by bound, rule, rank, name.
        """
        order = (True, 0.0, 0.0) if self.price is None else self.price.order
        return (*order, self.rule, -1 if self.rank is None else self.rank, self.name or "")


def plain(value: Any) -> Any:
    """Return a value of a data frame as Python's own; numpy.float64 is a float to mypy alone."""
    return value.item() if isinstance(value, np.generic) else value


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order in which to read them.

    Performance by `Finding.order`, then improvements, then remarks on the capture, of these those
    on what is missing first. Gains too small to be shown are left out, but those that only the
    profiler makes larger.
    """
    return ordered(
        finding
        for finding in findings
        if finding.severity or finding.kind != PERFORMANCE or PROFILED in finding.numbers
    )


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return all findings, likewise."""
    return sorted(findings, key=_place)


def _place(finding: Finding) -> tuple[Any, ...]:
    return (
        KINDS.index(finding.kind),
        finding.rule not in INCOMPLETE,
        -finding.impact_ns if finding.price is None else 0,
        *finding.order,
    )


def severity_counts(findings: Sequence[Finding]) -> str:
    """Return how many findings there are of each severity: `1 high, 4 low`."""
    counts = {name: sum(finding.severity == name for finding in findings) for name in SEVERITIES}
    counts["improved"] = sum(finding.kind == IMPROVEMENT for finding in findings)
    # The others are adjectives.
    words = {TAIL: "in rare steps"}
    return ", ".join(f"{n} {words.get(name, name)}" for name, n in counts.items() if n)


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return one row of the table `findings`: what is several values is text or JSON."""
    cause, (start_ns, end_ns) = finding.cause, finding.window_ns or (None, None)
    scoped = {name: finding.name if finding.scope == name else None for name in NAMED_SCOPES}
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        **price_row(finding.price),
        "rule": finding.rule,
        "scope": finding.scope,
        "rank": finding.rank,
        "device_id": finding.device_id,
        "ranks": ",".join(map(str, finding.ranks)) or None,
        "name": finding.name,
        **scoped,
        "cause": cause and cause.kind,
        "cause_rank": cause and cause.rank,
        "cause_detail": cause and (cause.note if cause.detail is None else cause.detail),
        "change": None if finding.change is None else finding.change.kind,
        "title": finding.title,
        "details": finding.details,
        "recommendation": finding.recommendation,
        "record": finding.record,
        "ncu": finding.ncu,
        "tables": ", ".join(finding.tables),
        "evidence": json.dumps(evidence_record(finding), ensure_ascii=False),
        "numbers": json.dumps(dict(finding.numbers)),
        "window_start_ns": start_ns,
        "window_end_ns": end_ns,
        "steps": steps_words(finding.steps),
        "impact_ns": finding.impact_ns,
    }


def steps_words(steps: tuple[int, int] | None) -> str | None:
    """Return steps as `--steps` takes them: `15-29`."""
    return None if steps is None else "{}-{}".format(*steps)


def evidence_record(finding: Finding) -> list[dict[str, Any]]:
    """Return the evidence of a finding as JSON has it."""
    return [_evidence_record(cell) for cell in finding.evidence]


def _evidence_record(cell: Evidence) -> dict[str, Any]:
    record = {**vars(cell), "where": dict(cell.where)}
    record["over"] = None if cell.over is None else _evidence_record(cell.over)
    # What a single cell has is left out.
    usual = {"name": "", "how": "cell", "over": None}
    return {key: value for key, value in record.items() if (key, value) not in usual.items()}


def evidence_of(record: Mapping[str, Any], place: str = "") -> Evidence:
    """Return evidence as JSON has it as it was.

    Args:
        place: Goes before the names of its tables.
    """
    where = ((key, tuple(v) if isinstance(v, list) else v) for key, v in record["where"].items())
    over = record.get("over")
    return Evidence(
        **{**record, "table": f"{place}{record['table']}", "where": tuple(where)}
        | {"over": None if over is None else evidence_of(over, place)}
    )


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a finding as report.json has it: the table's columns, with lists and objects."""
    return {
        **finding_row(finding),
        "ranks": list(finding.ranks),
        "tables": list(finding.tables),
        "wall_classes": [] if finding.price is None else list(finding.price.wall_classes),
        "evidence": evidence_record(finding),
        "numbers": dict(finding.numbers),
        "window_shows": finding.window_shows,
    }


def price_row(price: Price | None) -> dict[str, Any]:
    """Return the columns of a table that say what a change gains."""
    known = price is not None and price.is_known
    gains = {name: getattr(price, name) if known else None for name in _GAINS}
    if price is None:
        return gains | dict.fromkeys((*_PRICED, "wall_classes"))
    others = {name: getattr(price, of) for name, of in _PRICED.items()}
    return gains | others | {"wall_classes": ", ".join(price.wall_classes)}
