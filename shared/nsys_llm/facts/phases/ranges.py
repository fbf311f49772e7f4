"""What the ranges of one rank cost, by name and by path: of one label inside the same others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.facts.phases.range_spans import Shown, free_inclusive, range_spans
from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.numeric.blocks import gathered
from nsys_llm.numeric.by_key import ByKey, Texts
from nsys_llm.numeric.grouping import distinct_codes, exact_sums, positions, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.step_names import range_key
from nsys_llm.trace.rank_trace import RankTrace

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Paths:
    """Distinct chains of labels; arrays of shape (paths,) unless said otherwise.

    Attributes:
        label: Code of the last label.
        parent: The path around, which stands before; -1 for an outermost one.
        depth: How many are around.
        outermost: Whether it has its last label only once.
        of_piece: Shape (pieces,), the path of each.
    """

    label: IntArray
    parent: IntArray
    depth: IntArray
    outermost: _Mask
    of_piece: IntArray

    @classmethod
    def of(cls, tree: NvtxTree, label: IntArray, labels_n: int) -> Paths:
        """Find the paths of all pieces; `label` has codes from 0, of shape (pieces,)."""
        of_piece = np.full(len(tree) + 1, -1, dtype=np.int64)
        labels, parents, depths = [], [], []
        paths_n = 0
        levels_n = int(tree.depth.max(initial=0)) + 1
        for level, selected in enumerate(split_by_code(tree.depth, levels_n)):
            above = of_piece[tree.parent[selected]]
            used, code = distinct_codes((above + 1) * labels_n + label[selected])
            of_piece[selected] = paths_n + code
            parents.append(used // max(labels_n, 1) - 1)
            labels.append(used % max(labels_n, 1))
            depths.append(np.full(used.size, level, dtype=np.int64))
            paths_n += used.size
        outermost = np.empty(paths_n, dtype=bool)
        outermost[of_piece[:-1]] = ~tree.inside_same(label)
        return cls(
            label=np.concatenate(labels),
            parent=np.concatenate(parents),
            depth=np.concatenate(depths),
            outermost=outermost,
            of_piece=of_piece[:-1],
        )

    def __len__(self) -> int:
        return self.label.size

    def rolled_up(self, values: IntArray) -> IntArray:
        """Return the sum over each path and all inside it; `values` has shape (paths,)."""
        return rolled_up(values, self.parent)

    def cut(self, depth_n: int) -> IntArray:
        """Return for each path itself, or its part of so many labels; shape (paths,)."""
        place = np.where(self.depth < depth_n, np.arange(len(self)), self.parent)
        while (self.depth[place] >= depth_n).any():
            place = place[place]
        return place


def rolled_up(values: IntArray, parent: IntArray) -> IntArray:
    """Return the sum over each node of a forest and all below it; shape (nodes,) each."""
    total, above = values.copy(), parent
    # What is below at up to 1, 2, 4, ... steps: as many rounds as the depth has digits.
    while (rows := np.flatnonzero(above >= 0)).size:
        np.add.at(total, above[rows], total[rows])
        above = np.where(above < 0, -1, above[above])
    return total


#: Kinds of ranges, as tables name them.
PUSH_POP: Final = "push_pop"
START_END: Final = "start_end"

#: Paths that a rank keeps; the deepest go first.
_MOST_PATHS: Final = 4096
#: Labels of a path: it is a row with a text of its depth.
_DEEPEST: Final = 1000

#: Forms of a name that differ in running numbers, from which they are counted up or not; the steps
#: of `nsys_llm.trace.ranges` need as many repetitions.
_LEAST_FORMS: Final = 3
#: More forms than layers or experts of a model; a table of them all would say nothing.
_MOST_FORMS: Final = 256
#: An index comes again in every step; what counts up comes once.
_LEAST_RANGES_EACH: Final = 2


@dataclass(frozen=True)
class RangeSums:
    """The ranges of one rank.

    Attributes:
        ranges: By kind, domain and shown name; see the table `ranges`.
        paths: By kind and the labels of a path; what is self there, see the table `range_tree`.
        counting: Step keys whose running numbers are left out.
        examples: A raw text by key of `ranges`.
        phases: The phase by key of `ranges`, "" for none.
        depth_n: Labels that the longest path may have; None for any number.
    """

    ranges: ByKey
    paths: ByKey
    counting: frozenset[str]
    examples: Mapping[Texts, str]
    phases: Mapping[Texts, str]
    depth_n: int | None


@dataclass(frozen=True)
class _RangeLabels:
    """Labels of pieces: `code` of shape (pieces,) into `keys`; see `RangeSums`."""

    keys: tuple[Texts, ...]
    code: IntArray
    counting: frozenset[str]
    examples: Mapping[Texts, str]
    phases: Mapping[Texts, str]


def map_ranges(trace: RankTrace, ops: RankOps, options: Mapping[str, Any]) -> RangeSums:
    """Add up the ranges of one rank."""
    tree, owner = ops.ranged.tree, ops.ranged.selected.piece
    shown = Shown.of(tree, ops.counted_pieces())
    labels = _labels(ops, shown.first, options["running_numbers"])
    paths = Paths.of(tree, labels.code, len(labels.keys))
    of_owner = np.append(paths.of_piece, -1).astype(np.int32)
    sums = ops.sums(gathered(of_owner, owner), len(paths))
    host_sums = _own(tree, shown, paths)
    by_label = _by_label(paths, host_sums, sums, labels)
    is_free = np.array([key[0] == START_END for key in labels.keys], dtype=bool)
    for name, values in free_inclusive(ops, labels.code, len(labels.keys)).items():
        by_label[name] = np.where(is_free, values, by_label[name])
    piece, *spans = range_spans(trace, ops, shown)
    for name, values in zip(("span_ns", "idle_inside_ns"), spans, strict=True):
        by_label[name] = exact_sums(labels.code[piece], values, len(labels.keys))
    return RangeSums(
        ranges=_used(ByKey.of(labels.keys, by_label)),
        paths=_used(_path_sums(paths, host_sums, sums, labels, depth_n := _depth(paths))),
        counting=labels.counting,
        examples=labels.examples,
        phases=labels.phases,
        depth_n=depth_n,
    )


def _labels(ops: RankOps, first: _Mask, numbers: str) -> _RangeLabels:
    names, tree = ops.ranged.names, ops.ranged.tree
    ranges_n = np.bincount(names.code[first], minlength=len(names.texts))
    counting = counting_keys(names.texts, ranges_n) if numbers == "auto" else frozenset()
    shown = [shown_name(text, counting, numbers) for text in names.texts]
    free = np.arange(len(tree)) >= tree.pushed_n
    of_text = ops.text_phase.tolist()
    domains_n, texts_n = len(names.domains), len(names.texts)
    used, code = distinct_codes((free * domains_n + names.domain) * texts_n + names.code)
    keys: list[Texts] = []
    examples: dict[Texts, str] = {}
    phases: dict[Texts, str] = {}
    for value in used.tolist():
        rest, text = divmod(value, texts_n)
        kind, domain = divmod(rest, domains_n)
        key = (START_END if kind else PUSH_POP, names.domains[domain], shown[text])
        keys.append(key)
        examples.setdefault(key, names.examples[text])
        phase = of_text[text]
        if not phases.get(key):
            phases[key] = ops.phases.phases[phase] if phase >= 0 else ""
    distinct = tuple(dict.fromkeys(keys))
    return _RangeLabels(distinct, positions(keys, distinct)[code], counting, examples, phases)


def _own(tree: NvtxTree, shown: Shown, paths: Paths) -> dict[str, IntArray]:
    """Return the ranges of each path, and their host time: whole, and without others inside.

    A piece that holds nothing that the filters leave counts where its range does.
    """
    rows = np.flatnonzero(shown.home >= 0)
    of_row = paths.of_piece[np.where(shown.pieces[rows], rows, shown.home[rows])]
    host_ns = tree.end_ns[rows] - tree.start_ns[rows]
    return {
        "instances_n": np.bincount(paths.of_piece[shown.first], minlength=len(paths)),
        "host_ns": exact_sums(of_row, host_ns, len(paths)),
        "self_host_ns": exact_sums(of_row, tree.self_host_ns()[rows], len(paths)),
    }


def _by_label(
    paths: Paths,
    host_sums: Mapping[str, IntArray],
    sums: Mapping[str, IntArray],
    labels: _RangeLabels,
) -> dict[str, IntArray]:
    """Add paths up by label; what is inclusive counts for a label once, however often it nests."""
    labels_n, outer = len(labels.keys), paths.outermost

    def inclusive(name: str) -> IntArray:
        return exact_sums(paths.label[outer], paths.rolled_up(sums[name])[outer], labels_n)

    def alone(values: IntArray) -> IntArray:
        return exact_sums(paths.label, values, labels_n)

    return {
        "instances_n": alone(host_sums["instances_n"]),
        "host_ns": exact_sums(paths.label[outer], host_sums["host_ns"][outer], labels_n),
        "self_host_ns": alone(host_sums["self_host_ns"]),
        "ops_n": inclusive("ops_n"),
        "kernels_n": inclusive("kernels_n"),
        "inclusive_ns": inclusive("gpu_ns"),
        "self_ops_n": alone(sums["ops_n"]),
        "self_ns": alone(sums["gpu_ns"]),
    }


def _depth(paths: Paths) -> int | None:
    """Return how many labels paths may have so that there are not too many of them; None: any."""
    until = np.cumsum(np.bincount(paths.depth))
    depth_n = max(int(np.searchsorted(until, _MOST_PATHS, side="right")), 1)
    depth_n = min(depth_n, _DEEPEST)
    return None if depth_n >= until.size else depth_n


def _path_sums(
    paths: Paths,
    host_sums: Mapping[str, IntArray],
    sums: Mapping[str, IntArray],
    labels: _RangeLabels,
    depth_n: int | None,
) -> ByKey:
    place = np.arange(len(paths)) if depth_n is None else paths.cut(depth_n)
    kept = np.flatnonzero(place == np.arange(len(paths)))
    row = np.searchsorted(kept, place)
    columns = {
        "self_host_ns": host_sums["self_host_ns"],
        "self_ops_n": sums["ops_n"],
        "self_ns": sums["gpu_ns"],
    }
    added = {name: exact_sums(row, values, kept.size) for name, values in columns.items()}
    added |= {name: host_sums[name][kept] for name in ("instances_n", "host_ns")}
    keys: list[Texts] = []
    for path in kept.tolist():
        kind, domain, name = labels.keys[int(paths.label[path])]
        label = f"{name}@{domain}" if domain else name
        above = int(paths.parent[path])
        # Paths stand behind those around them.
        before = keys[int(np.searchsorted(kept, above))] if above >= 0 else (kind,)
        keys.append((*before, label))
    return ByKey.of(keys, added)


def _used(sums: ByKey) -> ByKey:
    """Leave out keys of which nothing counts."""
    some = np.zeros(len(sums.keys), dtype=bool)
    for values in sums.sums.values():
        some |= values > 0
    rows = np.flatnonzero(some)
    return ByKey(
        tuple(sums.keys[row] for row in rows.tolist()),
        {name: values[rows] for name, values in sums.sums.items()},
    )


def counting_keys(texts: Sequence[str], ranges_n: IntArray) -> frozenset[str]:
    """Return the step keys (see `nsys_llm.taxonomy.names`) whose running numbers count up.

    Args:
        ranges_n: Shape (texts,), ranges that have each name.
    """
    forms: dict[str, list[int]] = {}
    for text, count in zip(texts, ranges_n.tolist(), strict=True):
        key = range_key(text)
        if key != text:
            forms.setdefault(key, []).append(count)
    return frozenset(
        key
        for key, counts in forms.items()
        if len(counts) > _MOST_FORMS
        or (len(counts) >= _LEAST_FORMS and sum(counts) < _LEAST_RANGES_EACH * len(counts))
    )


def shown_name(text: str, counting: frozenset[str], numbers: str) -> str:
    """Return a name as tables show it.

    Args:
        counting: Keys whose numbers count up.
        numbers: auto leaves out the numbers that count up, hide all running ones, keep none.
    """
    if numbers == "keep":
        return text
    key = range_key(text)
    return key if numbers == "hide" or key in counting else text
