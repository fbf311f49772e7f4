"""What a change gains, as findings are compared by it: wall-clock time of one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from nsys_llm.core.errors import ManifestError
from nsys_llm.report.records import percent
from nsys_llm.view.text import format_ns, format_percent

#: Share of the span from which on a gain has a severity; below the last one it is a table's row.
LIMITS_PCT: Final = {"high": 10.0, "medium": 3.0, "low": 1.0}
#: Less time of a whole run is never high.
_LEAST_HIGH_NS: Final = 100_000
LEAST_PCT: Final = min(LIMITS_PCT.values())
#: Share of the p99 or worst step from which on a gain below that is worth reading.
TAIL: Final = "tail"
TAIL_LIMIT_PCT: Final = 10.0

#: Steps of which a cost is that of so many events, not of a step.
FEW_STEPS: Final = 3

#: Field of a finding's numbers: the share that it would gain under the profiler alone.
PROFILED: Final = "profiled_pct"

#: What is said of a gain without an estimate or a bound.
NOT_KNOWN: Final = "how much it gains is not known"

#: What an estimate rests on: a replay that counts, the usual size of the change, or two runs.
Basis = Literal["replay", "usual", "measured"]


@dataclass(frozen=True)
class Price:
    """What a change gains on one GPU, that of the finding's `rank` and `device_id`.

    Prices of several changes overlap and do not add up.

    Attributes:
        span_ns: From the GPU's first operation to its last one, after filters, ns.
        wall_classes: Classes of the table `wall` that it draws on.
        bound_ns: Most that it gains, ns; None where no bound is known.
        about_ns: What a usual fix gains, ns, at most the bound; None where nobody knows.
        about_basis: What that rests on; None where it is not known.
        replay_reason: Why the replay of the change does not count; None where it does, or where no
            replay is of this change.
        steps_n: Steps in the span, a part of one as that part; None where there are no steps.
        step_unit: What a step is: step, layer, graph or period.
        tail_pct: Share of the p99 or worst step that it would gain there; None if unknown.
        is_rare: Whether one to three steps have it: a mean step says nothing of it.
        measured_ns: Time of a verdict on a rank of which neither is known, ns; None of others.
    """

    span_ns: int
    wall_classes: tuple[str, ...]
    bound_ns: int | None = None
    about_ns: int | None = None
    about_basis: Basis | None = None
    replay_reason: str | None = None
    steps_n: float | None = None
    step_unit: str = "step"
    tail_pct: float | None = None
    measured_ns: int | None = None
    is_rare: bool = False

    def __post_init__(self) -> None:
        if not self.wall_classes or (self.about_ns is None) != (self.about_basis is None):
            raise ManifestError("a price names its wall classes, and what its estimate rests on.")
        most_ns = self.span_ns if self.bound_ns is None else min(self.bound_ns, self.span_ns)
        for time_ns, limit_ns in ((self.bound_ns, self.span_ns), (self.about_ns, most_ns)):
            if time_ns is not None and not 0 <= time_ns <= limit_ns:
                raise ManifestError(f"a gain of {time_ns} ns of {limit_ns} ns is not possible.")

    @property
    def gain_ns(self) -> int:
        """The estimate; where there is none the bound, ns; 0 where it is not known, either."""
        return (self.bound_ns or 0) if self.about_ns is None else self.about_ns

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate or a bound."""
        return (self.about_ns, self.bound_ns) != (None, None)

    @property
    def gain_pct(self) -> float:
        """Share of the span, 0 to 100."""
        return percent(self.gain_ns, self.span_ns)

    @property
    def bound_pct(self) -> float | None:
        """Share of the bound in the span; None without one."""
        return None if self.bound_ns is None else percent(self.bound_ns, self.span_ns)

    @property
    def gain_step_ns(self) -> float | None:
        """Mean gain of a step, ns; None without steps, and of what few steps have."""
        return self.gain_ns / self.steps_n if self.steps_n and not self.is_rare else None

    @property
    def is_refuted(self) -> bool:
        """Whether a replay that counts says that it is not worth a line."""
        return self.about_basis == "replay" and self.gain_pct < LEAST_PCT

    @property
    def severity(self) -> str | None:
        """The first limit that it reaches; without an estimate, or below 0.1 ms, never high."""
        most_pct = max(self.gain_pct, percent(self.measured_ns or 0, self.span_ns))
        for severity, least_pct in LIMITS_PCT.items():
            if most_pct >= least_pct:
                unsure = self.about_ns is None or self.gain_ns < _LEAST_HIGH_NS
                return "medium" if unsure and severity == "high" else severity
        rare = (self.tail_pct or 0.0) >= TAIL_LIMIT_PCT and not self.is_refuted
        return TAIL if rare else None

    @property
    def order(self) -> tuple[bool, float, float]:
        """Where a finding stands, the first one least; findings.py breaks ties.

        By the estimate; where there is none, by half of the bound, or of what is measured.
        """
        key_pct = self.gain_pct + percent(self.measured_ns or 0, self.span_ns)
        key_pct = key_pct / 2 if self.about_ns is None else key_pct
        return self.severity == TAIL, -key_pct, -(self.bound_pct or 0.0)


def price_words(price: Price) -> str:
    """Return a price as a line has it: `about 5.32 ms a step, 30.0 % (at most 41.2 %)`."""
    if price.severity == TAIL and not price.gain_ns:
        rest = "0.0 % in all" if price.is_known else NOT_KNOWN
        return f"{format_percent(price.tail_pct)} of the slowest, {rest}"
    if not price.is_known:
        return NOT_KNOWN
    each = price.gain_step_ns
    time = format_ns(price.gain_ns) if each is None else f"{format_ns(each)} a {price.step_unit}"
    return f"{sure_word(price)} {time}, {format_percent(price.gain_pct)}{bound_words(price)}"


def sure_word(price: Price) -> str:
    """Return how sure a gain is."""
    if not price.is_known:
        return "unknown"
    return "at most" if price.about_ns is None else "about"


def bound_words(price: Price) -> str:
    """Return the bound of an estimate in brackets; nothing where it is the same, or not known."""
    bound = format_percent(price.bound_pct)
    same = price.bound_ns is None or bound == format_percent(price.gain_pct)
    return "" if same else f" (at most {bound})"


def limits_words() -> str:
    """Return when a finding has which severity, in words."""
    limits = ", ".join(f"{name} from {least:g} %" for name, least in LIMITS_PCT.items())
    return f"{limits} of the GPU's span; {TAIL} from {TAIL_LIMIT_PCT:g} % of the worst step"


def price_of(row: Mapping[str, Any], step_unit: str = "step") -> Price:
    """Return the price of a row of `findings` or `opportunities`."""
    step_ns = row["gain_step_ns"]
    return Price(
        span_ns=row["span_ns"],
        wall_classes=tuple(row["wall_classes"].split(", ")),
        bound_ns=row["bound_ns"],
        about_ns=None if row["about_basis"] is None else row["gain_ns"],
        about_basis=row["about_basis"],
        replay_reason=row["replay_reason"],
        steps_n=row["gain_ns"] / step_ns if step_ns else None,
        measured_ns=row["measured_ns"],
        step_unit=step_unit,
        tail_pct=row["gain_tail_pct"],
        is_rare=step_ns is None,
    )
