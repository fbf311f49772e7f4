"""The way in: what held each operation of a rank back, the path to an end, and replays of a change.

In the order of their use. `PathOps` are the operations and calls of a rank, `path_edges` what each
waited for. The path: `Outline` cuts the edges into segments between communication, `Blocks` gives
their stretches with what they charge, `kept_whole` tells which stay whole, and `path_forest` is
what one rank hands on, with what `Charging` added up for each `Walk`. The replay: `skeleton` is the
same graph without what no change moves, `rank_graph` and a `Condenser` its weights under each
change, `levels` and `longest` run it, over the ranks that collectives join.

What begins in one rank goes on over ranks in `tables/` of step_budget: `meetings.py`, `job.py`
(steps of the job), `job_walk.py` and `job_sums.py` (its path), `job_graph.py` and `replay.py` (its
replays).
"""

from __future__ import annotations

from nsys_llm.analyses.critical_path.path.blocks import Blocks
from nsys_llm.analyses.critical_path.path.edges import Clues, Edges, path_edges
from nsys_llm.analyses.critical_path.path.forest import (
    PathForest,
    kept_whole,
    path_forest,
)
from nsys_llm.analyses.critical_path.path.ops import PathOps
from nsys_llm.analyses.critical_path.path.outline import Outline, member_ops
from nsys_llm.analyses.critical_path.path.visits import Charges, Charging, Passages, Walk
from nsys_llm.analyses.critical_path.replay.changes import Names, changed
from nsys_llm.analyses.critical_path.replay.condensed import Condenser
from nsys_llm.analyses.critical_path.replay.skeleton import Marks, skeleton
from nsys_llm.analyses.critical_path.replay.solve import Levels, levels, longest
from nsys_llm.analyses.critical_path.replay.weights import RankGraph, Weights, rank_graph

__all__ = [
    "Blocks",
    "Charges",
    "Charging",
    "Clues",
    "Condenser",
    "Edges",
    "Levels",
    "Marks",
    "Names",
    "Outline",
    "Passages",
    "PathForest",
    "PathOps",
    "RankGraph",
    "Walk",
    "Weights",
    "changed",
    "kept_whole",
    "levels",
    "longest",
    "member_ops",
    "path_edges",
    "path_forest",
    "rank_graph",
    "skeleton",
]
