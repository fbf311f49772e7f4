"""Pipelines as the tables have them, and what is found: the bubble, and slow stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding
from nsys_llm.report.rank_findings import stage_findings
from nsys_llm.report.records import Record, Tables, grouped, percent, records
from nsys_llm.report.walls import Gpu
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, IDLE
from nsys_llm.view.text import counted, format_ns, format_percent, listed

from .texts import RULES

_SUMS = (
    *("window_ns", "compute_ns", "host_ns", "bubble_ns", "schedule_ns", "imbalance_ns"),
    "not_matched_ns",
)
#: Of steps, in percent: more than this that is not matched may be waiting for stages, too.
_MOST_NOT_MATCHED_PCT: Final = 1.0


@dataclass(frozen=True)
class Pipeline:
    """One pipeline; sums over all of its full steps.

    Attributes:
        gpus: Of each stage.
        sums: Of each GPU, by column of `bubbles`; None where it is not known.
        messages_n: Microbatches by chunks; None where they are not known.
        kind: Of its schedule; None where it is not known.
    """

    gpus: tuple[tuple[Gpu, ...], ...]
    sums: dict[Gpu, dict[str, int | None]]
    messages_n: int | None
    kind: str | None

    def total(self, column: str) -> int | None:
        """Return the sum over all GPUs; None where one is not known."""
        return _sum(self.sums.values(), column)

    def mean_ns(self, stage: int, column: str) -> float:
        """Return the mean over the GPUs of a stage, what is not known left out."""
        values = [self.sums[gpu][column] or 0 for gpu in self.gpus[stage]]
        return sum(values) / len(values)

    @property
    def pace(self) -> int:
        """The stage that computes most: it sets the pace."""
        return max(range(len(self.gpus)), key=lambda at: (self.mean_ns(at, "compute_ns"), -at))

    @property
    def longer_pct(self) -> float:
        """By how much that one computes longer than the median of the others, in percent."""
        times = [self.mean_ns(at, "compute_ns") for at in range(len(self.gpus))]
        usual_ns = median(times[: self.pace] + times[self.pace + 1 :])
        return percent(times[self.pace] - usual_ns, usual_ns)

    def bubble_ns(self, gpu: Gpu) -> int:
        """Return the bubble of a GPU; without causes of idle time its waiting for stages."""
        known_ns = self.sums[gpu]["bubble_ns"]
        return int((self.sums[gpu]["wait_stage_ns"] if known_ns is None else known_ns) or 0)

    @property
    def pace_gpu(self) -> Gpu:
        """The GPU of that stage that computes most: the bubbles of others are waiting for it."""
        return max(self.gpus[self.pace], key=lambda gpu: self.sums[gpu]["compute_ns"] or 0)

    @property
    def bubble_pct(self) -> float:
        """Share of the bubble in the windows of all GPUs, 0 to 100."""
        return percent(sum(map(self.bubble_ns, self.sums)), self.total("window_ns"))

    @property
    def share(self) -> str:
        """That share in words: without what is not matched it is at least so much."""
        return f"{self.at_least(*self.sums)}{format_percent(self.bubble_pct)}"

    def at_least(self, *gpus: Gpu) -> str:
        """Return what stands before the bubble of GPUs, by what is not matched there."""
        missing_ns, window_ns = (
            sum(self.sums[gpu][name] or 0 for gpu in gpus)
            for name in ("not_matched_ns", "window_ns")
        )
        return "at least " if percent(missing_ns, window_ns) > _MOST_NOT_MATCHED_PCT else ""

    @property
    def called(self) -> str:
        """What is known of its schedule, in brackets."""
        known = [self.kind] if self.kind else []
        if self.messages_n is not None:
            known.append(counted(self.messages_n, "microbatch", "microbatches"))
        return f" ({', '.join(known)})" if known else ""


def find_pipelines(tables: Tables) -> list[Pipeline]:
    """Return the pipelines, in the order of their numbers."""
    every = records(tables["bubbles"])
    places = {(row["rank"], row["device_id"]): row["stage"] for row in records(tables["stages"])}
    return [_pipeline(some, places) for _, some in sorted(grouped(every, "pipeline").items())]


def _pipeline(rows: Sequence[Record], places: dict[Gpu, int | None]) -> Pipeline:
    by_gpu = grouped(rows, "rank", "device_id")
    sums = {
        (int(rank), int(device_id)): {name: _sum(some, name) for name in (*_SUMS, "wait_stage_ns")}
        for (rank, device_id), some in by_gpu.items()
    }
    stages: dict[int, list[Gpu]] = {}
    for gpu in sorted(sums):
        stages.setdefault(places[gpu] or 0, []).append(gpu)
    gpus = tuple(tuple(stages[stage]) for stage in sorted(stages))
    return Pipeline(gpus, sums, rows[0]["microbatches_n"], rows[0]["kind"])


def _sum(rows: Iterable[Record], name: str) -> int | None:
    values = [row[name] for row in rows]
    return None if None in values else sum(values)


def pipeline_findings(tables: Tables, pipelines: Sequence[Pipeline]) -> list[Finding]:
    """Return the bubble of each kind of pipeline, and slow stages."""
    kinds: dict[tuple[str | None, int], list[Pipeline]] = {}
    for pipeline in pipelines:
        kinds.setdefault((pipeline.kind, len(pipeline.gpus)), []).append(pipeline)
    return [
        *(_bubble(some) for some in kinds.values()),
        *stage_findings(tables),
    ]


def _bubble(pipelines: Sequence[Pipeline]) -> Finding:
    """Return the bubble of pipelines of one kind: of that which loses most."""
    worst = max(pipelines, key=lambda pipeline: pipeline.bubble_ns(pipeline.pace_gpu))
    rank, device_id = worst.pace_gpu
    bubble_ns, at = worst.bubble_ns(worst.pace_gpu), worst.pace
    computes = [worst.mean_ns(stage, "compute_ns") for stage in range(len(worst.gpus))]
    sums = worst.sums[worst.pace_gpu]
    at_least = worst.at_least(worst.pace_gpu)
    change = Change("microbatches", time_ns=bubble_ns)
    if at_least:
        most_ns = bubble_ns + (sums["not_matched_ns"] or 0)
        change = Change("unknown", time_ns=most_ns, wall_classes=(COMMUNICATION, IDLE))
    return RULES["pipeline_bubble"].finding(
        cause=Cause("schedule"),
        change=change,
        details=f"Bubble {bubble_words(worst)}. A stage computes for {format_ns(min(computes))} to "
        f"{format_ns(max(computes))} of {format_ns(sums['window_ns'])}. Stage {at} (rank {rank}) "
        f"has most to compute, and a bubble of {at_least}{format_ns(bubble_ns)}.",
        fields={
            "pipelines": "Pipeline" if len(pipelines) == 1 else f"{len(pipelines)} pipelines",
            "stages_n": len(worst.gpus),
            "kind": worst.called,
            "share": worst.share,
        },
        numbers={"bubble_pct": worst.bubble_pct, "bubble_ns": bubble_ns},
        ranks=tuple(sorted(rank for pipeline in pipelines for rank, _ in pipeline.sums)),
        rank=rank,
        device_id=device_id,
        impact_ns=bubble_ns,
    )


def bubble_words(pipeline: Pipeline) -> str:
    """Return the share of the bubble, and of its parts where they are known."""
    window_ns, schedule_ns, imbalance_ns = (
        pipeline.total(name) for name in ("window_ns", "schedule_ns", "imbalance_ns")
    )
    if schedule_ns is None or imbalance_ns is None or pipeline.at_least(*pipeline.sums):
        return pipeline.share
    schedule, imbalance = percent(schedule_ns, window_ns), percent(imbalance_ns, window_ns)
    other = pipeline.bubble_pct - schedule - imbalance
    parts = f"schedule {schedule:.1f}, imbalance {imbalance:.1f}, other {other:.1f}"
    return f"{pipeline.share}: {parts}"


def pace_words(pipeline: Pipeline) -> str:
    """Say which stage sets the pace, where one clearly does."""
    ranks = sorted({rank for rank, _ in pipeline.gpus[pipeline.pace]})
    noun = "rank" if len(ranks) == 1 else "ranks"
    return (
        f"stage {pipeline.pace} ({noun} {listed([str(rank) for rank in ranks])}) computes "
        f"{format_percent(pipeline.longer_pct)} longer than the "
        "median of the others and sets the pace"
    )
