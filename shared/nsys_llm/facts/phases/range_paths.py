"""The ranges of one rank as paths: ranges of one label inside the same others are one row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.numeric.grouping import distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray

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
