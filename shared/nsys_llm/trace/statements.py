"""What is to be known of a capture before anything in it is judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Statement:
    """One thing that a profile holds otherwise than a whole recording of one rank does.

    Attributes:
        kind: What it is; the kinds, and their sentences: `nsys_llm.report.run_texts`.
        count_n: How many: launches, rows, messages, ...
        of_n: How many there are of that in all; None where there is no such number.
        process: Its globalPid; None where it is about the whole profile.
        device_id: The CUDA device; None where it is about all of a process.
        start_ns: Where it begins on the profile's clock; None where it has no time.
        name: What it is about beside these, such as a table of the export.
    """

    kind: str
    count_n: int
    of_n: int | None = None
    process: int | None = None
    device_id: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    name: str | None = None
