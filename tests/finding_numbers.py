"""Numbers in the sentences of findings: each is a field of the finding, or a cell of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nsys_llm.view.text import (
    format_bytes,
    format_count,
    format_instant,
    format_ns,
    format_percent,
    spans,
)

_NUMBER = re.compile(r"(?<![\w.#])(?<![A-Za-z]-)[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_FIELDS = ("rank", "device_id", "gain_ns", "gain_pct", "gain_step_ns", "gain_tail_pct", "span_ns",
           "cause_ns", "impact_ns", "window_start_ns", "window_end_ns")  # fmt: skip


def unexplained_numbers(finding: Mapping[str, Any]) -> list[str]:
    """Return the numbers of title and details that no field of a finding gives.

    Args:
        finding: As report.json has it.
    """
    shown = {form for value in _values(finding) for form in _forms(value)}
    shown |= {number for text in _texts(finding) for number in _numbers(text)}
    text = f"{finding['title']} {finding['details']}"
    prose = " ".join(part for code, part in spans(text) if not code)
    return [token for token in _numbers(prose) if token not in shown]


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


def _numbers(text: str) -> list[str]:
    return [match[0].rstrip(",").lstrip("+-") for match in _NUMBER.finditer(text)]


def _values(finding: Mapping[str, Any]) -> Iterator[float]:
    yield from (finding[name] for name in _FIELDS if finding.get(name) is not None)
    yield from finding["numbers"].values()
    yield from finding["ranks"]
    yield from (len(finding["ranks"]), len(finding["ranks"]) - 1)
    for cell in finding["evidence"]:
        for value in (cell["value"], *cell["where"].values()):
            for each in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(each, (int, float)) and not isinstance(each, bool):
                    yield each


def _texts(finding: Mapping[str, Any]) -> Iterator[str]:
    """Yield cells that are a text, which a sentence may repeat."""
    yield from (cell["value"] for cell in finding["evidence"] if isinstance(cell["value"], str))


def _forms(value: float) -> Iterator[str]:
    """Yield the ways in which a sentence writes a value."""
    value = abs(value)
    texts = [format_ns(value), format_bytes(value), format_percent(value), format_count(value)]
    texts += [format_instant(value), f"{value:.1f}", f"{value:.2f}", f"{value:.3g}", f"{value:g}"]
    for text in texts:
        yield from _numbers(text)
