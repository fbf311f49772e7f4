"""Units that columns may carry, times typed by people, and times shown to people.

The only place where nanoseconds turn into anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from nsys_llm.errors import UsageError

__all__ = ["COLUMN_SUFFIXES", "UNITS", "format_bytes", "format_ns", "parse_duration_ns"]

#: Units a manifest may give to a column or an option.
UNITS: Final = frozenset(
    {"ns", "bytes", "%", "GB/s", "1/s", "count", "ratio", "threads", "Hz", "s", "score"}
)

#: The end of a column's name that its unit demands, where the unit demands one.
COLUMN_SUFFIXES: Final = {"ns": "_ns", "bytes": "_bytes", "%": "_pct"}

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


def format_ns(duration_ns: float) -> str:
    """Return a duration with three significant digits and the unit that suits it."""
    return _scaled(duration_ns, (("s", 1e9), ("ms", 1e6), ("us", 1e3)), "ns")


def format_bytes(size_bytes: float) -> str:
    """Return a size with three significant digits in decimal units (1 GB = 10^9 bytes)."""
    return _scaled(size_bytes, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)), "B")


def _scaled(number: float, units: Sequence[tuple[str, float]], smallest: str) -> str:
    for unit, scale in units:
        if abs(number) >= scale:
            scaled = number / scale
            decimals = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            digits = f"{scaled:,.{decimals}f}"
            return f"{digits.rstrip('0').rstrip('.') if decimals else digits} {unit}"
    return f"{number:.0f} {smallest}"
