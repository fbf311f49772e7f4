"""The first screen of an overview: what bounds the job, and what to fix first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.price import TAIL, Price, bound_words, sure_word
from nsys_llm.report.report import MOST_SHOWN, Report
from nsys_llm.report.screen import Scale, Screen
from nsys_llm.report.summary import (
    BELOW,
    HEIGHT,
    WIDTH,
    answer_lines,
    fitted_parts,
    limit_lines,
    plain,
    wrapped,
)
from nsys_llm.view.text import (
    counted,
    format_ns,
    format_percent,
    quoted,
    sentences,
    shortened,
    spans,
)

#: Lines of a verdict, of one opportunity, of the advice, and of the remark below them.
_MOST_LINES: Final = {"verdict": 6, "item": 2, "advice": 3, "trust": 2}
#: Characters of a name.
_LEAST_NAME, _MOST_NAME = 8, 44
_TAIL: Final = "in rare steps"


def first_screen_lines(
    report: Report, screen: Screen, width: int = WIDTH, height: int = HEIGHT
) -> list[str]:
    """Return the lines: facts and bound, the wall split, opportunities, and what to trust.

    Args:
        height: Of the terminal, in lines; what is printed below the summary fits in too.
    """
    width, height = max(60, min(width, 120)), max(height, HEIGHT)
    limits = limit_lines(report, width)
    lines = [*limits, *_title(report, screen, width)]
    if screen.verdict:
        lines += answer_lines(screen.verdict, width, _MOST_LINES["verdict"])
    for line in report.wall:
        lines += fitted_parts(line, width, 2)
    for text in screen.lines:
        lines += wrapped(plain(text), width, "  ", hanging="    ")
    trust = []
    if screen.trust and not limits:
        text = f"trust  {plain(screen.trust).rstrip('.')}"
        trust = wrapped(text, width, "", hanging=" " * 7, most=_MOST_LINES["trust"])
        rest_n = len(report.caveats) + len(report.remarks) - 1
        if rest_n > 0:
            last = f"{trust.pop()} ({counted(rest_n, 'more note')} in the report)"
            trust += wrapped(last, width, "", hanging=" " * 7)
    left_n = height - BELOW - len(lines) - len(trust)
    return [*lines, *_opportunities(report, screen, width, left_n), *trust]


def _title(report: Report, screen: Screen, width: int) -> list[str]:
    """Return what was read with its facts, and the bound at the right; the name gives way first.

    Facts that the bound leaves no room for stand on a line below, whole.
    """
    bound = " -> ".join(dict.fromkeys(line.bound.word for line in report.wall))
    # At least two blanks before the bound.
    facts, name, room_n = plain(screen.facts), plain(quoted(screen.subject)), width - len(bound)
    left_n = room_n - len(facts) - 4
    if left_n >= min(len(name), _LEAST_NAME):
        return [f"{f'{shortened(name, left_n)}: {facts}'.ljust(room_n)}{bound}".rstrip()]
    first, *parts = facts.split(", ")
    head = f"{shortened(name, max(room_n - len(first) - 5, _LEAST_NAME))}: {first}"
    while parts and len(head) + len(parts[0]) + 5 <= room_n:
        head += f", {parts.pop(0)}"
    head += "," if parts else ""
    return [f"{head.ljust(room_n)}{bound}", *wrapped(", ".join(parts), width, "  ")]


def _opportunities(report: Report, screen: Screen, width: int, most_n: int) -> list[str]:
    findings = [
        opportunity for opportunity in report.opportunities if opportunity.price is not None
    ]
    if not findings:
        return ["", *wrapped(plain(report.answer), width, "", most=most_n - 1)]
    scale = Scale.of(screen.whole_ns)
    whole = f"{scale.unit} of {scale.number(screen.whole_ns)} {screen.whole}"
    lines = [f"could gain (not additive), {whole}"]
    gains = [
        _price_words(finding.price, screen, scale, is_own=screen.is_of(finding.rank))
        for finding in findings
        if finding.price is not None
    ]
    widths = [max(map(len, column)) for column in zip(*gains, strict=True)]
    heads = [
        f"{number:>2} {sure:<{widths[0]}} {time:>{widths[1]}}  {share:>{widths[2]}}  "
        for number, (sure, time, share) in enumerate(gains, 1)
    ]
    return lines + _fitted(findings, heads, width, most_n - len(lines))


def _price_words(
    price: Price, screen: Screen, scale: Scale, *, is_own: bool
) -> tuple[str, str, str]:
    if price.severity == TAIL and not price.gain_ns:
        return "tail", "-", format_percent(price.tail_pct)
    if not price.is_known:
        return sure_word(price), "-", "-"
    if screen.by_step and price.is_rare:  # of the run
        return sure_word(price), format_ns(price.gain_ns), format_percent(price.gain_pct)
    gain_ns = price.gain_pct / 100.0 * screen.whole_ns if screen.by_step else price.gain_ns
    # A step of another group is of another length.
    time = scale.number(gain_ns) if is_own else "-"
    return sure_word(price), time, format_percent(price.gain_pct)


def _fitted(
    findings: Sequence[Finding], heads: Sequence[str], width: int, most_n: int
) -> list[str]:
    """Return as many opportunities as fit; where there is room, in two lines each, and advice."""
    shown = list(zip(findings[:MOST_SHOWN], heads, strict=False))
    advice = _sentences(f"first: {findings[0].recommendation}", width)
    for each_n, below in ((_MOST_LINES["item"], advice), (1, advice), (1, [])):
        items = [_item_lines(finding, head, width, each_n) for finding, head in shown]
        more = _more(len(findings) - len(items))
        lines = [*(line for item in items for line in item), *more, *below]
        if len(lines) <= most_n:
            return lines
    shown_n = max(1, most_n - 1)
    return [*(item[0] for item in items[:shown_n]), *_more(len(findings) - shown_n)]


def _item_lines(finding: Finding, head: str, width: int, most_n: int) -> list[str]:
    """Return an opportunity in some lines, its names cut so that the numbers beside them fit."""
    rare = f"{_TAIL}: " if finding.severity == "tail" else ""
    parts = spans(finding.title)
    if finding.price is not None and (most := bound_words(finding.price)):
        # Beside the share, which is an estimate.
        parts.insert(0, (False, f"{most[1:]} "))
    hanging = " " * len(head)
    lines: list[str] = []
    for length in range(min(_MOST_NAME, width - len(head)), _LEAST_NAME - 1, -1):
        title = "".join(shortened(part, length) if code else part for code, part in parts)
        lines = wrapped(f"{rare}{title}", width, head, hanging=hanging)
        if len(lines) <= most_n and max(map(len, lines)) <= width:
            return lines
    return wrapped(f"{rare}{title}", width, head, hanging=hanging, most=most_n)


def _more(more_n: int) -> list[str]:
    return [f"   and {more_n} more in the report"] if more_n > 0 else []


def _sentences(text: str, width: int) -> list[str]:
    """Return the first sentences of an advice, as many whole ones as fit into its lines."""
    parts = [plain(part) for part in sentences(text)]
    for parts_n in range(len(parts), 0, -1):
        lines = wrapped(" ".join(parts[:parts_n]), width, "   ")
        if len(lines) <= _MOST_LINES["advice"]:
            return lines
    return wrapped(" ".join(parts), width, "   ", most=_MOST_LINES["advice"])
