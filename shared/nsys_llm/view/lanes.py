"""Lanes in time: what each GPU did, the critical path, and what the findings are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from . import axes
from .palette import color_map
from .tables import Field
from .text import cleaned, format_ns, shortened, unquoted

#: What stands on a lane: bars by how high they are, the path, and marks of findings.
_HEIGHTS: Final = {"work": 0.72, "wait": 0.34, "host": 0.34}
_GROUPS: Final = {"work": "GPU busy", "wait": "GPU idle or waiting", "host": "host meanwhile"}
_PATH, _HOST_PATH, _FINDING = "path", "host path", "finding"
#: A lane of which nothing is known.
_LOST, _LOST_COLOR = "not drawn", "#e4e4e4"
#: Where path and marks stand, from the middle of a lane, in lanes; down is positive.
_PATH_AT: Final = 0.43
_MARK_AT, _MARK_HEIGHT = -0.44, 0.12
_OTHERS_AT, _OTHERS_HEIGHT = -0.54, 0.06
#: Bars of waiting are pale: work has the same colors.
_OPACITY: Final = {"work": 1.0, "wait": 0.6, "host": 0.6}
#: A page gives the first and the last another one where it is dark.
_FIRST_COLOR, _OTHER_COLOR, _PATH_COLOR = "#b0006d", "#777777", "#111111"
_FIRST_FILL: Final = "rgba(230,159,0,0.13)"
#: States of a mixture that a hover tells.
_MOST_STATES: Final = 4
#: Pixels of a lane, and of a line of the legend.
_LANE_PX: Final = (12, 48)
_ALL_LANES_PX: Final = 760
_LEGEND_PX: Final = 20
#: Above the first lane there is room for a name.
_NAME_PX: Final = 34
#: Up to so many lanes zooming changes time only.
_FEW: Final = 12
_TITLE_LENGTH: Final = 90
#: A page marks the bars of a name by these.
_NAMES, _NAME_LENGTH = "names", 200


def lanes(frame: pd.DataFrame, fields: Mapping[str, Field], spec: Mapping[str, Any]) -> axes.Plot:
    """Bars in time on lanes, with a path and marks.

    `part` says what a row is: work (a high bar), wait or host (low ones), path, host path, finding
    (a mark, the first `number` of them with its name), or not drawn (all of a lane, hatched).
    `start` and `duration`, `lane`, `color`, `label` (names) and `mixture` (JSON: ns by name) say
    the rest.
    """
    start, duration = fields[spec["start"]], fields[spec["duration"]]
    rows = frame.reset_index(drop=True)
    both = pd.concat(
        [rows[start.name] + rows[duration.name], rows[start.name], rows[duration.name]]
    )
    values, unit = axes.axis_values(both, start)
    names = rows[spec["lane"]].drop_duplicates().tolist()
    begins, lengths = values[len(rows) : 2 * len(rows)], values[2 * len(rows) :]
    whole = max(filter(None, values[: len(rows)]), default=0.0)
    columns = ("part", "lane", "color", "duration", "label", "mixture")
    told = (rows[spec[name]].tolist() for name in columns)
    drawn = _Drawn(
        part=rows[spec["part"]].tolist(),
        lane=[names.index(name) for name in rows[spec["lane"]].tolist()],
        begin=begins,
        length=lengths,
        color=rows[spec["color"]].tolist(),
        number=[None if pd.isna(row) else int(row) for row in rows[spec["number"]].tolist()],
        label=[None if pd.isna(row) else str(row) for row in rows[spec["label"]].tolist()],
        hover=[_hover(*row) for row in zip(*told, strict=True)],
    )
    bars = [bar for part in _HEIGHTS for bar in drawn.bars(part)] + drawn.lost()
    traces = [*bars, *drawn.path(), *drawn.marks()]
    first, notes = drawn.notes(whole)
    steps = rows[spec["of_step"]].dropna().tolist()[:1]
    height, lane_px = _height(len(names), len(traces))
    layout = {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {
            **axes.axis(start, unit),
            "title": axes.axis_title(f"since the start ({unit})"),
            "range": [0, whole],
        },
        "yaxis": {
            **axes.lane_axis(names),
            "range": [len(names) - 0.4, -0.6 - _NAME_PX / lane_px],
            "fixedrange": len(names) <= _FEW,
        },
        "shapes": first,
        "annotations": notes,
        "height": height,
        "legend": {"traceorder": "grouped", "tracegroupgap": 4},
        "meta": {
            "range": [0, whole],
            "step": steps[0] if steps else None,
            _NAMES: [axes.escaped(cleaned(name)[:_NAME_LENGTH]) for name in drawn.numbers],
        },
    }
    return {"data": traces, "layout": layout}


@dataclass(frozen=True)
class _Drawn:
    """The rows of a figure, column by column, in the units of its axes."""

    part: Sequence[str]
    lane: Sequence[int]
    begin: Sequence[Any]
    length: Sequence[Any]
    color: Sequence[str]
    number: Sequence[int | None]
    label: Sequence[str | None]
    hover: Sequence[str]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By the name of what is drawn as bars, the number that its bars have."""
        bars = zip(self.part, self.label, strict=True)
        names = dict.fromkeys(name for part, name in bars if part in _HEIGHTS and name is not None)
        return {name: number for number, name in enumerate(names)}

    def _of(self, *parts: str) -> list[int]:
        return [row for row, part in enumerate(self.part) if part in parts]

    def bars(self, part: str) -> list[Any]:
        """Return the bars of one height, a trace for each color, the one with most time first."""
        of_part = self._of(part)
        places = axes.rows_by_group(axes.at(of_part, self.color))
        by_color = {name: axes.at(some, of_part) for name, some in places.items()}
        order = sorted(by_color, key=lambda name: -sum(self.length[r] for r in by_color[name]))
        tints = color_map(sorted(by_color), idle=part != "work")
        numbers = self.numbers
        group: axes.Plot = {"legendgroup": part, "legendgrouptitle": {"text": _GROUPS[part]}}
        return [
            self._bar(
                axes.legend_name(name),
                by_color[name],
                {"color": tints[name], "opacity": _OPACITY[part]},
                width=_HEIGHTS[part],
                meta=_NAMES,
                customdata=[numbers.get(self.label[row] or "", -1) for row in by_color[name]],
                **group,
            )
            for name in order
        ]

    def _bar(
        self, name: str, rows: list[int], marker: axes.Plot, shift: float = 0, **others: Any
    ) -> Any:
        """Return the bars of some rows as one trace, `shift` lanes below the middle of theirs."""
        return axes.trace(
            "bar",
            orientation="h",
            name=name,
            base=axes.at(rows, self.begin),
            x=axes.at(rows, self.length),
            y=[self.lane[row] + shift for row in rows],
            marker={**marker, "line": {"width": 0}},
            hovertext=axes.at(rows, self.hover),
            hoverinfo="text",
            **others,
        )

    def lost(self) -> list[Any]:
        """Return the lanes of which nothing is known, hatched."""
        rows = self._of(_LOST)
        look = {"color": _LOST_COLOR, "pattern": {"shape": "/"}}
        bar = self._bar(_LOST, rows, look, width=_HEIGHTS["work"], legendgroup=_LOST)
        return [bar] if rows else []

    def path(self) -> list[Any]:
        """Return the path as a thin line, and a thick one where it is on a GPU."""
        rows = self._of(_PATH, _HOST_PATH)
        group = {"legendgroup": "path", "legendgrouptitle": {"text": "path and findings"}}
        traces = []
        for name, some, width in (
            ("critical path, GPU", [row for row in rows if self.part[row] == _PATH], 4),
            ("critical path, host", rows, 1.2),
        ):
            joined = width < 2
            line: dict[str, list[Any]] = {"x": [], "y": [], "hovertext": []}
            for row in some:
                end = self.begin[row] + self.length[row]
                line["x"] += [self.begin[row], end] if joined else [self.begin[row], end, None]
                line["y"] += [self.lane[row] + _PATH_AT] * (2 if joined else 3)
                line["hovertext"] += [self.hover[row]] * (2 if joined else 3)
            if some:
                style = {"color": _PATH_COLOR, "width": width}
                traces.append(
                    axes.trace(
                        "scatter",
                        mode="lines",
                        name=name,
                        line=style,
                        hoverinfo="text",
                        **line,
                        **group,
                    )
                )
        return traces

    def marks(self) -> list[Any]:
        """Return the marks of findings above their lanes."""
        rows = self._of(_FINDING)
        first = [row for row in rows if self.number[row] == 1]
        others = [row for row in rows if self.number[row] != 1]
        return [
            self._bar(
                name,
                some,
                {"color": color},
                shift,
                width=height,
                # A page finds a finding by these.
                meta="findings",
                customdata=axes.at(some, self.number),
                legendgroup="path",
            )
            for name, some, color, shift, height in (
                ("finding 1", first, _FIRST_COLOR, _MARK_AT, _MARK_HEIGHT),
                ("other findings", others, _OTHER_COLOR, _OTHERS_AT, _OTHERS_HEIGHT),
            )
            if some
        ]

    def notes(self, whole: float) -> tuple[list[axes.Plot], list[axes.Plot]]:
        """Return the frame of the first finding, and the numbers or the name at marks."""
        rows = self._of(_FINDING)
        first = [row for row in rows if self.number[row] == 1]
        frames, notes = [], []
        if first:
            low = min(self.begin[row] for row in first)
            high = max(self.begin[row] + self.length[row] for row in first)
            lane = self.lane[first[0]]
            frames.append({**_FRAME, "x0": low, "x1": high, "y0": lane - 0.5, "y1": lane + 0.5})
            longest = max(first, key=lambda row: self.length[row])
            title = shortened(unquoted(self.label[longest] or ""), _TITLE_LENGTH)
            middle = self.begin[longest] + self.length[longest] / 2
            note = _first_note(f"1  {title}", middle, self.lane[longest], middle / whole)
            notes.append(note)
        numbers: dict[tuple[Any, Any], set[int]] = {}
        for row in rows:
            number = self.number[row]
            if number is not None and number > 1:
                numbers.setdefault((self.lane[row], self.begin[row]), set()).add(number)
        for (lane, begin), some in numbers.items():
            text = ", ".join(map(str, sorted(some)))
            notes.append({**_NUMBER, "x": begin, "y": lane + _OTHERS_AT, "text": text})
        return frames, notes


_NUMBER: Final = {
    "showarrow": False,
    "xanchor": "left",
    "yanchor": "bottom",
    "font": {"size": 10, "color": _OTHER_COLOR},
}
_FRAME: Final = {
    "type": "rect",
    "line": {"color": _FIRST_COLOR, "width": 1.5},
    "fillcolor": _FIRST_FILL,
    "layer": "below",
}


def _first_note(text: str, middle: Any, lane: int, along: float) -> axes.Plot:
    """Return the name of the first finding; the text stays within the figure."""
    return {
        "text": f"<b>{axes.escaped(text)}</b>",
        "x": middle,
        "y": lane + _MARK_AT,
        "ax": 0,
        "ay": -18,
        "showarrow": True,
        "arrowhead": 2,
        "arrowcolor": _FIRST_COLOR,
        "xanchor": "left" if along < 1 / 3 else "center" if along < 2 / 3 else "right",
        "font": {"color": _FIRST_COLOR, "size": 12},
        "bgcolor": "rgba(255,255,255,0.85)",
    }


def _height(lanes_n: int, traces_n: int) -> tuple[int, float]:
    """Return the height of the figure and of one lane; lanes and legend have room."""
    least, most = _LANE_PX
    lanes_px = max(least, min(most, _ALL_LANES_PX // max(lanes_n, 1))) * max(lanes_n, 1)
    # The groups of the legend have headings, too.
    inside_px = max(lanes_px + _NAME_PX, _LEGEND_PX * (traces_n + 5))
    return inside_px + 110, (inside_px - _NAME_PX) / max(lanes_n, 1)


def _hover(part: str, lane: str, state: str, time_ns: int, label: Any, mixture: Any) -> str:
    what = {_PATH: "path: ", _HOST_PATH: "path, host: ", "wait": "waits: "}.get(part, "")
    lines = [f"{what}{state} {format_ns(time_ns)}, {lane}"]
    if not pd.isna(label):
        is_prose = part == _FINDING
        text, length = (
            (unquoted(label), _TITLE_LENGTH) if is_prose else (str(label), axes.LABEL_LENGTH)
        )
        lines.append(shortened(text, length))
    if not pd.isna(mixture):
        times = list(json.loads(mixture).items())
        reported = [f"{name} {format_ns(ns)}" for name, ns in times[:_MOST_STATES]]
        lines.append(f"in it: {', '.join(reported)}{', ...' if len(times) > len(reported) else ''}")
    return "<br>".join(map(axes.hover_text, lines))
