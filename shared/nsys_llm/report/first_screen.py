"""The first screen of an overview: what bounds the job, and what to fix first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from nsys_llm.report import summary
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import TAIL, Price, bound_words, sure_word
from nsys_llm.report.report import MOST_SHOWN, Report
from nsys_llm.report.screen import Scale, Screen
from nsys_llm.view.text import counted, format_ns, format_percent, quoted, sentences, shortened

#: Lines of a verdict and of an advice.
_MOST_LINES: Final = {"verdict": 6, "advice": 3}
#: Characters of a name.
_LEAST_NAME, _MOST_NAME = 8, 44
_TAIL: Final = "in rare steps"


@dataclass(frozen=True)
class _Cut:
    """Lines of the first opportunities, of the others, of the wall and of the remark."""

    first_n: int = 2
    item_n: int = 2
    wall_n: int = 2
    trust_n: int = 2
    advice: bool = True
    shown_n: int = MOST_SHOWN


#: The time of a GPU that is nearly as long as the longest has this part of it.
_NEARLY: Final = 0.99
#: Opportunities that keep their second line longest.
_FIRST_N: Final = 2
#: What gives way, one after the other, where a screen is full.
_CUTS: Final = (
    _Cut(),
    _Cut(item_n=1),
    _Cut(item_n=1, wall_n=1),
    _Cut(item_n=1, wall_n=1, trust_n=1),
    _Cut(1, 1, 1, 1),
    *(_Cut(1, 1, 1, 1, advice=False, shown_n=n) for n in range(MOST_SHOWN, 0, -1)),
)


def first_screen_lines(
    report: Report, screen: Screen, width: int = summary.WIDTH, height: int = summary.HEIGHT
) -> list[str]:
    """Return the lines: facts and bound, the wall split, opportunities, and what to trust.

    Args:
        height: Of the terminal, in lines; what is printed below the summary fits in too.
    """
    width, most_n = max(60, min(width, 120)), max(height, summary.HEIGHT) - summary.BELOW
    for cut in _CUTS:
        lines, trust = _above(report, screen, width, cut), _trust(report, screen, width, cut)
        left_n = most_n - len(lines) - len(trust)
        shown = _opportunities(report, screen, width, cut, left_n)
        if len(shown) <= left_n:
            return [*lines, *shown, *trust]
    return [*lines[: left_n - len(shown)], *shown, *trust]


def _above(report: Report, screen: Screen, width: int, cut: _Cut) -> list[str]:
    """Return what stands above opportunities."""
    lines = [*summary.limit_lines(report, width), *_title(report, screen, width)]
    if screen.verdict:
        lines += summary.answer_lines(screen.verdict, width, _MOST_LINES["verdict"])
    for line in report.wall:
        lines += summary.fitted_parts(line, width, cut.wall_n)
    for text in screen.lines:
        lines += _named_lines(text, width, "  ", "    ", 1)
    return lines


def _trust(report: Report, screen: Screen, width: int, cut: _Cut) -> list[str]:
    """Return the remark that qualifies most of the rest, and how many others there are."""
    if not screen.trust or summary.limit_lines(report, width):
        return []
    rest_n = len(report.caveats) + len(report.remarks) - 1
    more = f" ({counted(rest_n, 'more note')} in the report)" if rest_n > 0 else ""
    text = f"trust  {summary.plain(screen.trust).rstrip('.')}"
    for room_n in (width, width - len(more)):
        lines = summary.wrapped(text, room_n, "", hanging=" " * 7, most=cut.trust_n)
        if len(lines[-1]) + len(more) <= width:
            break
    return [*lines[:-1], lines[-1] + more]


def _title(report: Report, screen: Screen, width: int) -> list[str]:
    """Return what was read with its facts, and the bound at the right; the name gives way first.

    Facts that the bound leaves no room for stand on a line below, whole.
    """
    bound = " -> ".join(dict.fromkeys(line.bound.word for line in report.wall))
    # At least two blanks before the bound.
    facts, name, room_n = (
        summary.plain(screen.facts),
        summary.plain(quoted(screen.subject)),
        width - len(bound),
    )
    left_n = room_n - len(facts) - 4
    if left_n >= min(len(name), _LEAST_NAME):
        return [f"{f'{shortened(name, left_n)}: {facts}'.ljust(room_n)}{bound}".rstrip()]
    first, *parts = re.split("(?<=[,;]) ", facts)
    head = f"{shortened(name, max(room_n - len(first) - 4, _LEAST_NAME))}: {first}"
    while parts and len(head) + len(parts[0]) + 3 <= room_n:
        head += f" {parts.pop(0)}"
    return [f"{head.ljust(room_n)}{bound}", *summary.wrapped(" ".join(parts), width, "  ")]


def _opportunities(report: Report, screen: Screen, width: int, cut: _Cut, most_n: int) -> list[str]:
    """Return opportunities as a cut has them, and what to do; else the answer in `most_n` lines."""
    priced = [(each, each.price) for each in report.opportunities if each.price is not None]
    if not priced:
        return [
            "",
            *summary.wrapped(summary.plain(report.answer), width, "", most=max(most_n - 1, 1)),
        ]
    scale = Scale.of(screen.whole_ns)
    own = [price for finding, price in priced if screen.is_of(finding.rank)]
    is_same = all(price.span_ns >= _NEARLY * screen.whole_ns for price in own)
    whole = f"{scale.unit} of {scale.number(screen.whole_ns)} {screen.whole}"
    if not (screen.by_step or is_same):
        whole = f"{scale.unit} {screen.whole}"  # a share is of its own GPU's time
    gains = [
        _price_words(price, screen, scale, is_own=screen.is_of(finding.rank))
        for finding, price in priced
    ]
    widths = [max(map(len, column)) for column in zip(*gains, strict=True)]
    lines = [f"could gain (not additive), {whole}"]
    shown = zip(priced[: cut.shown_n], gains, strict=False)
    for number, ((finding, _), (sure, time, share)) in enumerate(shown, 1):
        head = f"{number:>2} {sure:<{widths[0]}} {time:>{widths[1]}}  {share:>{widths[2]}}  "
        each_n = cut.first_n if number <= _FIRST_N else cut.item_n
        lines += _item_lines(finding, head, width, each_n)
    if (more_n := len(priced) - cut.shown_n) > 0:
        lines.append(f"   and {more_n} more in the report")
    return lines + _sentences(f"first: {priced[0][0].recommendation}", width) * cut.advice


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


def _item_lines(finding: Finding, head: str, width: int, most_n: int) -> list[str]:
    """Return an opportunity in some lines; in one, its bound stands only where there is room."""
    rare = f"{_TAIL}: " if finding.severity == "tail" else ""
    text, hanging = f"{rare}{finding.title}", " " * len(head)
    if finding.price is not None and (most := bound_words(finding.price)):
        # Beside the share, which is an estimate.
        bound = f"{most[1:]} {text}"
        if most_n > 1 or len(_named_lines(bound, width, head, hanging, 1)) == 1:
            text = bound
    lines = _named_lines(text, width, head, hanging, most_n)
    if len(lines) > most_n:
        lines = summary.wrapped(
            summary.plain(text, _LEAST_NAME), width, head, hanging=hanging, most=most_n
        )
    return lines


def _named_lines(prose: str, width: int, head: str, hanging: str, most_n: int) -> list[str]:
    """Return prose in some lines if it fits with its names cut, else in as many as it takes."""
    lines: list[str] = []
    for length in range(min(_MOST_NAME, width - len(head)), _LEAST_NAME - 1, -1):
        lines = summary.wrapped(summary.plain(prose, length), width, head, hanging=hanging)
        if len(lines) <= most_n and max(map(len, lines)) <= width:
            break
    return lines


def _sentences(text: str, width: int) -> list[str]:
    """Return the first sentences of an advice, as many whole ones as fit into its lines."""
    parts = [summary.plain(part) for part in sentences(text)]
    for parts_n in range(len(parts), 0, -1):
        lines = summary.wrapped(" ".join(parts[:parts_n]), width, "   ")
        if len(lines) <= _MOST_LINES["advice"]:
            return lines
    return summary.wrapped(" ".join(parts), width, "   ", most=_MOST_LINES["advice"])
