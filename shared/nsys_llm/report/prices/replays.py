"""Which steps a replay speaks of, whether that of a change counts, and what it gains on a GPU.

Reads tables only.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import ChangeKind
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.report.walls import Gpu, Walls

#: Share of the steps by which a replay with usual lags may be off, percent; no change counts above.
MOST_RESIDUAL_PCT: Final = 3.0
#: Share of the replayed path in waits, or in the host's work, from which on these decide, percent.
_MOST_OF_PATH_PCT: Final = 50.0
#: Share of the recorded path in communication that is not matched, percent.
_MOST_UNMATCHED_PCT: Final = 10.0
#: A GPU whose host paces it idles for this part of the host's path.
_PACED_SHARE: Final = 0.05
#: Steps that fill less of a span say nothing of it: most was outside of them, or start-up.
_LEAST_SHARE: Final = 0.1
#: One step of at least so many has so much of what happens once.
_LEAST_STEPS: Final = 4
_ONCE: Final = 0.9
#: Marks of a step that counts, and of one that the capture cuts.
_COUNTED, _CUT = "", "cut"


def is_once(worst_ns: float, mean_ns: float, steps_n: int) -> bool:
    """Tell whether one step has nearly all of a time, which others have as well or not at all."""
    return steps_n >= _LEAST_STEPS and worst_ns >= _ONCE * mean_ns * steps_n > 0


def rows_of(tables: Tables, name: str) -> list[Record]:
    """Return the rows of a table; none where it is not there."""
    return records(tables[name]) if name in tables else []


def row_by_gpu(tables: Tables, name: str) -> dict[Gpu, Record]:
    """Return the rows of a table of one row a GPU; none where it is not there."""
    return {(row["rank"], row["device_id"]): row for row in rows_of(tables, name)}


class SpanSteps:
    """Steps of the job, as job_steps and rank_edges have them, or of single GPUs, as tail_ranks.

    Attributes:
        unit: What a step is; None where there are none.
        replayed_n: Steps that a gain in a replayed step is of: those that count, and those that the
            capture cuts in proportion. A start-up or warm-up is none.
    """

    def __init__(self, tables: Tables) -> None:
        of_job = "job_steps" in tables
        times_ns: Any = tables["job_steps"].groupby("mark")["wall_ns"].agg(list) if of_job else {}
        counted_ns, cut_ns = times_ns.get(_COUNTED, []), times_ns.get(_CUT, [])
        gpus = {} if of_job else row_by_gpu(tables, "tail_ranks")
        units = [row["step_unit"] for row in (*rows_of(tables, "rank_edges"), *gpus.values())]
        self.unit: str | None = next(filter(None, units), None)
        is_known = self.unit and sum(counted_ns)
        mean_ns = self._mean_ns = sum(counted_ns) / len(counted_ns) if is_known else None
        self._counted_n = len(counted_ns)
        self._paths = {(row["change"], row["name"]): row for row in rows_of(tables, "ceilings")}
        self._of_gpus_ns = {gpu: row["step_ns"] for gpu, row in gpus.items()}
        self.replayed_n = len(counted_ns) + sum(min(ns / mean_ns, 1.0) for ns in cut_ns if mean_ns)

    def in_span(self, gpu: Gpu, span_ns: int) -> float | None:
        """Return how many mean steps a span is as long as; None where there are none."""
        mean_ns = self._of_gpus_ns.get(gpu, self._mean_ns)
        return span_ns / mean_ns if mean_ns else None

    def is_once(self, change: str, name: str | None, gain_ns: float) -> bool:
        """Tell whether one step has nearly all of a gain, and of its row of `ceilings`."""
        row = self._paths.get((change, name))
        if row is None or row["worst_ns"] < _ONCE * gain_ns:
            return False
        return is_once(row["worst_ns"], row["path_ns"], self._counted_n)

    def are_span(self, span_ns: int) -> bool:
        """Tell whether the replayed steps are enough of a span to speak of it."""
        return self._mean_ns is None or self.replayed_n * self._mean_ns >= _LEAST_SHARE * span_ns


class Replays:
    """The tables of step_budget; none of them has to be there."""

    def __init__(self, tables: Tables, walls: Walls) -> None:
        self.steps = SpanSteps(tables)
        self._rows = {row["change"]: row for row in rows_of(tables, "what_if")}
        self._is_off = "replay" in tables and _residual_pct(tables["replay"]) > MOST_RESIDUAL_PCT
        self._unmatched_pct = sum(
            row["share_pct"] or 0.0
            for row in rows_of(tables, "step_classes")
            if (row["scope"], row["class"], row["detail"]) == ("job", "communication", None)
        )
        idle = (percent(walls.host_idle_ns(gpu), walls.span_ns(*gpu)) for gpu in walls.gpus)
        self._idle_pct = max(idle, default=0.0)
        self._file = walls.file
        self._hosts: Any = tables["files"]["host"] if "files" in tables else {}

    def of_rank(self, rank: int) -> str:
        """Return the row of `what_if` in which a rank is like its peers, or its machine is."""
        machine = f"machine:{self._hosts.get(rank)}"
        return machine if machine in self._rows else f"rank:{self._file(rank)}"

    def gain(
        self, kind: ChangeKind, text: str | None, span_ns: int, usual_ns: float | None
    ) -> tuple[float | None, str | None]:
        """Return what the replay in a row of `what_if` gains, ns, or why it does not count.

        Neither where no replay is of such a change, as `text` is None. Of a rank the usual size is
        what its judge says; where that has a bound alone, nobody knows who waits for the rank.
        """
        row = self._rows.get(text)
        if text is None or self._is_off:
            return None, text and "residual"
        if row is None or row["gain_ns"] is None:
            return None, "not_replayed"
        gain_ns = max(float(row["gain_ns"]), 0.0) * self.steps.replayed_n
        of_ranks, of_device = kind in ("transfer", "rank"), kind not in ("host", "wait")
        # How long a wait takes, or a host that was not recorded, tells too little of devices.
        host_pct = row["host_pct"] or 0.0
        path_pct = host_pct * row["then_ns"] / max(row["now_ns"], 1.0)
        # A wait goes, and the host is what paces the step: it is waited for anyway.
        paces = kind == "wait" or (of_device and self._idle_pct < _PACED_SHARE * path_pct)
        doubts = {
            "not_matched": (of_ranks and self._unmatched_pct > _MOST_UNMATCHED_PCT)
            or (kind == "rank" and usual_ns is None),
            "fixed_latency": of_device and (row["wait_pct"] or 0.0) > _MOST_OF_PATH_PCT,
            "host_ahead": paces and host_pct > _MOST_OF_PATH_PCT,
            "not_replayed": not self.steps.are_span(span_ns),
            "contradicted": kind == "rank" and 2 * gain_ns < (usual_ns or 0.0),
        }
        reason = next((reason for reason, holds in doubts.items() if holds), None)
        return None if reason else gain_ns, reason


def _residual_pct(steps: pd.DataFrame) -> float:
    counted = steps[steps["mark"] == _COUNTED]
    off_ns = (counted["replayed_ns"] - counted["wall_ns"]).abs().sum()
    return percent(float(off_ns), float(counted["wall_ns"].sum()))
