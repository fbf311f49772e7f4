"""Times typed by people."""

from __future__ import annotations

import re
from typing import Final

from nsys_llm.core.errors import UsageError

_NS_PER_UNIT: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_TIME_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)")


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds that a person typed.

    Args:
        text: Plain nanoseconds (`1500`), or numbers with units in any order that add up
            (`5s`, `1.5ms`, `1s2ms3us4ns`). As `nsys stats --filter-time` takes them.

    Raises:
        UsageError: The text is neither.
    """
    if text.isdecimal():
        return int(text)
    parts = _TIME_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(
            f"'{text}' is not a time; write nanoseconds, or like 5s, 1.5ms, 1s2ms3us4ns."
        )
    return sum(_scaled_ns(number, unit) for number, unit in parts)


def _scaled_ns(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    scale = _NS_PER_UNIT[unit]
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
