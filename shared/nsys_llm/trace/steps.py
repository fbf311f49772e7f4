"""What is kept of a rank's steps: what they are, and their windows on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class StepKind:
    """What the steps of a rank are.

    Attributes:
        name: What all of them share, see `nsys_llm.analyses.steps.steps.StepSpans`.
        unit: step, layer, graph or period.
        source: How they were found.
    """

    name: str
    unit: str
    source: str
    steps_n: int


@dataclass(frozen=True)
class DeviceSteps:
    """The steps of a device.

    Attributes:
        window_ns: Shape (steps, 2), windows on the device, the profile's clock.
        whole: Shape (steps,), which are full, no warm-up, and cut by no filter.
        has_steps: Whether they are steps: other windows stand for them where there are none.
    """

    window_ns: IntArray
    whole: npt.NDArray[np.bool_]
    has_steps: bool

    @property
    def whole_ns(self) -> IntArray:
        """Lengths of the whole ones."""
        return np.asarray(np.diff(self.window_ns[self.whole], axis=1)[:, 0])

    @property
    def worst_ns(self) -> tuple[int, int] | None:
        """Where the longest whole one begins and ends, the first of equals; None without one."""
        if not self.whole.any():
            return None
        start_ns, end_ns = self.window_ns[self.whole][self.whole_ns.argmax()].tolist()
        return start_ns, end_ns
