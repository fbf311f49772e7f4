"""The steps of a rank, and their windows on a device, as facts keep them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.step_names import GRAPH, PERIOD, whose_steps

#: Warm-up takes longer by so many times what later steps do at most, else it recurs; ours.
_DECAYS: Final = 2
#: Median steps from which on a step holds something else besides.
_LONGER_TIMES: Final = 1.5
#: An option of no command: name and number of the steps that are warm-up, by side, where ranks
#: differ in that.
AGREED: Final = "agreed_warmup"


@dataclass(frozen=True)
class SlowBegin:
    """The first steps of a rank that take far longer than is usual for their kind.

    Attributes:
        beyond_ns: By how much each of them takes longer.
        later_ns: The most by which a later step of those kinds does.
    """

    beyond_ns: tuple[int, ...] = ()
    later_ns: int = 0


def warmup_n(begins: Iterable[SlowBegin]) -> int:
    """Return how many of the first steps are warm-up, of all ranks or of none.

    Up to the last that is far slower than any later one, on whatever rank: a slow beginning decays.
    """
    every = list(begins)
    later_ns = max((begin.later_ns for begin in every), default=0)
    counts = (
        number
        for begin in every
        for number, beyond_ns in enumerate(begin.beyond_ns, start=1)
        if beyond_ns >= _DECAYS * later_ns
    )
    return max(counts, default=0)


@dataclass(frozen=True)
class StepKind:
    """What the steps of a rank are.

    Attributes:
        name: What all of them share, see `nsys_llm.facts.steps.steps.StepSpans`.
        source: How they were found.
        unrecorded_n: How many of them launched work that left no row.
        batch: What is in most of them, as their names tell: prompts, tokens that are generated, or
            both.
    """

    name: str
    unit: str
    source: str
    steps_n: int
    begin: SlowBegin = SlowBegin()
    unrecorded_n: int = 0
    batch: str | None = None

    @property
    def of_program(self) -> tuple[str, str | None] | None:
        """Whose steps they are, and what is in them; None where only kernels or none tell."""
        whose = None if self.unit in (GRAPH, PERIOD) else whose_steps(self.name)
        return None if whose is None else (whose, self.batch)


@dataclass(frozen=True)
class OtherSteps:
    """Ranges that repeat beside the steps of a rank, as those of an evaluation.

    Attributes:
        name: With # for running numbers.
        length_ns: From the first operation of one to the end of its last, median.
    """

    name: str
    steps_n: int
    length_ns: int


@dataclass(frozen=True)
class DeviceSteps:
    """The steps of a device.

    Attributes:
        window_ns: Shape (steps, 2), windows on the device, the profile's clock.
        complete: Shape (steps,), which are full, and cut by no filter.
        has_steps: Whether they are steps: other windows stand for them where there are none.
        warmup_n: How many of the first are warm-up.
    """

    window_ns: IntArray
    complete: npt.NDArray[np.bool_]
    has_steps: bool
    warmup_n: int = field(default=0, kw_only=True)

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Which are complete and no warm-up."""
        return np.asarray(self.complete & (np.arange(self.complete.size) >= self.warmup_n))

    @property
    def whole_ns(self) -> IntArray:
        """Lengths of the whole ones."""
        return np.asarray(np.diff(self.window_ns[self.whole], axis=1)[:, 0])

    @property
    def longer(self) -> npt.NDArray[np.bool_]:
        """Which of the whole ones hold something else besides, as an evaluation or a pause."""
        return np.asarray(self.whole_ns > _LONGER_TIMES * np.median(self.whole_ns))

    @property
    def is_uneven(self) -> bool:
        """Whether any does."""
        return bool(self.whole.any() and self.longer.any())

    @property
    def worst_ns(self) -> tuple[int, int] | None:
        """Where the longest whole one begins and ends, the first of equals; None without one."""
        if not self.whole.any():
            return None
        start_ns, end_ns = self.window_ns[self.whole][self.whole_ns.argmax()].tolist()
        return start_ns, end_ns
