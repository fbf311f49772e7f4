"""What must hold of the findings of every recipe on every trace, checked against its own tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from finding_numbers import unexplained_numbers

from nsys_llm.report.findings import Finding, evidence_record, finding_record, ranked
from nsys_llm.report.prices.pricing import priced

LEAST = {"high": 10.0, "medium": 3.0, "low": 1.0}


def listed(findings: Sequence[Finding], tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return findings as a report lists them, with the prices that tables give."""
    return ranked(priced(findings, tables))


def check_findings(findings: Sequence[Finding], tables: Mapping[str, pd.DataFrame]) -> None:
    """Fail unless gains fit into their GPU, and every number is that of a field or a table."""
    for finding in findings:
        record = finding_record(finding)
        assert list(not_plain(finding)) == []
        assert unexplained_numbers(record) == [], (finding.rule, finding.title, finding.details)
        if finding.kind == "capture":
            assert (finding.severity, finding.price) == (None, None)
        else:
            check_gain(record, tables["wall"])


def not_plain(finding: Finding) -> Iterator[str]:
    """Yield the fields of a finding whose values, or those in them, are of other than plain types.

    A numpy.float64 is a float to type checkers, and not to JSON or to all of Python's formats.
    """
    fields = {**vars(finding), **(vars(finding.price) if finding.price is not None else {})}
    for name in ("price", "cause", "change"):
        del fields[name]
    fields["evidence"] = evidence_record(finding)
    for name, value in fields.items():
        for inner in _inner(value):
            if type(inner) not in (int, float, str, bool, type(None)):
                yield f"{finding.rule}.{name}: {type(inner)}"


def _inner(value: Any) -> Iterator[Any]:
    values = value.values() if isinstance(value, Mapping) else value
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        yield value
        return
    for item in values:
        yield from _inner(item)


def check_gain(record: Mapping[str, Any], wall: pd.DataFrame) -> None:
    """Fail unless a gain fits into its GPU and its bound, and has its severity.

    Args:
        record: A finding, as report.json has it.
        wall: Table of the run whose time is gained.
    """
    gpu = wall[(wall["rank"] == record["rank"]) & (wall["device_id"] == record["device_id"])]
    classes = gpu[gpu["wall_class"].isin(record["wall_classes"])]
    gain_ns, in_tail = record["gain_ns"] or 0, (record["gain_tail_pct"] or 0) >= 10
    assert 0 <= gain_ns <= classes["time_ns"].sum()
    assert record["bound_ns"] is None or gain_ns <= record["bound_ns"]
    assert record["span_ns"] == gpu["span_ns"].iloc[0]
    share = 100.0 * gain_ns / record["span_ns"]
    reached = [name for name, least in LEAST.items() if share >= least]
    if reached and (record["about_basis"] is None or gain_ns < 100_000):
        reached = [reached[0].replace("high", "medium")]
    # In a replay nothing may be gained but in the worst steps, or less than what may be at best.
    assert record["severity"] == (reached[0] if reached else "tail" if in_tail else None)
    assert reached or in_tail or gain_ns < (record["bound_ns"] or 0), record["title"]
    # Without ranks it is about one, or all.
    assert record["rank"] in (record["ranks"] or [record["rank"]])
