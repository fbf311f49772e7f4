"""What a replay may change, as it is written: `category:gemm=0.8`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nsys_llm.core.errors import UsageError

#: What may change, and whether it is said of what.
CATEGORY: Final = "category"
KERNEL: Final = "kernel"
KERNELS: Final = "kernels"
COPIES: Final = "copies"
TRANSFER: Final = "transfer"
LAUNCHES: Final = "launches"
HOST: Final = "host"
DEVICE: Final = "device"
WAIT: Final = "wait"
RANK: Final = "rank"
MACHINE: Final = "machine"
#: Changes that name something.
NAMED: Final = (CATEGORY, KERNEL, KERNELS, WAIT, RANK, MACHINE)
#: Changes with a factor; `launches` has ns instead, the others nothing.
SCALED: Final = (CATEGORY, KERNEL, COPIES, TRANSFER, HOST, DEVICE)
#: Times of a longer run would be no 64-bit numbers. Ours.
_MOST_TIMES: Final = 1_000.0
_MOST_NS: Final = 1e15


@dataclass(frozen=True, order=True)
class ReplayChange:
    """One thing that is different.

    Attributes:
        name: Of what; "" where it is said of all.
        factor: By which lengths are multiplied; of `launches` the ns of each; 0 otherwise.
    """

    what: str
    name: str = ""
    factor: float = 0.0

    @property
    def text(self) -> str:
        """As it is written on the command line."""
        subject = f"{self.what}:{self.name}" if self.name else self.what
        if self.what == LAUNCHES:
            return f"{subject}={self.factor:.15g}ns"
        return f"{subject}={self.factor:.15g}" if self.what in SCALED else subject


def parse_change(text: str) -> ReplayChange:
    """Return the change that some words stand for.

    Raises:
        UsageError: They stand for none.
    """
    what, colon, rest = text.partition(":")
    subject, value = rest, ""
    if not colon:
        what, _, value = text.partition("=")
    elif what in SCALED:
        subject, _, value = rest.rpartition("=")
    known = what in NAMED if colon else what in (COPIES, TRANSFER, LAUNCHES, HOST, DEVICE)
    factor = 0.0 if what in (KERNELS, WAIT, RANK, MACHINE) else _number(what, value)
    if not known or bool(colon) != bool(subject) or factor is None:
        raise UsageError(
            f"--what-if {text!r} is none of: category:NAME=F, kernel:TEXT=F, copies=F, transfer=F, "
            f"host=F, device=F (F times as long, 0 to {_MOST_TIMES:g}), launches=Nns (whole ns), "
            "kernels:LEVER (its kernels as long as it usually leaves them), "
            "wait:API, rank:LABEL, machine:HOST."
        )
    return ReplayChange(what, subject, factor)


def unnamed(texts: Sequence[str]) -> dict[str, ReplayChange]:
    """Return changes by how they were typed, with `text-1`, ... for what they name."""
    changes = {text: parse_change(text) for text in texts}
    names = dict.fromkeys(change.name for change in changes.values() if change.name)
    labels = {name: f"text-{number}" for number, name in enumerate(names, start=1)}
    return {
        text: replace(change, name=labels.get(change.name, "")) for text, change in changes.items()
    }


def _number(what: str, value: str) -> float | None:
    """Return the factor of a change, of launches the ns; None where it is neither."""
    try:
        number = float(value.removesuffix("ns") if what == LAUNCHES else value) + 0.0
    except ValueError:
        return None
    most = _MOST_NS if what == LAUNCHES else _MOST_TIMES
    whole = what != LAUNCHES or (math.isfinite(number) and number.is_integer())
    return number if 0 <= number <= most and whole else None


def change_text(word: str) -> str:
    """Return a change as `ReplayChange.text` has it.

    Raises:
        UsageError: It is none.
    """
    return parse_change(word).text
