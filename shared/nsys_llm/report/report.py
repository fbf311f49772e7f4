"""One report as data: what the Markdown, the notebook, the terminal and report.json all tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from nsys_llm.manifest.declared import Section
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.report.findings import CAPTURE, Finding, finding_record, steps_words
from nsys_llm.report.ncu import NCU_LABEL
from nsys_llm.report.price import price_words
from nsys_llm.report.screen import Screen
from nsys_llm.report.wall_line import WallLine
from nsys_llm.view.text import format_ns, quoted, unquoted

#: Renders a text.
Prose = Callable[[str], str]


@dataclass(frozen=True)
class Unrecorded:
    """What reports could not show.

    Attributes:
        lost: In words; with how many reports lack it, unless all do.
        record: Flags of `nsys profile` that would have shown it, or a clause that says what would.
    """

    lost: str
    record: str

    @property
    def text(self) -> str:
        """Both as prose."""
        return f"{self.lost}: {quoted(self.record) if self.record[0] == '-' else self.record}"


@dataclass(frozen=True)
class Report:
    """What a run tells. All texts are prose with names out of a trace in backticks.

    Attributes:
        answer: The recipe's question answered, in two sentences.
        findings: In the order in which to read them.
        facts: Of the capture, as (label, text).
        caveats: What makes the numbers incomplete, or other than those of an unprofiled run.
        unrecorded: What the capture could not show.
        wall: Where the wall-clock time went, and what bounds it; a line of each side.
        screen: Of an overview, what its first screen shows besides; None of others.
    """

    manifest: Manifest
    answer: str
    findings: tuple[Finding, ...]
    facts: tuple[tuple[str, str], ...]
    caveats: tuple[str, ...]
    unrecorded: tuple[Unrecorded, ...]
    sections: tuple[Section, ...]
    wall: tuple[WallLine, ...] = ()
    screen: Screen | None = None

    @property
    def lead_sections(self) -> tuple[Section, ...]:
        """The sections to read first."""
        return tuple(section for section in self.sections if section.lead)

    @property
    def opening_sections(self) -> tuple[Section, ...]:
        """The sections whose figures stand ahead of the findings."""
        return tuple(section for section in self.sections if section.opening)

    @property
    def beside_sections(self) -> tuple[Section, ...]:
        """The sections whose figures stand below a finding."""
        return tuple(section for section in self.sections if section.beside)

    @property
    def other_sections(self) -> tuple[Section, ...]:
        """The sections that every capture has beside those."""
        return tuple(
            section
            for section in self.sections
            if not (section.lead or section.opening or section.beside or section.extra)
        )

    @property
    def extra_sections(self) -> tuple[Section, ...]:
        """The sections that few captures have."""
        return tuple(section for section in self.sections if section.extra)

    @property
    def opportunities(self) -> list[Finding]:
        """The findings on time, in order."""
        return [finding for finding in self.findings if finding.kind != CAPTURE]

    @property
    def notes(self) -> list[tuple[str, list[str]]]:
        """What to know of the capture's numbers, in lists with a title; none is empty."""
        listed = [
            ("Read the numbers with this in mind:", list(self.caveats)),
            ("Not recorded; these flags record it:", [item.text for item in self.unrecorded]),
        ]
        return [(title, texts) for title, texts in listed if texts]

    @property
    def remarks(self) -> list[Finding]:
        """The findings on the capture, in order."""
        return [finding for finding in self.findings if finding.kind == CAPTURE]


#: Findings that a page shows; the others are counted.
MOST_SHOWN: Final = 8
#: Heading of the sections that are not to be read first.
MORE_HEADING: Final = "More tables and figures"
#: Heading of those that few captures have.
EXTRA_HEADING: Final = "Extras of this capture"
#: Below the heading of findings that have a gain.
NOT_ADDITIVE: Final = "Gains are wall-clock time of one GPU; they overlap and do not add up."


def report_record(report: Report) -> dict[str, Any]:
    """Return the report as report.json holds it."""
    return {
        "title": report.manifest.title,
        "question": report.manifest.question,
        "answer": report.answer,
        "wall": [line.text for line in report.wall],
        "findings": [finding_record(finding) for finding in report.findings],
        "facts": {label: unquoted(text) for label, text in report.facts},
        "caveats": list(report.caveats),
        "unrecorded": [asdict(item) for item in report.unrecorded],
    }


def gain_text(finding: Finding) -> str | None:
    """Return what a finding gains and on which GPU; None where nothing is gained."""
    price = finding.price
    if price is None or finding.kind == CAPTURE:
        return None
    rank = "" if finding.rank is None else f" of rank {finding.rank}"
    device = "one GPU" if finding.device_id is None else f"GPU {finding.device_id}"
    return f"{price_words(price)} of {format_ns(price.span_ns)} on {device}{rank}"


def where_to_look(finding: Finding) -> str | None:
    """Return the rank and the steps or time of a finding, as options of a run; None if none."""
    of_all = finding.steps is not None and finding.cause is not None and finding.cause.rank is None
    parts = [] if finding.rank is None or of_all else [f"--ranks {finding.rank}"]
    if finding.steps is not None:
        parts.append(f"--steps {steps_words(finding.steps)}")
    elif finding.window_ns is not None:
        start_ns, end_ns = finding.window_ns
        parts.append(f"--filter-time {start_ns}/{end_ns}")
    if not parts:
        return None
    return quoted(" ".join(parts)) + (f", {finding.window_shows}" if finding.window_shows else "")


def remark_text(finding: Finding, prose: Prose, code: Prose) -> str:
    """Return what stands behind the title of a remark; see `finding_parts`."""
    text = f"{prose(finding.details)} {prose(finding.recommendation)}"
    if finding.record:
        text += f" Record next time: {code(finding.record)}"
    return f"{text} {NCU_LABEL}: {code(finding.ncu)}" if finding.ncu else text


def finding_parts(
    finding: Finding, prose: Prose, code: Prose, tables: str, link: str = ""
) -> list[tuple[str, str]]:
    """Return what stands below the title of a finding, as (label, text).

    Args:
        prose: Renders a text with names in backticks.
        code: Renders what is to be copied.
        tables: Where its numbers stand.
        link: Leads to where it is in a figure.
    """
    gain, where = gain_text(finding), where_to_look(finding)
    parts = [
        ("Could gain", gain and prose(gain)),
        ("Evidence", f"{prose(finding.details)} ({tables})"),
        ("Where", "; ".join(filter(None, [where and prose(where), link]))),
        ("To do", prose(finding.recommendation)),
        ("Record next time", finding.record and code(finding.record)),
        (NCU_LABEL, finding.ncu and code(finding.ncu)),
    ]
    return [(label, text) for label, text in parts if text]
