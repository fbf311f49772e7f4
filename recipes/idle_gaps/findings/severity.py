"""How bad a share of the window is that is lost to one kind of idle time."""

from __future__ import annotations

from typing import Final

# nsys-llm-explainer 0.1.0 (heuristics.py) reports idle time of all causes together: medium from
# 20 %, high from 40 %. Here a cause stands for itself: half of that is high, and a quarter medium.
HIGH_PCT: Final = 20.0
MEDIUM_PCT: Final = 5.0
#: nsys-ai 0.3.0 takes a change of less between two runs for noise: nobody could show the gain.
LOW_PCT: Final = 2.0
#: A call that need not be there is worth a line before its cost is; ours.
NOTE_PCT: Final = 0.3


def severity_of(share_pct: float, *, avoidable: bool = False) -> str | None:
    """Return the severity of losing a share of the window; None if it is not worth a word.

    Args:
        share_pct: 0 to 100.
        avoidable: Whether it is lost in calls that need not be there.
    """
    steps = [(HIGH_PCT, "high"), (MEDIUM_PCT, "medium"), (LOW_PCT, "low")]
    if avoidable:
        steps.append((NOTE_PCT, "note"))
    return next((severity for least, severity in steps if share_pct >= least), None)
