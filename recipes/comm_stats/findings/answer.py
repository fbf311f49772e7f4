"""What comm_stats reports: who exchanges how much, and what pipelines and experts cost."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, format_ns

from .pipelines import Pipeline, bubble_words, find_pipelines, pace_words, pipeline_findings

#: The stage that computes longest is named from so much beyond the others, in percent.
_LEAST_LONGER_PCT: Final = 1.0


def answer(tables: Tables) -> str:
    """Return the job in one line, its pipelines, and its fastest and slowest groups."""
    gpus_n = counted(tables["wall"][["rank", "device_id"]].drop_duplicates().shape[0], "GPU")
    pipelines = find_pipelines(tables)
    if not pipelines:
        groups_n = len(tables["groups"])
        return f"{gpus_n}: {counted(groups_n, 'group')} of ranks that communicate."
    worst = max(pipelines, key=lambda pipeline: pipeline.bubble_pct)
    return "\n".join((f"{gpus_n}{_steps(worst)}: {_called(pipelines, worst)}", _bubble(worst)))


def _steps(pipeline: Pipeline) -> str:
    if not pipeline.steps_n:
        return ""
    step_ns = (pipeline.total("window_ns") or 0) / (len(pipeline.sums) * pipeline.steps_n)
    return f", {counted(pipeline.steps_n, 'step')}, {format_ns(step_ns)} a step"


def _called(pipelines: list[Pipeline], worst: Pipeline) -> str:
    name = f"pipeline of {len(worst.gpus)} stages"
    if len(pipelines) > 1:
        name = f"{len(pipelines)} pipelines of {len(worst.gpus)} stages"
    return f"{name}{worst.called}"


def _bubble(pipeline: Pipeline) -> str:
    pace = f"; {pace_words(pipeline)}" if pipeline.longer_pct >= _LEAST_LONGER_PCT else ""
    return f"Bubble {bubble_words(pipeline)}{pace}."


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return pipeline_findings(tables, find_pipelines(tables))
