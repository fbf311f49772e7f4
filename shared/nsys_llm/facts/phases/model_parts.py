"""The part of the model that each kernel of one rank belongs to, and the line that launched it.

By an annotation of its node of a CUDA graph; the NVTX range of a layer around its launch, or around
the capture of its node; or what the same kernels among the same neighbors belong to where they run
outside of graphs, as in the warm-up ahead of a capture. The last is inferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.phase_times import owners
from nsys_llm.facts.phases.annotated import annotated, contradicted_n, graph_kernels
from nsys_llm.facts.phases.rank_ops import KERNEL_TABLE, RankOps
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.by_key import ByKey, Texts
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, exact_sums
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.model_parts import is_part_word, part_of_range
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.graph_nodes import NodeCaptures, is_graph_node
from nsys_llm.trace.identity import rank_in_file_name
from nsys_llm.trace.rank_trace import GRAPH_NODE_TABLES, RankTrace

#: How a part was found, by code.
FOUND_BY: Final = ("annotation", "range", "capture_range", "eager_run")
ANNOTATION, RANGE, CAPTURE_RANGE, EAGER_RUN = range(len(FOUND_BY))
#: Neighbors on each side that tell which of several like kernels one is: fewest first.
_NEIGHBORS: Final = (0, 1, 3)
_OLD_GRAPHS: Final = GRAPH_NODE_TABLES[1]

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RankParts:
    """One rank.

    Attributes:
        sums: By device, name, demangled name, part, source and how it was found, "" for none; see
            the table `model_parts`.
        graph_kernels_n: See the table `marks`, as of the others.
        shared_map: Kernels by executable graph and what it runs, if a file for all ranks names any.
    """

    sums: ByKey = field(default_factory=ByKey)
    graph_kernels_n: int = 0
    annotated_n: int = 0
    annotation_key: str | None = None
    contradicted_n: int = 0
    shared_map: ByKey = field(default_factory=ByKey)


@dataclass
class _Found:
    """What is known of each kernel, before filters: codes of shape (kernels,), -1 for nothing."""

    texts: list[str]
    part: IntArray
    source: IntArray
    by: IntArray

    def set(self, rows: IntArray, part: IntArray, by: int) -> None:
        known = part >= 0
        self.part[rows[known]], self.by[rows[known]] = part[known], by


def map_parts(view: RankView, ops: RankOps) -> RankParts:
    """Find the parts of the kernels of a rank, and add up its kernels by them."""
    trace = view.trace
    kernels = trace.unfiltered[KERNEL_TABLE]
    in_graph = np.flatnonzero(is_graph_node(kernels))
    found = _by_ranges(trace, ops, kernels, in_graph)
    _infer(found, kernels, in_graph)
    mapped = _annotate(found, view.options, view.key.path, trace, in_graph)
    return replace(mapped, sums=_sums(ops, found), graph_kernels_n=in_graph.size)


def _by_ranges(trace: RankTrace, ops: RankOps, kernels: Table, in_graph: IntArray) -> _Found:
    """Take the part of the range of a layer around the launch, else around a node's capture."""
    ranged, tree = ops.ranged, ops.ranged.tree
    nothing = np.full((3, len(kernels)), -1, dtype=np.int64)
    texts, of_piece = _parts_of_pieces(ops)
    found = _Found(texts, *nothing)
    if not texts:
        return found
    is_part, of_none = of_piece >= 0, np.append(of_piece, -1)
    owner = owners(ranged, is_part)[: len(kernels)]
    found.set(np.arange(len(kernels)), of_none[owner], RANGE)
    rest = in_graph[found.part[in_graph] < 0]
    captures = NodeCaptures.of([trace.tables.get(name) for name in GRAPH_NODE_TABLES])
    if rest.size and captures.node_id.size:
        used, code = distinct_codes(kernels["graph_node_id"][rest])
        at_ns, tid = captures.captured(used)
        piece = tree.innermost(tree.thread_codes(tid), at_ns, is_part)
        found.set(rest, of_none[piece][code], CAPTURE_RANGE)
    return found


def _parts_of_pieces(ops: RankOps) -> tuple[list[str], IntArray]:
    """Return the parts that ranges name, and the code of each piece of a range, -1 for none.

    Of a range that lies directly in one of a layer, a plain word is a module of it.
    """
    names, parent = ops.ranged.names, ops.ranged.tree.parent
    said = [part_of_range(text) for text in names.texts]
    texts = sorted({part for part in said if part is not None})
    place: dict[str | None, int] = {None: -1, **{part: at for at, part in enumerate(texts)}}
    of_text = np.array([place[part] for part in said], dtype=np.int64)
    if not texts:
        return texts, np.full(names.code.shape, -1, dtype=np.int64)
    of_piece = of_text[names.code]
    is_word = np.array([is_part_word(text) for text in names.texts], dtype=bool)
    above = np.append(of_piece, -1)[parent]
    rows = np.flatnonzero(is_word[names.code] & (of_piece < 0) & (above >= 0))
    pairs, code = distinct_codes(above[rows] * len(names.texts) + names.code[rows])
    inner = [divmod(pair, len(names.texts)) for pair in pairs.tolist()]
    of_piece[rows] = len(texts) + code
    return [*texts, *(f"{texts[part]}.{names.texts[text]}" for part, text in inner)], of_piece


def _infer(found: _Found, kernels: Table, in_graph: IntArray) -> None:
    """Give kernels of graphs the part that all of their like have outside of graphs."""
    rest = in_graph[found.part[in_graph] < 0]
    eager = np.ones(len(kernels), dtype=bool)
    eager[in_graph] = False
    if not rest.size or not (found.part[eager] >= 0).any():
        return
    names, name = distinct_codes(kernels["demangled_name_id"])
    queue = [kernels[column] for column in ("device_id", "stream_id")]
    _, lane = distinct_rows([*queue, eager.astype(np.int64)])
    order = np.lexsort((kernels["start_ns"], lane))
    known = np.full(len(kernels), -1, dtype=np.int64)
    for reach in _NEIGHBORS:
        like = np.empty(len(kernels), dtype=np.int64)
        like[order] = _like(name[order], lane[order], reach, len(names))
        most, least = np.full((2, int(like.max()) + 1), -1, dtype=np.int64)
        least[:] = np.iinfo(np.int64).max
        np.maximum.at(most, like[eager], found.part[eager])
        np.minimum.at(least, like[eager], found.part[eager])
        agreed = np.where(most == least, most, -1)
        open_rows = rest[known[rest] < 0]
        known[open_rows] = agreed[like[open_rows]]
    found.set(rest, known[rest], EAGER_RUN)


def _like(name: IntArray, lane: IntArray, reach: int, names_n: int) -> IntArray:
    """Return a code that kernels of one name share, with neighbors of the same names.

    Args:
        name: Shape (kernels,), in the order of their lanes and, in each, of time.
        reach: How many neighbors on each side count.
    """
    code = name
    for step in (step for far in range(1, reach + 1) for step in (-far, far)):
        beside = np.roll(name, step)
        same = np.roll(lane, step) == lane
        same[: step if step > 0 else 0] = False
        if step < 0:
            same[step:] = False
        # What has no neighbor is like nothing of another lane.
        beside = np.where(same, beside, names_n + lane)
        code = distinct_codes(code * (names_n + int(lane.max()) + 1) + beside)[1]
    return code


def _annotate(
    found: _Found, options: Mapping[str, Any], profile: str, trace: RankTrace, in_graph: IntArray
) -> RankParts:
    """Take annotations ahead of all else that they do not contradict; return what they fit."""
    files = options.get("graph_annotations")
    if not files or not in_graph.size:
        return RankParts()
    kernels = trace.unfiltered[KERNEL_TABLE]
    nodes = kernels.take(in_graph)
    known = annotated(files, profile, nodes, trace.tables.get(_OLD_GRAPHS))
    code = np.where(known.code < 0, -1, known.code + len(found.texts))
    if options["anonymize"]:
        code[1] = -1  # a line names a file
    found.texts.extend(known.texts)
    names, name = coded_names(kernels["demangled_name_id"], trace.strings)
    rules = rules_for(names, options["engine"])
    odd_n = contradicted_n(names, name, found.texts, found.part, in_graph, code[0], rules)
    fit = RankParts(annotated_n=known.found_n, annotation_key=known.key, contradicted_n=odd_n)
    if odd_n:
        return fit
    found.set(in_graph, code[0], ANNOTATION)
    found.source[in_graph] = code[1]
    lines = in_graph[(code[1] >= 0) & (found.by[in_graph] < 0)]
    found.by[lines] = ANNOTATION
    if (code < 0).all() or all(rank_in_file_name(item.file) is not None for item in files):
        return fit
    return replace(fit, shared_map=graph_kernels(nodes, names, name[in_graph]))


def _sums(ops: RankOps, found: _Found) -> ByKey:
    """Add up the kernels that the filters leave; nothing where no part is known."""
    ranged = ops.ranged
    rows = np.flatnonzero(ops.is_kernel)
    if not rows.size or not (found.by >= 0).any():
        return ByKey()
    kept = slice(None) if ranged.kept is None else ranged.kept[: found.part.size]
    device = np.broadcast_to(ranged.chosen(ranged.device), ops.name.shape)[rows].astype(np.int64)
    columns = [device, ops.name[rows].astype(np.int64)]
    columns += [codes[kept] for codes in (found.part, found.source, found.by)]
    first, code = distinct_rows(columns)
    texts, by = [*found.texts, ""], [*FOUND_BY, ""]
    keys: list[Texts] = [
        (
            *(str(ranged.device_ids[gpu]), ops.names[name], ops.full_names[name]),
            *(texts[part], texts[source], by[way]),
        )
        for gpu, name, part, source, way in zip(*(c[first].tolist() for c in columns), strict=True)
    ]
    inside = code[ops.inside[rows]]
    return ByKey.of(
        keys,
        {
            "launches_n": np.bincount(inside, minlength=first.size).astype(np.int64),
            "total_ns": exact_sums(code, ops.clipped_ns[rows], first.size),
            "exclusive_ns": exact_sums(code, ops.exclusive_ns[rows], first.size),
        },
    )
