"""What is found of pipelines: the bubble, slow stages, and stages whose partners nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import pandas as pd

from nsys_llm.job.collectives.stages import may_be_stages
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, claim
from nsys_llm.report.rank_findings import STAGE_RULES, rank_findings
from nsys_llm.report.records import Record, Tables, first_record, percent
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE
from nsys_llm.view.text import counted, format_percent, gpus_words, ranks_words

from .texts import ALIKE, HEAVIER, LEAST_HEAVIER_PCT, RULES

_GPU: Final = ["rank", "device_id"]
_SUMS: Final = [
    *("window_ns", "compute_ns", "wait_stage_ns", "not_matched_ns"),
    *("bubble_ns", "schedule_ns", "imbalance_ns"),
]
#: Of steps, in percent: more than this that is not matched may be waiting for stages, too.
_MOST_NOT_MATCHED_PCT: Final = 1.0


@dataclass(frozen=True)
class PipelineSums:
    """One pipeline.

    Attributes:
        gpus: Its GPUs, stage by stage, with the sums of columns of `bubbles` over all full steps;
            null where they are not known. Without causes of idle time the bubble is the waiting
            for stages.
        messages_n: Microbatches by chunks; None where they are not known.
        kind: Of its schedule; None where it is not known.
    """

    number: int
    gpus: pd.DataFrame
    messages_n: int | None
    kind: str | None

    @cached_property
    def computes_ns(self) -> pd.Series:
        """How long the mean GPU of each stage computes."""
        return self.gpus.groupby("stage")["compute_ns"].mean().astype(float)

    @property
    def pace(self) -> int:
        """The stage that computes most: it sets the pace."""
        return int(self.computes_ns.index.to_numpy()[self.computes_ns.argmax()])

    @property
    def longer_pct(self) -> float:
        """By how much that one computes longer than the median of the others, in percent."""
        usual_ns = float(self.computes_ns.drop(self.pace).median())
        return percent(float(self.computes_ns[self.pace]) - usual_ns, usual_ns)

    @property
    def pace_rows(self) -> pd.DataFrame:
        """The GPU of that stage that computes most: the bubbles of others are waiting for it."""
        rows = self.gpus[self.gpus["stage"] == self.pace]
        return rows.sort_values("compute_ns", ascending=False, kind="stable").head(1)

    @property
    def pace_gpu(self) -> Record:
        """That GPU's row."""
        return first_record(self.pace_rows)

    def share_pct(self, column: str) -> float:
        """Return the share of a column in the windows of all GPUs, 0 to 100."""
        return percent(int(self.gpus[column].sum()), int(self.gpus["window_ns"].sum()))

    @property
    def has_parts(self) -> bool:
        """Whether all of the bubble is known, and what of it is the schedule's."""
        parts = self.gpus[["schedule_ns", "imbalance_ns"]]
        return bool(parts.notna().all(axis=None)) and not at_least(self.gpus)

    @property
    def share(self) -> str:
        """That of the bubble in words: without what is not matched it is at least so much."""
        return f"{at_least(self.gpus)}{format_percent(self.share_pct('bubble_ns'))}"

    @property
    def called(self) -> str:
        """What is known of its schedule, in brackets."""
        known = [self.kind] if self.kind else []
        if self.messages_n is not None:
            known.append(counted(self.messages_n, "microbatch", "microbatches"))
        return f" ({', '.join(known)})" if known else ""


def at_least(gpus: pd.DataFrame) -> str:
    """Return what stands before the bubble of GPUs, by what is not matched there."""
    missing_pct = percent(int(gpus["not_matched_ns"].sum()), int(gpus["window_ns"].sum()))
    return "at least " if missing_pct > _MOST_NOT_MATCHED_PCT else ""


def find_pipelines(tables: Tables) -> list[PipelineSums]:
    """Return the pipelines, in the order of their numbers."""
    every = tables["bubbles"].merge(tables["stages"][[*_GPU, "stage"]])
    return [_pipeline(rows) for _, rows in every.groupby("pipeline")]


def _pipeline(rows: pd.DataFrame) -> PipelineSums:
    steps = rows.groupby(["stage", *_GPU])[_SUMS]
    # Without one step, a sum over all of them is not known.
    gpus = steps.sum().where(steps.count().eq(steps.size(), axis=0)).reset_index()
    if gpus["bubble_ns"].isna().any():
        gpus["bubble_ns"] = gpus["wait_stage_ns"]
    first = first_record(rows)
    return PipelineSums(first["pipeline"], gpus, first["microbatches_n"], first["kind"])


def pipeline_findings(tables: Tables, pipelines: Sequence[PipelineSums]) -> list[Finding]:
    """Return the bubble of each kind of pipeline, and slow stages."""
    kinds: dict[tuple[str | None, int], list[PipelineSums]] = {}
    for pipeline in pipelines:
        kinds.setdefault((pipeline.kind, len(pipeline.computes_ns)), []).append(pipeline)
    return [
        *(_bubble(some, tables) for some in kinds.values()),
        *rank_findings(tables, STAGE_RULES),
    ]


def _bubble(pipelines: Sequence[PipelineSums], tables: Tables) -> Finding:
    """Return the bubble of pipelines of one kind: of that which loses most."""
    worst = max(pipelines, key=lambda pipeline: pipeline.pace_gpu["bubble_ns"])
    gpu, computes_ns, at = worst.pace_gpu, worst.computes_ns, worst.pace
    bubble_ns, is_least = gpu["bubble_ns"], at_least(worst.pace_rows)
    most_ns = bubble_ns + (gpu["not_matched_ns"] if is_least else 0)
    of = partial(claim, tables, pipeline=worst.number)
    whole = of("window_ns", "bubbles", "window_ns")
    is_known = tables["bubbles"].loc[tables["bubbles"]["pipeline"] == worst.number, "bubble_ns"]
    column = "bubble_ns" if is_known.notna().all() else "wait_stage_ns"
    evidence = [
        of("bubble_pct", "bubbles", column, "sum", whole),
        of("stages_n", "stages", "stage", "distinct"),
        claim(tables, "pipelines_n", "stages", "pipeline", "distinct"),
    ]
    if worst.has_parts:
        evidence.append(of("schedule_pct", "bubbles", "schedule_ns", "sum", whole))
    if worst.messages_n is not None:
        evidence.append(of("microbatches_n", "bubbles", "microbatches_n", "max"))
    return RULES["pipeline_bubble"].finding(
        cause=Cause("schedule"),
        change=Change("microbatches", time_ns=most_ns, sure_ns=bubble_ns),
        case="several" if len(pipelines) > 1 else None,
        fields={
            "kind": worst.called,
            "at_least": at_least(worst.gpus),
            "is_least": is_least,
            "least_ns": computes_ns.min(),
            "most_ns": computes_ns.max(),
            "step_ns": gpu["window_ns"],
            "stage": str(at),
            "bubble_ns": bubble_ns,
            **dict.fromkeys(() if worst.has_parts else ("schedule_pct",)),
        },
        evidence=tuple(evidence),
        ranks=tuple(sorted(rank for pipeline in pipelines for rank in pipeline.gpus["rank"])),
        rank=gpu["rank"],
        device_id=gpu["device_id"],
        impact_ns=bubble_ns,
    )


def bubble_words(pipeline: PipelineSums) -> str:
    """Return the share of the bubble, and of its parts where they are known."""
    if not pipeline.has_parts:
        return pipeline.share
    bubble_pct, schedule_pct, imbalance_pct = map(
        pipeline.share_pct, ("bubble_ns", "schedule_ns", "imbalance_ns")
    )
    other_pct = bubble_pct - schedule_pct - imbalance_pct
    return (
        f"{pipeline.share}: schedule {schedule_pct:.1f}, imbalance {imbalance_pct:.1f}, other "
        f"{other_pct:.1f}"
    )


def pace_words(pipeline: PipelineSums) -> str:
    """Say which stage sets the pace, where one clearly does."""
    ranks = pipeline.gpus.loc[pipeline.gpus["stage"] == pipeline.pace, "rank"].unique()
    return (
        f"stage {pipeline.pace} ({ranks_words(ranks)}) computes "
        f"{format_percent(pipeline.longer_pct)} longer than the "
        "median of the others and sets the pace"
    )


def unplaced_pipeline(tables: Tables) -> list[Finding]:
    """Return the finding on stages whose sends and receives cannot be matched, if there are any.

    How long each computes and waits is known without a partner.
    """
    rows = tables["exchanges"]
    if rows.empty or not rows["unplaced"].all():
        return []
    places = rows.groupby("place")["compute_ns"].mean()
    others_ns = float(places.drop(places.idxmax()).median()) if len(places) > 1 else 0.0
    if others_ns and 100 * places.max() >= (100 + LEAST_HEAVIER_PCT) * others_ns:
        return [_heavier(tables, int(places.index.to_numpy()[places.argmax()]))]
    worst = first_record(rows.sort_values("wait_ns", ascending=False, kind="stable"))
    is_chain = may_be_stages(rows["kernels_n"].tolist())
    wait_ns = worst["wait_ns"]
    return [
        RULES["unplaced_pipeline"].finding(
            cause=Cause("schedule"),
            change=Change("microbatches", time_ns=wait_ns, sure_ns=wait_ns)
            if is_chain
            else Change("unknown", time_ns=wait_ns, wall_classes=(COMMUNICATION,)),
            case=None if is_chain else ALIKE,
            evidence=(_share(tables, "wait_pct", "wait_ns"),),
            ranks=tuple(sorted(set(rows["rank"]))),
            rank=worst["rank"],
            device_id=worst["device_id"],
            impact_ns=wait_ns,
        )
    ]


def _heavier(tables: Tables, place: int) -> Finding:
    """Return the finding on the stage that computes most.

    Were it as the mean one, each further microbatch would take less. How many there are follows
    from what the first one takes: the bubble is the others' time for one.
    """
    rows = tables["exchanges"]
    places, here = rows.groupby("place")["compute_ns"].mean(), rows["place"] == place
    most_ns, whole_ns = float(places.max()), float(rows["window_ns"].mean())
    bound_ns = most_ns - float(places.mean())
    first = min((whole_ns - most_ns) / max(float(places.sum()) - most_ns, 1.0), 1.0)
    heavy, others = (
        sorted(zip(rows.loc[some, "rank"], rows.loc[some, "device_id"], strict=True))
        for some in (here, ~here)
    )
    worst = first_record(rows[here].sort_values("compute_ns", ascending=False, kind="stable"))
    several = bool(rows["rank"].duplicated().any())
    noun = "GPU" if several else "rank"
    noun = "stage" if may_be_stages(rows["kernels_n"].tolist()) else noun
    which = f"The last {noun}" if min(heavy) > max(others) else f"One {noun}"
    if max(heavy) < min(others):
        which = f"The first {noun}"
    return RULES["unplaced_pipeline"].finding(
        cause=Cause("stage", worst["rank"], worst["device_id"]),
        change=Change(
            "known", time_ns=bound_ns, sure_ns=(1 - first) * bound_ns, wall_classes=(COMPUTE,)
        ),
        case=HEAVIER,
        fields={
            "which": which,
            "heaviest": gpus_words(heavy, with_devices=several),
            "compute": "computes" if len(heavy) == 1 else "compute",
        },
        evidence=(
            _share(tables, "heavy_pct", "compute_ns", **_whose(rows[here])),
            _share(tables, "others_pct", "compute_ns", **_whose(rows[~here])),
            _share(tables, "wait_pct", "wait_ns"),
        ),
        ranks=tuple(sorted(set(rows.loc[here, "rank"]))),
        rank=worst["rank"],
        device_id=worst["device_id"],
        impact_ns=int(rows["wait_ns"].max()),
    )


def _whose(rows: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(set(rows[name]))) for name in ("rank", "place")}


def _share(tables: Tables, name: str, column: str, **where: Any) -> Evidence:
    """Return a share of the steps of all GPUs, or of some ranks."""
    whole = claim(tables, "window_ns", "exchanges", "window_ns", **where)
    return claim(tables, name, "exchanges", column, "sum", whole, **where)
