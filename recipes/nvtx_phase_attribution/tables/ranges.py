"""The tables of ranges, by name and by path, made of merged facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.facts.phases.ranges import PUSH_POP, START_END, rolled_up, shown_name
from nsys_llm.facts.phases.rank import RankPhases
from nsys_llm.numeric.by_key import ByKey, Texts
from nsys_llm.numeric.grouping import positions
from nsys_llm.report.columns import Columns, percent

from .rank_frames import Parts, sums_frame

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

    frame = sums_frame(parts, lambda part: _shown(part.ranges.ranges, shown), _KEYS)
    return {
        "ranges": {} if frame.empty else _ranges(frame, parts, gpu_ns, shown),
        "range_tree": _tree(parts, gpu_ns, counting, numbers),
    }


def _shown(sums: ByKey, shown: Any) -> ByKey:
    return ByKey.of([shown(key) for key in sums.keys], sums.sums)


def _ranges(frame: pd.DataFrame, parts: Parts, gpu_ns: int, shown: Any) -> Columns:
    groups = frame.groupby(list(_KEYS), sort=True)
    rows = groups[[*_SUMS]].sum().assign(ranks_n=groups["at"].nunique()).reset_index()
    rows = rows.sort_values(
        ["self_ns", "inclusive_ns", *_KEYS], ascending=[False, False, True, True, True]
    )
    keys: list[Texts] = list(zip(rows["kind"], rows["domain"], rows["name"], strict=True))
    examples, phases = _texts(parts, shown)
    return {
        **{name: rows[name] for name in (*_KEYS, "ranks_n", *_SUMS)},
        "label": [f"{name}@{domain}" if domain else name for _, domain, name in keys],
        "example": [examples[key] for key in keys],
        "phase": [phases.get(key) or None for key in keys],
        "self_pct": percent(rows["self_ns"].to_numpy(dtype=np.int64), gpu_ns),
    }


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
        labels = [_shown_label(label, counting, numbers) for label in key[1:]]
        return (key[0], *labels[:depth_n])

    sums = [_paths(part, path) for _, part in parts]
    total = ByKey.merge(sums)
    ranks_n = ByKey.merge(
        [ByKey(item.keys, {"n": np.ones(len(item.keys), dtype=np.int64)}) for item in sums]
    )["n"]
    parent = positions((key[:-1] for key in total.keys), total.keys)
    depth = np.array([len(key) - 2 for key in total.keys], dtype=np.int64)
    path_sums = {name: total[name] for name in _PATH_SUMS}
    inclusive_ns = rolled_up(path_sums["self_ns"], parent)
    ops_n = rolled_up(path_sums["self_ops_n"], parent)
    texts = _unique([_BETWEEN.join(key[1:]) + _MARKS[key[0]] for key in total.keys])
    order = np.array(
        sorted(
            range(len(texts)),
            key=lambda row: (int(depth[row]), -int(inclusive_ns[row]), total.keys[row]),
        ),
        dtype=np.int64,
    )
    columns: Mapping[str, npt.NDArray[Any]] = {
        "path": np.array(texts, dtype=object),
        "parent_path": np.array(
            [texts[up] if up >= 0 else None for up in parent.tolist()], dtype=object
        ),
        "kind": np.array([key[0] for key in total.keys], dtype=object),
        "label": np.array([key[-1] for key in total.keys], dtype=object),
        "depth": depth,
        "ranks_n": ranks_n,
        **path_sums,
        "ops_n": ops_n,
        "inclusive_ns": inclusive_ns,
        "inclusive_pct": percent(inclusive_ns, gpu_ns),
    }
    return {name: values[order] for name, values in columns.items()}


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


def _shown_label(label: str, counting: frozenset[str], numbers: str) -> str:
    name, at, domain = label.rpartition("@")
    if not at:
        return shown_name(label, counting, numbers)
    return f"{shown_name(name, counting, numbers)}@{domain}"
