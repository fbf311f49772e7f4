"""Gates: how much worse a metric may be than in the baseline, as people type it. Pure.

They are written like `kernel(flash*):+2%`, `idle_pct:+2pp`, `exposed_comm:+10ms` (docs/gates.md);
`steps_per_second:-3%` where a metric is worse the smaller it is.

Limits are in the direction in which a metric gets worse. Values are exact fractions: a change of
just the limit passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.manifest.declared import Metric

PASS: Final = "pass"
FAIL: Final = "fail"
#: Above the limit, which may be chance.
PROBABLY_FAIL: Final = "fail (probably)"
#: The gate decides nothing: its metric cannot be computed, or not be compared.
NOT_COMPARABLE: Final = "not_comparable"

_GATE: Final = re.compile(
    r"\s*(?P<name>\w+)\s*(?:\((?P<argument>.*)\))?\s*:"
    r"\s*(?P<sign>[+-])\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>[a-zA-Z%]*)\s*",
    re.DOTALL,
)
_RELATIVE: Final = "%"
#: What the time of a step is called in trace_diff, and in trend: both know both.
_STEP_TIME: Final = ("step_time", "step")
_FILE: Final = "@"
#: By unit of the metric: units of an absolute limit, and what one of it is in the metric's own.
_UNITS: Final = {
    "ns": {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000},
    "%": {"pp": 1},
    "bytes": {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000},
    "count": {"": 1},
}


@dataclass(frozen=True)
class Gate:
    """One gate.

    Attributes:
        argument: What stands in brackets; None for a metric without.
        limit: How much greater the metric may be: in percent if `relative`, else in its own unit.
        relative: Whether the limit is a share of the baseline's value.
        falls: Whether it may be so much smaller, and not greater.
    """

    text: str
    metric: str
    argument: str | None
    limit: Fraction
    relative: bool
    falls: bool = False


@dataclass(frozen=True)
class Judgement:
    """What a gate says.

    Attributes:
        allowed: How much greater the metric might be, in its own unit; None where that is not
            known.
        reason: In one sentence, where there is more to say than the numbers.
    """

    result: str
    allowed: Fraction | None
    reason: str | None = None


def gate_texts(word: str) -> tuple[str, ...]:
    """Return the gates behind one word of a command line: itself, or the lines of `@FILE`.

    Empty lines of a file, and what follows a `#`, are left out.

    Raises:
        UsageError: The file cannot be read, or has no gate.
    """
    if not word.startswith(_FILE):
        return (word,)
    content = read_option_file(word.removeprefix(_FILE))
    lines = (line.partition("#")[0].strip() for line in content.splitlines())
    gates = tuple(line for line in lines if line)
    if not gates:
        raise UsageError(f"{word}: holds no gate; write one a line, like step_time:+3%.")
    return gates


def parse_gates(texts: Sequence[str], metrics: Sequence[Metric]) -> tuple[Gate, ...]:
    """Read gates.

    Raises:
        UsageError: A text is no gate, or of no metric; the message lists the legal ones.
    """
    return tuple(_parsed(text.strip(), metrics) for text in texts)


def blocks(results: Iterable[str], gate_if: str) -> bool:
    """Tell whether gates fail, by how sure `--gate-if` has them be: sure or probably."""
    return bool({FAIL, *([PROBABLY_FAIL] if gate_if == "probably" else [])} & {*results})


def judge(
    gate: Gate, before: Fraction | None, after: Fraction | None, noise: Fraction | None
) -> Judgement:
    """Compare a metric on two sides.

    Args:
        before: Value of the baseline; None where it cannot be computed.
        noise: How far runs of the baseline differ among themselves; None where that is not known.
            A change within it passes.
    """
    if before is None or after is None:
        return Judgement(NOT_COMPARABLE, None, "the metric cannot be computed for both runs")
    # How much worse it is.
    change = before - after if gate.falls else after - before
    if gate.relative and before == 0:
        if change <= 0:
            return Judgement(PASS, Fraction(0), "the baseline is 0, and so is the input")
        reason = "the baseline is 0, so no percentage of it is a limit; give an amount"
        return Judgement(NOT_COMPARABLE, None, reason)
    allowed = gate.limit * before / 100 if gate.relative else gate.limit
    if change <= allowed:
        return Judgement(PASS, allowed)
    if noise is not None and change <= noise:
        return Judgement(PASS, allowed, "above the limit, but runs of the baseline differ as much")
    return Judgement(FAIL, allowed)


def _parsed(text: str, metrics: Sequence[Metric]) -> Gate:
    match = _GATE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"gate '{text}' is not METRIC:+LIMIT, like step_time:+3%, idle_pct:+2pp, "
            f"exposed_comm:+10ms or kernel(flash*):+2%. {_legal(metrics)}"
        )
    argument = match["argument"]
    names = _STEP_TIME if match["name"] in _STEP_TIME else (match["name"],)
    metric = next((metric for metric in metrics if metric.name in names), None)
    if metric is None:
        raise UsageError(f"gate '{text}': there is no metric '{match['name']}'. {_legal(metrics)}")
    if (match["sign"] == "-") != metric.falls:
        way, moves = ("-", "falls") if metric.falls else ("+", "grows")
        raise UsageError(
            f"gate '{text}' is not METRIC:{way}LIMIT: {metric.typed} gets worse as it {moves}. "
            f"{_legal(metrics)}"
        )
    if (argument is None) != (metric.argument is None) or (argument is not None and not argument):
        raise UsageError(f"gate '{text}': write {metric.typed}:+LIMIT. {_legal(metrics)}")
    unit, limit = match["unit"], Fraction(match["limit"])
    if unit == _RELATIVE:
        return Gate(text, metric.name, argument, limit, True, metric.falls)
    known = _UNITS[metric.unit]
    if unit not in known:
        amounts = ", ".join(item or "a plain number" for item in known)
        raise UsageError(
            f"gate '{text}': the limit of {metric.typed} is in % or {amounts}, not '{unit}'."
        )
    return Gate(text, metric.name, argument, limit * known[unit], False, metric.falls)


def _legal(metrics: Sequence[Metric]) -> str:
    return f"Metrics: {', '.join(metric.typed for metric in metrics)}."
