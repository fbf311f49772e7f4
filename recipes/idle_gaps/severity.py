"""How bad a share of the window is that is lost to one kind of idle time."""

from __future__ import annotations

from typing import Final

__all__ = ["HIGH_PCT", "LOW_PCT", "MEDIUM_PCT", "severity_of"]

# nsys-llm-explainer 0.1.0 (heuristics.py) reports idle time of all causes together: medium from
# 20 %, high from 40 %. Here a cause stands for itself: half of that is high, and a step that is
# 0.3 % faster is worth a line; both ours.
HIGH_PCT: Final = 20.0
MEDIUM_PCT: Final = 5.0
LOW_PCT: Final = 0.3


def severity_of(share_pct: float) -> str | None:
    """Return the severity of losing a share of the window; None if it is not worth a word."""
    steps = ((HIGH_PCT, "high"), (MEDIUM_PCT, "medium"), (LOW_PCT, "low"))
    return next((severity for least, severity in steps if share_pct >= least), None)
