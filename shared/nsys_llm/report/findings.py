"""Findings: what a run wants its reader to know, each with the evidence for it.

A finding is made from tables alone, and never without evidence. Its texts are prose in which names
out of a trace stand in backticks (see `nsys_llm.view.text.quoted`); every renderer escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.core.errors import ManifestError

#: Most severe first. A note is worth knowing, and nothing to act on.
SEVERITIES: Final = ("high", "medium", "low", "note")

#: Rules on what a run does not hold: they are read first, because they qualify all others.
INCOMPLETE: Final = ("missing_ranks", "no_gpu_work", "opaque_graphs")

#: What a finding can be about.
SCOPES: Final = ("run", "rank", "device", "kernel", "category", "api", "copy", "phase")


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        rule: Name of the rule that found it, the same in every run: `dominant_kernel`.
        severity: One of `SEVERITIES`.
        scope: One of `SCOPES`.
        title: The finding in one line, without a full stop.
        evidence: The numbers, with units, in sentences.
        tables: Tables in which those numbers stand.
        recommendation: What to do next, in one or two sentences.
        rank: Which rank, where it is about one.
        device_id: Which device, where it is about one.
        name: Which kernel, category, API function or phase, as the tables have it.
        window_ns: Where to look: start and end in the clock of the rank's report, as
            `--filter-time` takes them.
        window_shows: What there is to see in that window, in few words.
        capture: What to record next time to know more: flags of `nsys profile`, and nothing else,
            so that they can be pasted.
        impact_ns: GPU or host time that it is about; orders the findings of one severity.
    """

    rule: str
    severity: str
    scope: str
    title: str
    evidence: str
    tables: tuple[str, ...]
    recommendation: str
    rank: int | None = None
    device_id: int | None = None
    name: str | None = None
    window_ns: tuple[int, int] | None = None
    window_shows: str | None = None
    capture: str | None = None
    impact_ns: int = 0

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES or self.scope not in SCOPES:
            raise ManifestError(f"finding {self.rule}: severity or scope is not one that there is.")
        if not (self.title and self.evidence and self.tables and self.recommendation):
            raise ManifestError(f"finding {self.rule}: a finding never fires without evidence.")
        if self.capture is not None and not all(
            word.startswith("--") for word in self.capture.split(" ")
        ):
            raise ManifestError(f"finding {self.rule}: what to record is more than flags.")


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order in which to read them.

    Most severe first; of one severity those on what is missing, then those about most time.
    """
    return sorted(
        findings,
        key=lambda one: (
            SEVERITIES.index(one.severity),
            one.rule not in INCOMPLETE,
            -one.impact_ns,
            one.rule,
            -1 if one.rank is None else one.rank,
            one.name or "",
        ),
    )


def severity_counts(findings: Sequence[Finding]) -> str:
    """Return how many findings there are of each severity: `1 high, 4 notes`."""
    counts = {name: sum(one.severity == name for one in findings) for name in SEVERITIES}
    # The others are adjectives.
    words = {"note": "note" if counts["note"] == 1 else "notes"}
    return ", ".join(f"{n} {words.get(name, name)}" for name, n in counts.items() if n)


def finding_columns(findings: Sequence[Finding]) -> dict[str, list[Any]]:
    """Return the columns of the table `findings`, in the given order."""
    windows = [one.window_ns or (None, None) for one in findings]
    plain = (
        "severity",
        "rule",
        "scope",
        "rank",
        "device_id",
        "name",
        "title",
        "evidence",
        "recommendation",
        "capture",
        "impact_ns",
    )
    return {
        **{name: [getattr(one, name) for one in findings] for name in plain},
        "tables": [", ".join(one.tables) for one in findings],
        "window_start_ns": [start for start, _ in windows],
        "window_end_ns": [end for _, end in windows],
    }
