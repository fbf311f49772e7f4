"""The scale on which findings are compared: wall-clock time of one GPU that a fix could gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.core.errors import ManifestError
from nsys_llm.view.text import format_ns, format_percent

#: Share of the span from which on a gain has a severity; below the last one it is a table's row.
LIMITS_PCT: Final = {"high": 10.0, "medium": 3.0, "low": 1.0}
#: Share of the p99 or worst step from which on a gain below that is worth reading.
TAIL: Final = "tail"
TAIL_LIMIT_PCT: Final = 10.0

#: What a gain rests on: the critical path, the work of one GPU, its idle time, or a replay.
BASES: Final = ("path", "device", "idle", "replay")


@dataclass(frozen=True)
class Gain:
    """What a fix could gain on one GPU, that of the finding's `rank` and `device_id`.

    Gains of several findings overlap and do not add up.

    Attributes:
        gain_ns: Wall-clock time, ns; at most the time of `wall_classes` on that GPU.
        span_ns: From the GPU's first operation to its last one, after filters, ns.
        wall_classes: Classes of the table `wall` that it draws on.
        basis: One of `BASES`.
        is_bound: True where the fix shortens work, so that it gains at most this. False where it
            removes a wait: this is an estimate then, and not a bound.
        steps_n: Steps in the span, a part of one as that part; None where there are no steps.
        step_unit: What a step is: step, layer, graph or period.
        tail_pct: Share of the p99 or worst step that the fix would gain there; None if unknown.
        replayed_pct: Share of the job's step that a replay with the fix gains, beside a bound; None
            where there is none.
    """

    gain_ns: int
    span_ns: int
    wall_classes: tuple[str, ...]
    basis: str
    is_bound: bool
    steps_n: float | None = None
    step_unit: str = "step"
    tail_pct: float | None = None
    replayed_pct: float | None = None

    def __post_init__(self) -> None:
        if self.basis not in BASES or not self.wall_classes:
            raise ManifestError("a gain names its wall classes and what it rests on.")
        if not 0 <= self.gain_ns <= self.span_ns:
            raise ManifestError(
                f"a gain of {self.gain_ns} ns in {self.span_ns} ns is not possible."
            )

    @property
    def gain_pct(self) -> float:
        """Share of the span, 0 to 100."""
        return 100.0 * self.gain_ns / self.span_ns if self.span_ns else 0.0

    @property
    def gain_step_ns(self) -> float | None:
        """Mean gain of a step, ns; None without steps."""
        return self.gain_ns / self.steps_n if self.steps_n else None

    @property
    def severity(self) -> str | None:
        """The first limit that the gain reaches; None below all of them."""
        for severity, least_pct in LIMITS_PCT.items():
            if self.gain_pct >= least_pct:
                return severity
        return TAIL if (self.tail_pct or 0.0) >= TAIL_LIMIT_PCT else None


class Walls:
    """The table `wall` as findings ask for it: spans of GPUs, and what was in them.

    A GPU is a rank and a CUDA device id; one that the table has not has a span of 0.
    """

    def __init__(self, tables: Mapping[str, pd.DataFrame], side: str | None = None) -> None:
        """Read the table.

        Args:
            tables: Finished tables by name; `wall` is read.
            side: Of which run, where two are compared.
        """
        wall = tables["wall"]
        wall = wall if side is None else wall[wall["run"] == side]
        self._spans: dict[tuple[int, int], int] = {}
        self._classes: dict[tuple[int, int, str], int] = {}
        columns = ("rank", "device_id", "wall_class", "time_ns", "span_ns")
        rows = zip(*(wall[name].tolist() for name in columns), strict=True)
        for rank, device_id, wall_class, time_ns, span_ns in rows:
            self._spans[rank, device_id] = int(span_ns)
            key = (rank, device_id, wall_class)
            self._classes[key] = self._classes.get(key, 0) + int(time_ns)

    @property
    def gpus(self) -> tuple[tuple[int, int], ...]:
        """Rank and device id of all GPUs, in the table's order."""
        return tuple(self._spans)

    def span_ns(self, rank: int, device_id: int) -> int:
        """Return the time from a GPU's first operation to its last one, after filters."""
        return self._spans.get((rank, device_id), 0)

    def class_ns(self, rank: int, device_id: int, *wall_classes: str) -> int:
        """Return the time of some classes on a GPU."""
        return sum(self._classes.get((rank, device_id, name), 0) for name in wall_classes)

    def gain(
        self,
        rank: int,
        device_id: int,
        gain_ns: float,
        wall_classes: Sequence[str],
        *,
        basis: str = "device",
        is_bound: bool = True,
        tail_pct: float | None = None,
    ) -> Gain:
        """Return what a fix could gain on a GPU: never more than the classes hold there.

        Args:
            rank: Of the GPU.
            device_id: Likewise.
            gain_ns: Time that the fix takes away; below 0 is none.
            wall_classes: See `Gain`.
            basis: See `Gain`.
            is_bound: See `Gain`.
            tail_pct: See `Gain`.
        """
        most_ns = self.class_ns(rank, device_id, *wall_classes)
        return Gain(
            gain_ns=max(min(round(gain_ns), most_ns), 0),
            span_ns=self.span_ns(rank, device_id),
            wall_classes=tuple(wall_classes),
            basis=basis,
            is_bound=is_bound,
            tail_pct=tail_pct,
        )


def gain_words(gain: Gain) -> str:
    """Return a gain as a line has it: `at most 5.32 ms a step, 30.0 %`.

    With a replay: `about 28.1 %, at most 5.32 ms a step, 30.0 %`.
    """
    sure = "at most" if gain.is_bound else "about"
    step_ns = gain.gain_step_ns
    time = format_ns(gain.gain_ns)
    if step_ns is not None:
        time = f"{format_ns(step_ns)} a {gain.step_unit}"
    reported = f"{sure} {time}, {format_percent(gain.gain_pct)}"
    if gain.replayed_pct is None:
        return reported
    return f"about {format_percent(gain.replayed_pct)}, {reported}"


def limits_words() -> str:
    """Return when a finding has which severity, in words."""
    limits = ", ".join(f"{name} from {least:g} %" for name, least in LIMITS_PCT.items())
    return f"{limits} of the GPU's span; {TAIL} from {TAIL_LIMIT_PCT:g} % of the worst step"


def largest(gains: Sequence[Gain]) -> Gain:
    """Return the gain with the largest share; there is at least one."""
    return max(gains, key=lambda gain: (gain.gain_pct, gain.gain_ns))
