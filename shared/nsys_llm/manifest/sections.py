"""What a report and a notebook show of one table, as the manifest has it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Kinds of charts (see `nsys_llm.view.figures`), and what each takes: the keys whose values are
#: columns, those that must be there first.
_CHART_COLUMNS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "bars": (("x", "y"), ("color", "label", "menu")),
    "compare": (("x", "y"), ("color", "label", "menu")),
    "heat": (("x", "y", "value"), ("menu",)),
    "icicle": (("path", "parent", "label", "value"), ("menu",)),
    "lines": (("x", "y"), ("series", "menu")),
    "parts": (("y", "parts"), ("menu",)),
    "points": (("x", "y"), ("color", "label", "low", "high", "menu")),
    "spread": (("y", "low", "q1", "median", "q3", "high"), ("color", "menu")),
    "stacked": (("x", "y", "color"), ("menu", "order")),
    "timeline": (("start", "duration", "lane", "color", "label"), ("menu",)),
    "waterfall": (("x", "y", "whole"), ("menu",)),
}
_CHART_OTHERS: Final = frozenset(
    {
        "kind",
        "title",
        "top",
        "where",
        "log",
        "step",
        "from_first",
        "in_order",
        "relative",
        "diverging",
        "row_share",
        "x_title",
        "y_title",
    }
)


@dataclass(frozen=True)
class Section:
    """One table as people read it.

    Attributes:
        table: Name of the table.
        title: Heading; findings link to it.
        shows: What it shows and how to read it, one to three sentences.
        columns: Columns of the rows that are shown.
        rows_n: How many rows.
        charts: Figures, drawn above the rows.
        in_report: Whether report.md has it too; the notebook has all.
        optional: Whether it is left out where the table has no rows.
        summary: Columns of the rows that the terminal shows; empty where it shows none.
        by: Column of numbers by which the rows that are shown are chosen, the largest first, above
            or below 0, where the table has more; None shows the first rows.
    """

    table: str
    title: str
    shows: str
    columns: tuple[str, ...]
    rows_n: int = 15
    charts: tuple[Mapping[str, Any], ...] = ()
    in_report: bool = True
    optional: bool = False
    summary: tuple[str, ...] = ()
    by: str | None = None


def read_section(raw: Mapping[str, Any]) -> Section:
    """Return a section out of a manifest; KeyError and TypeError for keys missing or unknown."""
    charts = tuple(raw.get("charts", ()))
    columns, summary = tuple(raw["columns"]), tuple(raw.get("summary", ()))
    return Section(**{**raw, "columns": columns, "charts": charts, "summary": summary})


def section_problems(
    sections: Sequence[Section], tables: Mapping[str, Collection[str]]
) -> Iterable[str]:
    """Yield what is wrong with sections.

    Args:
        sections: Of one manifest.
        tables: The columns of each table that is written.
    """
    titles = [section.title for section in sections]
    yield from (f"two sections are called '{title}'" for title in _repeated(titles))
    for section in sections:
        known = tables.get(section.table)
        if known is None:
            yield f"section '{section.title}' shows '{section.table}', which is not written"
            continue
        shown = [*section.columns, *section.summary, *([section.by] if section.by else [])]
        used = [*shown, *(name for chart in section.charts for name in _columns(chart))]
        odd = sorted({name for name in used if name not in known})
        if odd:
            yield f"section '{section.title}': {section.table} has no column {', '.join(odd)}"
        for chart in section.charts:
            yield from (f"section '{section.title}': {text}" for text in _chart_problems(chart))


def _columns(chart: Mapping[str, Any]) -> list[str]:
    needed, others = _CHART_COLUMNS.get(chart.get("kind", ""), ((), ()))
    named = [chart[key] for key in (*needed, *others) if key in chart]
    lists = [[one] if isinstance(one, str) else one for one in named]
    return [*(name for names in lists for name in names), *chart.get("where", {})]


def _chart_problems(chart: Mapping[str, Any]) -> Iterable[str]:
    kind = chart.get("kind", "")
    if kind not in _CHART_COLUMNS:
        yield f"there is no kind of chart '{kind}'"
        return
    needed, others = _CHART_COLUMNS[kind]
    if missing := [key for key in (*needed, "title") if key not in chart]:
        yield f"a chart of kind {kind} needs {', '.join(missing)}"
    if unknown := sorted(chart.keys() - {*needed, *others, *_CHART_OTHERS}):
        yield f"a chart of kind {kind} does not know {', '.join(unknown)}"


def _repeated(titles: Sequence[str]) -> list[str]:
    return sorted({title for title in titles if titles.count(title) > 1})
