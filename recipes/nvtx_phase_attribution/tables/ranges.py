"""The tables of ranges, by name and by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.facts.phases.ranges import PUSH_POP, START_END, rolled_up, shown_name
from nsys_llm.facts.phases.rank import RankPhases
from nsys_llm.numeric.by_key import ByKey, Texts
from nsys_llm.numeric.grouping import positions
from nsys_llm.report.columns import Columns, percent, sorted_columns

from .phases import Parts, sums_frame

_KEYS: Final = ("kind", "domain", "name")
_SUMS: Final = (
    "instances_n",
    "host_ns",
    "self_host_ns",
    "ops_n",
    "kernels_n",
    "inclusive_ns",
    "self_ops_n",
    "self_ns",
    "span_ns",
    "idle_inside_ns",
)
_BETWEEN: Final = " / "
#: Behind a path: a start/end range may have the label of a push/pop one.
_MARKS: Final = {PUSH_POP: "", START_END: " [start/end]"}


def range_columns(parts: Parts, gpu_ns: int, options: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the tables ranges and range_tree."""
    numbers = options["running_numbers"]
    counting = frozenset(key for _, part in parts for key in part.ranges.counting)

    def shown(key: Texts) -> Texts:
        return (*key[:2], shown_name(key[2], counting, numbers))

    def of_shown(part: RankPhases) -> ByKey:
        sums = part.ranges.ranges
        return ByKey.of([shown(key) for key in sums.keys], sums.sums)

    frame = sums_frame(parts, of_shown, _KEYS, _SUMS)
    return {
        "ranges": {} if frame.empty else _ranges(frame, parts, gpu_ns, shown),
        "range_tree": _tree(parts, gpu_ns, counting, numbers),
    }


def _ranges(frame: pd.DataFrame, parts: Parts, gpu_ns: int, shown: Any) -> Columns:
    groups = frame.groupby(list(_KEYS), sort=True)
    rows = groups[[*_SUMS]].sum().assign(ranks_n=groups["at"].nunique()).reset_index()
    keys: list[Texts] = list(zip(rows["kind"], rows["domain"], rows["name"], strict=True))
    examples, phases = _texts(parts, shown)
    columns = {
        **{name: rows[name] for name in (*_KEYS, "ranks_n", *_SUMS)},
        "label": [f"{name}@{domain}" if domain else name for _, domain, name in keys],
        "example": [examples[key] for key in keys],
        "phase": [phases.get(key) or None for key in keys],
        "self_pct": percent(rows["self_ns"].to_numpy(dtype=np.int64), gpu_ns),
    }
    # Rows are by key already.
    return sorted_columns(columns, "-self_ns", "-inclusive_ns")


def _texts(parts: Parts, shown: Any) -> tuple[dict[Texts, str], dict[Texts, str]]:
    """Return the first example of each name, and its first phase, over all ranks."""
    examples: dict[Texts, str] = {}
    phases: dict[Texts, str] = {}
    for _, part in parts:
        for key, text in part.ranges.examples.items():
            examples[shown(key)] = min(examples.get(shown(key), text), text)
        for key, phase in part.ranges.phases.items():
            if phase:
                phases[shown(key)] = min(phases.get(shown(key), phase), phase)
    return examples, phases


def _tree(parts: Parts, gpu_ns: int, counting: frozenset[str], numbers: str) -> Columns:
    depths = [part.ranges.depth_n for _, part in parts if part.ranges.depth_n is not None]
    depth_n = min(depths, default=None)

    def path(key: Texts) -> Texts:
        labels = (label.rpartition("@") for label in key[1:])
        named = [
            f"{shown_name(name, counting, numbers)}@{domain}"
            if at
            else shown_name(domain, counting, numbers)
            for name, at, domain in labels
        ]
        return (key[0], *named[:depth_n])

    sums = [_paths(part, path) for _, part in parts]
    total = ByKey.merge(sums)
    ones = np.ones(sum(len(item.keys) for item in sums), dtype=np.int64)
    ranks_n = ByKey.of([key for item in sums for key in item.keys], {"n": ones})["n"]
    parent = positions((key[:-1] for key in total.keys), total.keys)
    depth = np.array([len(key) - 2 for key in total.keys], dtype=np.int64)
    path_sums = {name: total[name] for name in _PATH_SUMS}
    inclusive_ns = rolled_up(path_sums["self_ns"], parent)
    texts = _unique([_BETWEEN.join(key[1:]) + _MARKS[key[0]] for key in total.keys])
    columns = {
        "path": texts,
        "kind": [key[0] for key in total.keys],
        "label": [key[-1] for key in total.keys],
        "depth": depth,
        "ranks_n": ranks_n,
        **path_sums,
        "ops_n": rolled_up(path_sums["self_ops_n"], parent),
        "inclusive_ns": inclusive_ns,
        "inclusive_pct": percent(inclusive_ns, gpu_ns),
    }
    return sorted_columns(columns, "depth", "-inclusive_ns")


_PATH_SUMS: Final = ("instances_n", "host_ns", "self_host_ns", "self_ops_n", "self_ns")


def _paths(part: RankPhases, path: Any) -> ByKey:
    """Return the paths of a rank as they are shown; what is too deep counts where it is cut."""
    sums = part.ranges.paths
    if not sums.keys:
        return sums
    keys = [path(key) for key in sums.keys]
    whole = np.array([len(new) == len(old) for new, old in zip(keys, sums.keys, strict=True)])
    # Ranges below the cut are no ranges of the path above.
    columns = {
        name: values if name.startswith("self_") else np.where(whole, values, 0)
        for name, values in sums.sums.items()
    }
    return ByKey.of(keys, columns)


def _unique(texts: Sequence[str]) -> list[str]:
    """Return texts of which each occurs once: names may hold what stands between them."""
    used = set(texts)
    reported: set[str] = set()
    unique = []
    for text in texts:
        candidate, number = text, 2
        while candidate in reported or (candidate != text and candidate in used):
            candidate, number = f"{text} ({number})", number + 1
        reported.add(candidate)
        unique.append(candidate)
    return unique
