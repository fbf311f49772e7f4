"""Which annotation of --graph-annotations the kernels in CUDA graphs of one rank have. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.graph_annotations import GraphAnnotations
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import (
    begins_group,
    distinct_codes,
    distinct_rows,
    joined,
    position_in_group,
    positions,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.categories import RuleSet
from nsys_llm.taxonomy.kernel_levers import ATTENTION
from nsys_llm.taxonomy.model_parts import (
    BACKWARD,
    LEAST_JOINED,
    MOST_ODD,
    WITHOUT_ATTENTION,
    is_among,
)
from nsys_llm.trace.identity import rank_in_file_name

#: Ways in which a key is made, in the order in which they are tried.
KEYS: Final = ("graphNodeId", "graphId", "graphExecId")
#: Executable graphs of one graph that are looked at.
_MOST_EXECS: Final = 16
#: Categories of which the size of the batch decides which module runs which kernel.
_PRODUCTS: Final = ("gemm", "gemv")
_LOW: Final = np.int64(0xFFFFFFFF)
_SHIFT: Final = np.int64(32)
#: What entries of one key contradict each other in.
_CONFLICT: Final = -2

#: Two codes into the texts, of part and source; -1 for none.
_Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AnnotatedNodes:
    """The annotations of the nodes of some kernels.

    Attributes:
        texts: What the codes stand for.
        code: Shape (2, kernels), part and source; -1 for none, everywhere if too few are found.
        found_n: Kernels that have an entry.
        key: The one of `KEYS` that found most.
    """

    texts: tuple[str, ...]
    code: _Codes
    found_n: int
    key: str


def annotated(
    files: Sequence[GraphAnnotations], profile: str, nodes: Table, graphs: Table | None
) -> AnnotatedNodes:
    """Look some kernels of graphs up.

    Args:
        profile: Path of their profile: a file whose name has a rank is for profiles of that rank.
        nodes: The kernels, with graph_node_id and graph_id.
        graphs: Creations of graphs, with graph_id and graph_exec_id; None where there are none.
    """
    rank = rank_in_file_name(profile)
    own = [item for item in files if rank_in_file_name(item.file) in (None, rank)]
    texts, keys, of_key = _merged(own)
    found: list[tuple[int, str, _Codes]] = []
    for key, wanted in _ways(nodes, graphs):
        code = _looked_up(keys, of_key, wanted)
        found.append((int((code >= 0).any(axis=0).sum()), key, code))
        if found[-1][0] >= LEAST_JOINED * len(nodes):
            return AnnotatedNodes(texts, code, found[-1][0], key)
    most_n, key, _ = max(found, key=lambda item: item[0])
    return AnnotatedNodes(texts, np.full((2, len(nodes)), -1, dtype=np.int64), most_n, key)


def contradicted_n(
    names: Sequence[str],
    name: IntArray,
    texts: Sequence[str],
    known: IntArray,
    in_graph: IntArray,
    part: IntArray,
    rules: RuleSet,
) -> int:
    """Return how many annotated kernels run elsewhere, 0 where they are too few to refuse a map.

    Args:
        name: Shape (kernels,), codes of names; likewise `known`, of the parts by ranges, or -1.
        part: Shape (kernels in graphs,), of the annotated parts, or -1.
    """
    shown: dict[int, set[str]] = {}
    for code, place in _pairs(name, known):
        shown.setdefault(code, set()).add(texts[place])
    every = set[str]().union(*shown.values())
    known_n = odd_n = attention_n = misplaced_n = both_n = 0
    for (code, place), kernels_n in _pairs(name[in_graph], part).items():
        text, category = texts[place], rules.classify(names[code]).category
        is_known = category not in _PRODUCTS and code in shown and is_among(text, every)
        odd = is_known and not is_among(text, shown[code])
        no_attention = WITHOUT_ATTENTION.search(text.removesuffix(BACKWARD)) is not None
        misplaced = category == ATTENTION and no_attention
        known_n += kernels_n * is_known
        odd_n += kernels_n * odd
        attention_n += kernels_n * (category == ATTENTION)
        misplaced_n += kernels_n * misplaced
        both_n += kernels_n * (odd or misplaced)
    is_other = odd_n > MOST_ODD * known_n or 2 * misplaced_n > attention_n
    return both_n if is_other else 0


def _pairs(name: IntArray, part: IntArray) -> dict[tuple[int, int], int]:
    """Return how often each name is in each part."""
    rows = np.flatnonzero(part >= 0)
    if not rows.size:
        return {}
    first, pair = distinct_rows([name[rows], part[rows]])
    keys = zip(name[rows[first]].tolist(), part[rows[first]].tolist(), strict=True)
    return dict(zip(keys, np.bincount(pair).tolist(), strict=True))


def graph_kernels(nodes: Table, names: Sequence[str], name: IntArray) -> ByKey:
    """Count kernels by graph and a digest of what its nodes run; `name` has their codes."""
    node_id, graph_id = nodes["graph_node_id"], nodes["graph_id"]
    graph = np.where(graph_id != NULL_INT, graph_id, node_id >> _SHIFT)
    digests: dict[int, Any] = {}
    first, _ = distinct_rows([graph, node_id & _LOW, name])
    for at in first.tolist():
        digest = digests.setdefault(int(graph[at]), hashlib.sha256())
        digest.update(f"{node_id[at] & _LOW} {names[name[at]]}\n".encode(errors="replace"))
    used, code = distinct_codes(graph)
    keys = [(str(key), digests[key].hexdigest()) for key in used.tolist()]
    return ByKey.of(keys, {"kernels_n": np.bincount(code, minlength=used.size)})


def _merged(files: Sequence[GraphAnnotations]) -> tuple[tuple[str, ...], IntArray, _Codes]:
    """Return all texts, the distinct keys in order, and what is said of each."""
    texts = tuple(sorted({text for item in files for text in item.texts}))
    moved = [np.append(positions(item.texts, texts), -1) for item in files]
    keys = joined([item.key for item in files])
    code = np.stack(
        [
            joined([to[item.part] for to, item in zip(moved, files, strict=True)]),
            joined([to[item.source] for to, item in zip(moved, files, strict=True)]),
        ]
    )
    order = np.argsort(keys, kind="stable")
    keys, code = keys[order], code[:, order]
    first = np.flatnonzero(begins_group(keys))
    return texts, keys[first], _agreed(code, first) if first.size else code


def _agreed(code: _Codes, first: IntArray) -> _Codes:
    """Return what each group of columns says, `_CONFLICT` where it says several things."""
    most = np.maximum.reduceat(code, first, axis=1)
    known = np.where(code < 0, np.iinfo(np.int64).max, code)
    least = np.minimum.reduceat(known, first, axis=1)
    return np.where((most >= 0) & (least != most), _CONFLICT, most)


def _looked_up(keys: IntArray, of_key: _Codes, wanted: Sequence[IntArray]) -> _Codes:
    """Return what is said of each kernel, by the keys that it may have; -1 for nothing."""
    said = []
    for some in wanted:
        if not keys.size:
            continue
        place = np.minimum(np.searchsorted(keys, some), keys.size - 1)
        said.append(np.where(keys[place] == some, of_key[:, place], -1))
    if not said:
        return np.full((2, wanted[0].size), -1, dtype=np.int64)
    both = np.stack(said)
    most, least = both.max(axis=0), np.where(both < 0, np.iinfo(np.int64).max, both).min(axis=0)
    is_odd = (both == _CONFLICT).any(axis=0) | ((most >= 0) & (least != most))
    return np.where(is_odd, -1, most)


def _ways(nodes: Table, graphs: Table | None) -> Iterator[tuple[str, Sequence[IntArray]]]:
    """Yield the keys that kernels may have, by the way in which they are made.

    By the executable graph first, where what kernels say is known to be the graph that it is of:
    that number may be another executable graph's.
    """
    node_id, graph_id = nodes["graph_node_id"], nodes["graph_id"]
    low, has_graph = node_id & _LOW, graph_id != NULL_INT
    of_kernel = np.where(has_graph, graph_id, node_id >> _SHIFT)
    direct = (KEYS[0], [node_id]), (KEYS[1], [np.where(has_graph, (graph_id << _SHIFT) | low, -1)])
    pairs = None
    if graphs is not None:
        known = (graphs["graph_id"] != NULL_INT) & (graphs["graph_exec_id"] != NULL_INT)
        pairs = graphs.take(known)
    if pairs is None or not len(pairs):
        yield from direct
        return
    graph, made = pairs["graph_id"], pairs["graph_exec_id"]
    by_exec = (
        KEYS[2],
        [
            np.where(execs >= 0, (execs << _SHIFT) | low, -1)
            for execs in _execs(graph, made, of_kernel)
        ],
    )
    is_graph = (np.isin(of_kernel, graph) & ~np.isin(of_kernel, made)).any()
    yield from (by_exec, *direct) if is_graph else (*direct, by_exec)


def _execs(graph: IntArray, made: IntArray, wanted: IntArray) -> Iterator[IntArray]:
    """Yield the executable graphs of some graphs, one after the other; -1 for none."""
    rows, _ = distinct_rows([graph, made])
    rows = rows[np.argsort(graph[rows], kind="stable")]
    graph, made = graph[rows], made[rows]
    nth = position_in_group(graph)
    for number in range(min(int(nth.max()) + 1, _MOST_EXECS)):
        some, execs = graph[nth == number], made[nth == number]
        place = np.minimum(np.searchsorted(some, wanted), some.size - 1)
        yield np.where(some[place] == wanted, execs[place], -1)
