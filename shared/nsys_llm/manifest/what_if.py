"""What a replay may change, as it is written: `category:gemm=0.8`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nsys_llm.core.errors import UsageError

#: What may change, and whether it is said of what.
CATEGORY: Final = "category"
KERNEL: Final = "kernel"
COPIES: Final = "copies"
TRANSFER: Final = "transfer"
LAUNCHES: Final = "launches"
HOST: Final = "host"
DEVICE: Final = "device"
WAIT: Final = "wait"
RANK: Final = "rank"
#: Changes that name something.
NAMED: Final = (CATEGORY, KERNEL, WAIT, RANK)
#: Changes with a factor; `launches` has ns instead, `wait` and `rank` nothing.
SCALED: Final = (CATEGORY, KERNEL, COPIES, TRANSFER, HOST, DEVICE)


@dataclass(frozen=True, order=True)
class Change:
    """One thing that is different.

    Attributes:
        what: One of the words above.
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
            return f"{subject}={self.factor:g}ns"
        return f"{subject}={self.factor:g}" if self.what in SCALED else subject


def parse_change(text: str) -> Change:
    """Return the change that some words stand for.

    Raises:
        UsageError: They stand for none.
    """
    subject, _, value = text.rpartition("=") if "=" in text else (text, "", "")
    what, _, name = subject.partition(":")
    try:
        factor = float(value.removesuffix("ns")) if value else 0.0
    except ValueError:
        factor = -1.0
    known = what in NAMED if name else what in (COPIES, TRANSFER, LAUNCHES, HOST, DEVICE)
    if not known or factor < 0 or bool(value) != (what not in (WAIT, RANK)):
        raise UsageError(
            f"--what-if {text!r} is none of: category:NAME=F, kernel:TEXT=F, copies=F, transfer=F, "
            "host=F, device=F (F times as long), launches=Nns, wait:API, rank:LABEL."
        )
    return Change(what, name, factor)


def change_text(word: str) -> str:
    """Return a change as `Change.text` has it.

    Raises:
        UsageError: It is none.
    """
    return parse_change(word).text
