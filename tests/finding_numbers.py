"""Numbers in the sentences of findings: each is a field of the finding, or a cell of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from title_claims import forms, numbers_in

from nsys_llm.view.text import spans

_FIELDS = ("rank", "device_id", "gain_ns", "gain_pct", "gain_step_ns", "gain_tail_pct", "span_ns",
           "cause_ns", "impact_ns", "window_start_ns", "window_end_ns")  # fmt: skip


def unexplained_numbers(finding: Mapping[str, Any]) -> list[str]:
    """Return the numbers of title and details that no field of a finding gives.

    Args:
        finding: As report.json has it.
    """
    shown = {form for value in _values(finding) for form in forms(value)}
    text = f"{finding['title']} {finding['details']}"
    prose = " ".join(part for code, part in spans(text) if not code)
    return [token for token in numbers_in(prose) if token not in shown]


def checked(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a report of report.json, if every number in its findings is a field.

    Args:
        report: See above.
    """
    for finding in report["findings"]:
        assert unexplained_numbers(finding) == [], (
            finding["rule"],
            finding["title"],
            finding["details"],
        )
    return report


def _values(finding: Mapping[str, Any]) -> Iterator[Any]:
    """Yield numbers, and texts that a sentence may repeat."""
    yield from (finding[name] for name in _FIELDS if finding.get(name) is not None)
    yield from finding["numbers"].values()
    yield from finding["ranks"]
    yield from (len(finding["ranks"]), len(finding["ranks"]) - 1)
    for cell in finding["evidence"]:
        yield cell["value"]
        for value in cell["where"].values():
            # Of several ranks each is named.
            each = value if isinstance(value, (list, tuple)) else [value]
            yield from (one for one in each if not isinstance(one, str))
