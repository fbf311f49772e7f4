"""The wall split in one line, and what bounds the run: made of the table `wall`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from nsys_llm.report.group_words import group_names, of_largest
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy import wall_classes as classes
from nsys_llm.taxonomy.categories import UNMATCHED, load_categories
from nsys_llm.trace.rank_sets import BASELINE, INPUT
from nsys_llm.view.text import counted, quoted

#: Groups closer than this, in percentage points, are named together.
_CLOSE_PCT: Final = 5.0
#: What is shown as 0.0 %.
_NOTHING_PCT: Final = 0.05
#: Kinds of computation below this are told together where there are several.
_SMALL_PCT: Final = 1.0
#: What is told of the inside of a class has at least this part of it.
_PART_OF_CLASS: Final = 0.2
_POINTWISE: Final = "pointwise and norm"
_OTHER: Final = "other kernels"
_NOT_TOLD: Final = "bound not known"
_GRAPHS: Final = "IN WHOLE GRAPHS"
_UNSEEN: Final = "idle or not recorded"
_HARDLY_USED: Final = "GPU HARDLY USED"
#: Below this share of the span, that may be all that is known of a GPU's work, not all there is.
_HARDLY_PCT: Final = 3.0
#: Share of the span from which they are all that can be said.
_MOST_PCT: Final = 50.0
_SIDES: Final = (BASELINE, INPUT)


@dataclass(frozen=True)
class WallPart:
    """One part of the line: its name, its share in percent, and what is known of its inside."""

    label: str
    share_pct: float
    inside: str = ""

    @property
    def text(self) -> str:
        """The part as the line has it: `idle 9.3 % (host 8.0)`."""
        return f"{self.label} {self.share_pct:.1f} %{self.inside}"


@dataclass(frozen=True)
class Bound:
    """What bounds a run: `GPU-BOUND`, and `75.9 points more than idle`, or why none is told."""

    word: str
    margin: str

    @property
    def text(self) -> str:
        """Both as prose."""
        return f"{self.word}, {self.margin}"


@dataclass(frozen=True)
class WallLine:
    """The wall split of a run, or of one side of a comparison.

    Attributes:
        side: Empty where nothing is compared.
        gpus_n: How many GPUs; the shares are of all their spans together.
        parts: Kinds of computation and the other classes, the largest first.
        classes: The same with all computation together.
        group: Whose they are; empty where all are one group.
    """

    side: str
    gpus_n: int
    parts: tuple[WallPart, ...]
    classes: tuple[WallPart, ...]
    bound: Bound
    group: str = ""

    @property
    def head(self) -> str:
        """What the parts are of: `wall, mean of 8 GPUs`."""
        side = f" of {self.side}" if self.side else ""
        mean = f", mean of {counted(self.gpus_n, 'GPU')}" if self.gpus_n > 1 else ""
        group = f" of {quoted(self.group)}" if self.group else ""
        return f"wall{side}{mean}{group}"

    def refined(self, kernels_bound: str | None) -> WallLine:
        """Return the line with what bounds the kernels, memory or compute; None if not known."""
        if kernels_bound is None:
            return self
        usual = classes.BOUND_WORDS[classes.COMPUTE]
        word = self.bound.word.replace(usual, f"{kernels_bound.upper()}-BOUND")
        return replace(self, bound=replace(self.bound, word=word))

    def not_recorded(self) -> WallLine:
        """Return the line where a GPU worked, and most of that is not recorded."""
        bound = Bound("WORK NOT RECORDED", "so what bounds the run is not known")
        parts, together = (
            tuple(WallPart(_UNSEEN, p.share_pct) if p.label == classes.IDLE else p for p in some)
            for some in (self.parts, self.classes)
        )
        return replace(self, parts=parts, classes=together, bound=bound)

    @property
    def text(self) -> str:
        """The line as prose."""
        return f"{self.head}: {' | '.join(part.text for part in self.parts)}. {self.bound.text}."


def wall_lines(tables: Tables) -> tuple[WallLine, ...]:
    """Return a line of the run, or one of each side that is compared; none without a span.

    Of several groups of ranks it is that of the largest: a mean over them is nobody's.
    """
    wall = tables["wall"]
    if "run" not in wall.columns:
        name = group_names(tables).get(0, "")
        own = _side_line("", of_largest(tables, "wall"))
        return tuple(replace(line, group=name) for line in own)
    lines = (_side_line(side, wall[wall["run"] == side]) for side in _SIDES)
    return tuple(line for side_lines in lines for line in side_lines)


def _side_line(side: str, wall: pd.DataFrame) -> tuple[WallLine, ...]:
    rows = records(wall)
    spans = {(row["file"], row["device_id"]): int(row["span_ns"]) for row in rows}
    whole_ns = sum(spans.values())
    if not whole_ns:
        return ()
    compute = _compute_parts(_sums(rows, classes.COMPUTE, whole_ns))
    others = [_class_part(rows, name, whole_ns) for name in classes.WALL_CLASSES[1:]]
    whole = WallPart(classes.COMPUTE, sum(part.share_pct for part in compute))
    line = WallLine(
        side=side,
        gpus_n=len(spans),
        parts=_shown([*compute, *others]),
        classes=_shown([whole, *others]),
        bound=_bound(rows, whole_ns),
    )
    return (line,)


def _shown(parts: Sequence[WallPart]) -> tuple[WallPart, ...]:
    """Return the parts that are more than nothing, the largest first."""
    seen = [part for part in parts if part.share_pct >= _NOTHING_PCT]
    return tuple(sorted(seen, key=lambda part: -part.share_pct))


def _sums(rows: Sequence[Record], wall_class: str, whole_ns: int) -> dict[str | None, float]:
    sums = Counter[str | None]()
    for row in rows:
        if row["wall_class"] == wall_class:
            sums[row["detail"]] += int(row["time_ns"])
    return {detail: 100.0 * time_ns / whole_ns for detail, time_ns in sums.items()}


def _class_part(rows: Sequence[Record], name: str, whole_ns: int) -> WallPart:
    details = _sums(rows, name, whole_ns)
    groups: dict[str, float] = {}
    for detail, share in details.items():
        if detail is not None and (group := classes.bound_group(name, detail)) is not None:
            groups[group] = groups.get(group, 0.0) + share
    ranked = sorted(groups.items(), key=lambda item: -item[1])
    whole = sum(details.values())
    least = max(_NOTHING_PCT, _PART_OF_CLASS * whole)
    # Code is loaded in any step; what comes before the first one is a class by itself.
    words = {classes.START_UP: "code loading"}
    reported = [f"{words.get(name, name)} {share:.1f}" for name, share in ranked if share >= least]
    inside = f" ({', '.join(reported)})" if reported else ""
    return WallPart(classes.CLASS_WORDS.get(name, name), whole, inside)


def _compute_parts(details: Mapping[str | None, float]) -> list[WallPart]:
    titles = {category.id: _lower(category.title) for category in load_categories()}
    titles |= {
        classes.WHOLE_GRAPH: "whole CUDA graphs",
        UNMATCHED: _OTHER,
        **dict.fromkeys(classes.POINTWISE, _POINTWISE),
    }
    shares: dict[str, float] = {}
    for detail, share in details.items():
        if detail is not None:
            label = titles[detail]
            shares[label] = shares.get(label, 0.0) + share
    small = [label for label, share in shares.items() if share < _SMALL_PCT]
    if len(small) > 1:
        rest = sum(shares.pop(label) for label in small)
        shares[_OTHER] = shares.get(_OTHER, 0.0) + rest
    return [WallPart(label, share) for label, share in shares.items()]


def _lower(title: str) -> str:
    """Return a title as it stands inside a line; GEMM and KV cache stay as they are."""
    return title if title[1:2].isupper() else title[0].lower() + title[1:]


def _bound(rows: Sequence[Record], whole_ns: int) -> Bound:
    """Return the largest class, by its largest part of known cause, with how far it is ahead.

    Classes are told alike by all recipes of a run, and so is the margin; parts of a class only by
    those that know them. None is named where nobody knows what a GPU did or why it was idle.
    """
    told = (classes.COMPUTE, classes.COMMUNICATION, classes.COPIES, classes.IDLE)
    shares = dict.fromkeys(told, 0.0)
    groups: dict[str, dict[str, float]] = {name: {} for name in shares}
    mostly = dict.fromkeys(classes.MOSTLY_WORDS, 0.0)
    graphs = unknown = 0.0
    for row in rows:
        name, share = row["wall_class"], 100.0 * int(row["time_ns"]) / whole_ns
        if name in mostly:
            mostly[name] += share
        unknown += share * (name in (classes.FUSED, classes.NOT_RECORDED))
        mostly[classes.START_UP] += share * (name in (classes.LOAD, classes.BEFORE_STEPS))
        if name not in shares:
            continue
        shares[name] += share
        graphs += share * (row["detail"] == classes.WHOLE_GRAPH)
        group = classes.bound_group(name, row["detail"]) or name
        groups[name][group] = groups[name].get(group, 0.0) + share
    mostly[classes.START_UP] += groups[classes.IDLE].get(classes.START_UP, 0.0)
    for group, share in mostly.items():
        if share >= _MOST_PCT:
            return Bound(classes.MOSTLY_WORDS[group], f"{share:.1f} % of the time")
    (first, most), (second, next_most) = sorted(shares.items(), key=lambda item: -item[1])[:2]
    ahead = most - next_most
    if graphs >= _MOST_PCT:
        return Bound(_GRAPHS, f"{graphs:.1f} % of the time: what runs in them is not recorded")
    busy = sum(shares.values()) - shares[classes.IDLE]
    if first == classes.IDLE and busy < _HARDLY_PCT:
        return Bound(_HARDLY_USED, f"{busy:.1f} %, or its work is not recorded")
    if first == classes.IDLE and set(groups[classes.IDLE]) == {classes.UNKNOWN}:
        unknown = max(unknown, shares[classes.IDLE])
    if ahead <= unknown and unknown >= _CLOSE_PCT:
        return Bound(_NOT_TOLD, f"as {unknown:.1f} % of the time has no known class or cause")
    words = [_word(name, groups[name]) for name in (first, second)]
    if ahead >= _CLOSE_PCT:
        return Bound(words[0], f"{ahead:.1f} points more than {second}")
    return Bound(" and ".join(dict.fromkeys(words)), f"{ahead:.1f} points apart")


def _word(name: str, groups: Mapping[str, float]) -> str:
    """Return what a run is called that a class bounds: by the largest part whose cause is known."""
    known = {group: share for group, share in groups.items() if group != classes.UNKNOWN}
    return classes.BOUND_WORDS[max(known, key=lambda group: known[group], default=name)]
