"""A report in one screen of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from nsys_llm.manifest.declared import Section
from nsys_llm.report.findings import Finding, severity_counts
from nsys_llm.report.price import price_words
from nsys_llm.report.report import MOST_SHOWN, Report
from nsys_llm.report.run_texts import KINDS
from nsys_llm.report.wall_line import WallLine, WallPart
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, IDLE
from nsys_llm.view.results import Results
from nsys_llm.view.tables import cells, headings
from nsys_llm.view.text import counted, shortened, spans, told_apart

_MOST_ROWS: Final = 8
_FEW_ROWS: Final = 3
_MOST_FACTS: Final = 3
#: Of one finding, where all have room.
_MOST_TITLE_LINES: Final = 2
_MOST_ANSWER_LINES: Final = 6
_MOST_LIMIT_LINES: Final = 4
#: What the command prints below: a blank line, where the results are, what to run next, the prompt.
BELOW: Final = 5
#: Of a table: a blank line, its title, its headings, and one row.
_LEAST_TABLE: Final = 4
#: Parts of the wall split are told together below this, before the insides of others are left out.
_SOME_PCT: Final = 5.0
#: From this on classes that are told as long as a line holds them.
_LITTLE_PCT: Final = 2.0
_LASTING: Final = (COMMUNICATION, IDLE)
WIDTH: Final = 80
HEIGHT: Final = 24
_NAME_WIDTH: Final = 44
_LEAST_NAME_WIDTH: Final = 16


def summary_lines(
    report: Report, results: Results, width: int = WIDTH, height: int = HEIGHT
) -> list[str]:
    """Return the lines: the answer, the findings, and the rows that the manifest chose.

    Args:
        height: Of the terminal, in lines; what is printed below the summary fits in too.
    """
    width, height = max(60, min(width, 120)), max(height, HEIGHT)
    notes_n = len(report.remarks) + len(report.caveats) + len(report.unrecorded)
    said = (
        f"In the report: {counted(notes_n, 'note')} on what the capture does not hold, or distorts."
    )
    notes = [said] if notes_n else []
    head, answer = _head_lines(report, width), answer_lines(report.answer, width)
    # Of two runs, which one is faster is what a reader looks for first.
    first, second = (answer, head) if report.manifest.sided else (head, answer)
    lines = [*limit_lines(report, width), *first, "", *second]
    shown = [
        section
        for section in report.sections
        if section.summary and len(results.table(section.table))
    ]
    left_n = height - BELOW - len(lines) - len(notes)
    least_table = _LEAST_TABLE if shown else 0
    lines += ["", *_finding_lines(report, width, left_n - 1 - least_table)]
    rows_n = _MOST_ROWS
    for section in shown:
        # A blank line, the title and the headings.
        rows_n = min(rows_n, height - BELOW - len(notes) - len(lines) - 3)
        if rows_n < 1:
            break
        lines += ["", f"{section.title}:", *_table_lines(section, results, width, rows_n)]
        # The first table is what the recipe is about.
        rows_n = _FEW_ROWS
    return lines + notes


def limit_lines(report: Report, width: int) -> list[str]:
    """Return what limits all that can be said of the capture, with what follows and what to do."""
    limiting = (it for it in report.findings if it.rule in KINDS and KINDS[it.rule].limits)
    finding = next(limiting, None)
    if finding is None or report.answer.startswith(finding.title):
        return []
    text = f"{finding.title}: {KINDS[finding.rule].follows}. {finding.recommendation}"
    return wrapped(plain(text), width, "", most=_MOST_LIMIT_LINES)


def answer_lines(answer: str, width: int, most: int = _MOST_ANSWER_LINES) -> list[str]:
    """Return the first line of an answer, cut if too long, and the others that fit whole."""
    first, *others = answer.splitlines()
    lines = wrapped(plain(first), width, "", most=most)
    for line in others:
        more = wrapped(plain(line), width, "")
        if len(lines) + len(more) > most:
            break
        lines += more
    return lines


def _fact_line(report: Report, width: int) -> list[str]:
    line = ""
    for label, text in report.facts[:_MOST_FACTS]:
        longer = f"{line}; {label}: {plain(text)}" if line else f"  {label}: {plain(text)}"
        if not line or len(longer) <= width:
            line = longer
    return [shortened(line, width)] if line else []


def _head_lines(report: Report, width: int) -> list[str]:
    """Return the title, the facts, and the wall split in at most two lines."""
    title, several = report.manifest.title, len(report.wall) > 1
    words = [line.bound.word if several else line.bound.text for line in report.wall]
    bound = " -> ".join(dict.fromkeys(words))
    beside = len(title) + 2 + len(bound) <= width
    lines = [f"{title}{bound:>{width - len(title)}}" if bound and beside else title]
    lines += _fact_line(report, width)
    for line in report.wall:
        lines += fitted_parts(line, width, 1 if several else 2)
    return lines if beside else [*lines, f"  {bound}"]


def fitted_parts(line: WallLine, width: int, most_n: int) -> list[str]:
    """Return the wall split in some lines, broken between parts; no number is ever cut."""
    group = f" of {line.group}" if line.group else ""
    head = f"  {line.side}: " if line.side else f"  wall{', mean GPU' * (line.gpus_n > 1)}{group}: "
    lines: list[str] = []
    for parts in _shorter(line.classes if line.side else line.parts):
        lines = _in_lines(head, [part.text for part in parts], width)
        if len(lines) <= most_n:
            break
    return lines


def _shorter(parts: Sequence[WallPart]) -> Iterator[Sequence[WallPart]]:
    """Yield parts, each time with less: the least together, fewer insides, then more together.

    How long GPUs communicate and idle is told as long as a line holds it: they are what the bound
    is compared with, and many kinds of work that are less together may each be more. Yet what most
    of the largest is goes before a little of them.
    """
    insides = [part for part in parts if part.inside]
    ways = [(some, _SOME_PCT, _LITTLE_PCT) for some in (insides, insides[:1])]
    ways += [(insides[:1], _SOME_PCT, _SOME_PCT), ([], 100.0, _LITTLE_PCT)]
    for shown, most_pct, lasting_pct in ways:
        some = [part if part in shown else replace(part, inside="") for part in parts]
        yield some
        for merged_n in range(2, len(parts)):
            few = _together(some, merged_n, lasting_pct)
            if few[-1].share_pct < most_pct:
                yield few


def _together(parts: Sequence[WallPart], merged_n: int, lasting_pct: float) -> list[WallPart]:
    """Return parts of which the least are one, at the end; what is to last goes last."""
    most_pct = max(part.share_pct for part in parts)

    def lasts(part: WallPart) -> tuple[bool, float]:
        lasting = part.label in _LASTING and part.share_pct >= lasting_pct
        return lasting or part.share_pct == most_pct, part.share_pct

    merged = sorted(parts, key=lasts)[:merged_n]
    rest = WallPart("others", sum(part.share_pct for part in merged))
    return [*(part for part in parts if part not in merged), rest]


def _in_lines(head: str, texts: Sequence[str], width: int) -> list[str]:
    lines = [head + texts[0]]
    for text in texts[1:]:
        if len(lines[-1]) + len(text) + 3 <= width:
            lines[-1] += f" | {text}"
        else:
            lines.append(f"  | {text}")
    return lines


def _finding_lines(report: Report, width: int, most_n: int) -> list[str]:
    """Return the findings that fit into `most_n` lines, and how many there are."""
    findings = report.opportunities
    if not findings:
        return ["Findings: none by the rules of this recipe."]
    whole = [_item_lines(finding, width, _MOST_TITLE_LINES) for finding in findings[:MOST_SHOWN]]
    gains = any(finding.price is not None for finding in findings)
    what = "Findings and what a fix could gain (not additive)" if gains else "Findings"
    head = f"{what}: {severity_counts(findings)}"
    lines = [head, *(line for item in whole for line in item)]
    if len(whole) == len(findings) and len(lines) <= most_n:
        return lines
    lines, shown_n = lines[:1], 0
    for finding in findings[:MOST_SHOWN]:
        # A line is kept for the number of the others.
        kept = shown_n + 1 < len(findings)
        if len(lines) + 1 + kept > most_n:
            break
        lines += _item_lines(finding, width, 1)
        shown_n += 1
    more = len(findings) - shown_n
    return [*lines, f"  and {more} more in the report"] if more > 0 else lines


def _item_lines(finding: Finding, width: int, most: int) -> list[str]:
    """Return a finding in some lines: its gain, and its title as far as there is room."""
    gain = "" if finding.price is None else f"{price_words(finding.price)}: "
    head = f"{finding.severity or finding.kind:<6} {gain}"
    titles = (plain(finding.title, n) for n in range(_NAME_WIDTH, _LEAST_NAME_WIDTH - 1, -1))
    fits = (title for title in titles if len(title) <= width - len(head) - 2)
    text = head + next(fits, plain(finding.title))
    return wrapped(text, width, "  ", hanging="         ", most=most)


def _table_lines(section: Section, results: Results, width: int, rows_n: int) -> list[str]:
    frame, fields = results.table(section.table), results.fields(section.table)
    rows = [
        [whole for _, whole in row]
        for row in cells(frame, fields, section.summary, rows_n, section.by)
    ]
    columns = list(zip(headings(fields, section.summary), *rows, strict=True))
    right = [fields[name].numeric for name in section.summary]
    natural = [max(map(len, told_apart(column, _NAME_WIDTH))) for column in columns]
    shown = [
        # Numbers are never cut.
        [text.rjust(n) for text in column]
        if numeric
        else [text.ljust(n) for text in told_apart(column, n)]
        for column, n, numeric in zip(columns, _fitted(natural, right, width), right, strict=False)
    ]
    return ["  " + "  ".join(row).rstrip() for row in zip(*shown, strict=True)]


def _fitted(widths: list[int], right: list[bool], width: int) -> list[int]:
    """Return widths that fit a line: names give way, then whole columns at the end; no number."""
    while sum(widths) + 2 * len(widths) > width:
        names = [i for i, numeric in enumerate(right[: len(widths)]) if not numeric]
        widest = max(names, key=lambda i: widths[i], default=0)
        if not names or widths[widest] <= _LEAST_NAME_WIDTH:
            widths = widths[:-1]
        else:
            widths[widest] -= 1
    return widths


def plain(text: str, length: int = _NAME_WIDTH) -> str:
    """Return prose without its backticks, names cut to what a line can hold."""
    return "".join(shortened(part, length) if code else part for code, part in spans(text))


def wrapped(
    text: str, width: int, indent: str, hanging: str | None = None, most: int | None = None
) -> list[str]:
    """Return lines of text, cut between words.

    Args:
        hanging: Of the others; None: the same.
    """
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" ...",
    )
