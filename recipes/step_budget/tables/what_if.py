"""Tables of replays: how far they can be believed, and what each change would gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.job.meetings import Meetings
from nsys_llm.critical_path.job.replay import JobReplays, late_ranks, new_path, replays
from nsys_llm.critical_path.path.classes import CLASS_NAMES
from nsys_llm.critical_path.rank.rank import RankRows
from nsys_llm.critical_path.replay.condensed import USUAL
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.manifest.what_if import (
    CATEGORY,
    HOST,
    KERNEL,
    KERNELS,
    MACHINE,
    RANK,
    TRANSFER,
    WAIT,
    ReplayChange,
    parse_change,
    unnamed,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, percent
from nsys_llm.report.prices.replays import MOST_RESIDUAL_PCT

from .job_tables import JobPaths

#: Classes of a path in which a call waits, and in which the host works.
_WAITING: Final = tuple(map(CLASS_NAMES.index, ("sync_latency", "host_sync")))
_HOST: Final = tuple(map(CLASS_NAMES.index, ("host_no_cuda", "launch_api", "other_api")))
#: How much shorter transfer is tried; ours.
_TRANSFER: Final = 0.5
#: Ranks, or machines, that are tried as the median one; ours.
_MOST_LATE: Final = 4
#: Verdicts of which no replay is: nobody is named, the profiler is, who waits, or all of a stage.
_NO_FIX: Final = (None, "profiler", "less_work", "slow_stage")

REASONS: Final[Mapping[str, str]] = {
    "no_steps": "no step is whole on all of its ranks",
    "too_large": "a rank has too many waits and events to be replayed",
    "circle": "by the recorded rows, some operations depend on each other in a circle",
    "residual": "replayed with the usual lags, steps take other times than were recorded",
}
_NOT_THERE: Final = "no rank has such a computation, call, label or matched collective"


def replay_rows(
    paths: JobPaths,
    meetings: Meetings,
    verdicts: Sequence[RankVerdict],
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], str | None]:
    """Return the tables replay and what_if, and why no change is replayed."""
    if not paths.job.counted.size:
        return {}, REASONS["no_steps"]
    asked = _asked(options)
    named = _named(paths, meetings, {*_changes(paths, verdicts), *asked})
    replay = replays(paths.rows, meetings, paths.job, named)
    if isinstance(replay, str):
        return {}, REASONS[replay]
    residuals, off_pct = _residuals(paths, replay)
    if off_pct > MOST_RESIDUAL_PCT:
        return {"replay": residuals}, REASONS["residual"]
    tried = _what_if(paths, replay, named)
    lost = unanswered(options, _NOT_THERE, {*asked} - {*named})
    now_ns = float(paths.wall_ns[paths.job.counted].mean())
    tried += [{**row, "now_ns": now_ns} for row in lost]
    texts = {change.text for change in asked} | {row["change"] for row in lost}
    # What was asked for first, then by gain.
    tried.sort(
        key=lambda row: (
            *(row["change"] not in texts, row.get("gain_ns") is None),
            *(-(row.get("gain_ns") or 0.0), row["change"]),
        )
    )
    return {"replay": residuals, "what_if": tried}, None


def _asked(options: Mapping[str, Any]) -> list[ReplayChange]:
    return [parse_change(text) for text in options["what_if"] or ()]


def unanswered(
    options: Mapping[str, Any], reason: str, changes: set[ReplayChange] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of what_if for changes that were asked for and not replayed; None: all."""
    asked = _asked(options)
    shown = dict(zip(asked, asked, strict=True))
    if options["anonymize"]:
        # A name that the job does not have is a text of whoever typed it.
        hidden = unnamed([change.text for change in asked])
        shown = {change: hidden[change.text] for change in asked}
    return [
        {"change": new.text, "what": new.what, "name": new.name or None, "reason": reason}
        for change, new in shown.items()
        if changes is None or change in changes
    ]


def _named(paths: JobPaths, meetings: Meetings, changes: set[ReplayChange]) -> list[ReplayChange]:
    columns = {name for _, budget in paths.rows for name in budget.replay.columns}

    def has(change: ReplayChange) -> bool:
        if change.what in (RANK, MACHINE):
            return bool(late_ranks(paths.rows, change))
        if change.what == TRANSFER:
            return meetings.last_ns.size > 0
        return change.what not in (CATEGORY, KERNEL, KERNELS, WAIT, HOST) or change.text in columns

    return sorted(change for change in changes if has(change))


def _changes(paths: JobPaths, verdicts: Sequence[RankVerdict]) -> set[ReplayChange]:
    names = {name for _, budget in paths.rows for name in budget.replay.columns}
    tried = {parse_change(name) for name in names - {"", USUAL}}
    if len(paths.rows) > 1:
        tried |= {ReplayChange(TRANSFER, factor=_TRANSFER), *_of_verdicts(paths.rows, verdicts)}
    return tried


def _of_verdicts(rows: RankRows, verdicts: Sequence[RankVerdict]) -> list[ReplayChange]:
    """Return the ranks and machines that stand out as they would be like the others.

    Of many those for which the others wait most.
    """
    ranks = {rank.number or 0: rank for rank, _ in rows}
    changes: dict[ReplayChange, None] = {}
    for row in sorted(verdicts, key=lambda row: -(row.about_ns or row.bound_ns or 0)):
        rank = ranks.get(row.rank)
        if rank is None or row.verdict in _NO_FIX:
            continue
        host = rank.host if row.verdict == "slow_host" else None
        changes[ReplayChange(MACHINE, host) if host else ReplayChange(RANK, rank.file)] = None
    return [*changes][:_MOST_LATE]


def _residuals(paths: JobPaths, replay: JobReplays) -> tuple[Columns, float]:
    """Return the table replay, and by how much steps are off in all, percent."""
    wall_ns = paths.wall_ns
    replayed_ns = np.diff(replay.edge_ns[:, replay.names.index(USUAL)])
    off_ns = replayed_ns - wall_ns
    columns: Columns = {
        "step": np.arange(wall_ns.size),
        "mark": list(paths.job.mark),
        "wall_ns": wall_ns,
        "replayed_ns": replayed_ns,
        "residual_pct": percent(off_ns, wall_ns),
    }
    counted = paths.job.counted
    total = int(wall_ns[counted].sum())
    return columns, 100.0 * int(np.abs(off_ns[counted]).sum()) / total if total else 0.0


def _what_if(
    paths: JobPaths, replay: JobReplays, changes: Sequence[ReplayChange]
) -> list[dict[str, Any]]:
    counted = paths.job.counted
    now_ns = float(paths.wall_ns[counted].mean())
    served_ns = _served_ns(paths)
    rows = []
    for place, change in enumerate(changes, start=2):
        then_ns = float(np.diff(replay.edge_ns[:, place])[counted].mean())
        time_ns, certain_ns = new_path(
            replay, place, replay.graph.codes(change.text), int(counted[0]), int(counted[-1])
        )
        if change.what in (HOST, WAIT):
            # Requests do not come earlier because the host is done earlier.
            then_ns = max(then_ns, served_ns)
        total, limit = int(time_ns.sum()), int(time_ns.argmax())
        rows.append(
            {
                "change": change.text,
                "what": change.what,
                "name": change.name or None,
                "now_ns": now_ns,
                "then_ns": then_ns,
                "gain_ns": now_ns - then_ns,
                "gain_pct": 100.0 * (now_ns - then_ns) / now_ns if now_ns else None,
                "certain_pct": 100.0 * certain_ns / total if total else None,
                "next_limit": CLASS_NAMES[limit] if total else None,
                "next_limit_pct": _share_pct(time_ns, [limit]),
                "wait_pct": _share_pct(time_ns, _WAITING),
                "host_pct": _share_pct(time_ns, _HOST),
            }
        )
    return rows


def _share_pct(time_ns: IntArray, classes: Sequence[int]) -> float | None:
    """Return the part of a path that is of some classes, percent; None for one of no length."""
    total = int(time_ns.sum())
    return 100.0 * int(time_ns[list(classes)].sum()) / total if total else None


def _served_ns(paths: JobPaths) -> float:
    """Return how long a mean step is at least however fast the host is; 0 where nothing tells.

    A GPU computes as before, and requests come when they come.
    """
    job, least_ns = paths.job, 0.0
    for place, (_, budget) in enumerate(paths.rows):
        step = job.step[place, job.counted]
        for device in budget.devices if (step >= 0).all() else ():
            if device.no_work_ns[step].any():
                fixed_ns = device.rungs_ns[step, 0] + device.no_work_ns[step]
                least_ns = max(least_ns, float(fixed_ns.mean()))
    return least_ns
