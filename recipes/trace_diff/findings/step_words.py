"""Times of two runs in words."""

from __future__ import annotations

from typing import Final

from nsys_llm.view.text import format_ns

_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def pair_words(before_ns: float, after_ns: float) -> str:
    """Return two times in one unit: `17.74 -> 19.98 ms`."""
    scale, unit = scale_of(max(abs(before_ns), abs(after_ns)))
    before, after = before_ns / scale, after_ns / scale
    digits = digits_of(max(abs(before), abs(after)))
    return f"{before:.{digits}f} -> {after:.{digits}f} {unit}"


def median_words(before_ns: float, after_ns: float) -> str:
    """Return two times in three figures each, as findings have them: `5.65 -> 8.41 us`."""
    before, after = format_ns(before_ns), format_ns(after_ns)
    unit = after.rpartition(" ")[2]
    return f"{before.removesuffix(f' {unit}')} -> {after}"


def scale_of(value_ns: float) -> tuple[float, str]:
    """Return the unit that suits a time, and how many ns it has."""
    return next(((scale, unit) for scale, unit in _UNITS if value_ns >= scale), _UNITS[-1])


def digits_of(value: float) -> int:
    """Return decimals for four figures, two at most."""
    return 2 if value < 100 else 1 if value < 1000 else 0
