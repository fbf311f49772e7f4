"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.rank_findings import STAGE_RULE
from nsys_llm.report.rules import OF_CLASS, OF_RANK, OURS, Rule, rules_by_id

#: A stage's host leaves its GPU idle so much longer than the stages beside it say, in percent of
#: its steps. Without a late host it is less than 1.
LATE_STAGE_PCT: Final = 3.0
#: Fewer stages do not show how long each is idle by schedule.
LEAST_STAGES: Final = 3

RULES: Final = rules_by_id(
    STAGE_RULE,
    Rule(
        "pipeline_bubble",
        scope="run",
        title="{pipelines} of {stages_n} stages{kind}: bubble {share}",
        threshold="stages of a pipeline that wait for each other, or are idle without their host's "
        "fault; the gain is half of the bubble of the stage that computes most; shown from "
        f"{LIMITS_PCT['low']:g} % of the GPU's span",
        source=OURS,
        recommendation="Use twice as many microbatches, or model chunks per rank (interleaved "
        "stages): the schedule's part of the bubble halves.",
        tables=("bubbles", "stages"),
        specificity=OF_CLASS,
    ),
    Rule(
        "late_stage",
        scope="rank",
        title="The host of stage rank {rank} launches late: its GPU is idle {more} longer than "
        "the schedule leaves it",
        threshold="idle by host causes beyond what its neighbor stages suggest, from "
        f"{LATE_STAGE_PCT:g} % of its steps, with {LEAST_STAGES} stages or more",
        source=OURS,
        recommendation="See in idle_gaps what the host of rank {rank} does meanwhile: cores shared "
        "with other threads, data loading, garbage collection, synchronization. The other stages "
        "wait for it, beyond the bubble of the schedule.",
        tables=("bubbles",),
        specificity=OF_RANK,
    ),
)
