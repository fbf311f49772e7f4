"""The numbers of a sentence, written into it and kept as fields of the finding that says it."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsys_llm.view.text import (
    counted,
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    format_value,
)


@dataclass(frozen=True)
class Numbers:
    """Numbers by name, each as it was given to the sentence.

    Attributes:
        fields: What `Finding.numbers` holds of them.
    """

    fields: dict[str, float] = field(default_factory=dict)

    def ns(self, name: str, value_ns: float) -> str:
        """Return a time in words, and keep it."""
        return format_ns(self._kept(name, value_ns))

    def percent(self, name: str, value_pct: float) -> str:
        """Return a share in words, and keep it."""
        return format_percent(self._kept(name, value_pct))

    def bytes(self, name: str, size_bytes: float) -> str:
        """Return a size in words, and keep it."""
        return format_bytes(self._kept(name, size_bytes))

    def count(self, name: str, n: float) -> str:
        """Return a count in words, and keep it."""
        return format_count(self._kept(name, n))

    def counted(self, name: str, n: int, noun: str, many: str | None = None) -> str:
        """Return a count with its noun, and keep it."""
        self._kept(name, n)
        return counted(n, noun, many)

    def value(self, name: str, value: float, unit: str) -> str:
        """Return a number with another unit, and keep it."""
        return format_value(self._kept(name, value), unit)

    def ratio(self, name: str, value: float) -> str:
        """Return a ratio in words, and keep it."""
        return f"{self._kept(name, value):.2f}"

    def _kept(self, name: str, value: float) -> float:
        self.fields[name] = value
        return value
