"""The rules of this recipe: title, threshold with its source, advice, what to record."""

from __future__ import annotations

from functools import partial
from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import limits_words
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rules import OF_CLASS, OF_KERNEL, OF_TIME, OURS, Case, Rule, rules_by_id

#: Share of the steps' wall-clock time below which too little of the path is certain; ours.
CERTAIN_PCT: Final = 90.0

_ON_PATH: Final = "{path_ns} a {unit} on the critical path; {worst_ns} in the worst {unit}."

#: Which case of the rules below a kind of the table `when` is.
WHEN_CASES: Final = {
    **dict.fromkeys(("from", "until", "between"), None),
    **dict.fromkeys(("grows", "falls"), "trend"),
    **{kind: kind for kind in ("once", "times", "every")},
}
_COSTS: Final = "It costs {excess_ns} of the run, {share_pct}."


def _when(about: str, level: str, trend: str, nouns: tuple[str, str], advice: str) -> Rule:
    """Return the rule on what makes some steps longer than others."""
    noun, several = nouns
    kinds = {
        "trend": trend,
        "once": f"One {noun} of {{each_ns}}, {{in_step}}[: {{place}}]",
        "times": f"{{events_n}} {several} of {{each_ns}}[ on {{who}}], in {{steps_n}} of "
        "{of_steps_n} steps[: {place}]",
        "every": f"A {noun} of {{each_ns}} every {{period_steps}} steps[ on {{who}}], "
        "{events_n} in {of_steps_n}[: {place}]",
        "turns": f"{{turn_ranks}} in turns ({{turn_n}} steps each): {several}[ in {{named}}]: "
        "about {share_pct} together, {turn_pct} each",
        "apart": "{cause} on {ranks_n:rank} at different times: {share_pct} of the job",
        "after": "{gpus} slow one after the other, {after}: compute {excess_pct} longer{why}",
    }
    return Rule(
        f"when_{about}",
        scope="run",
        title=level,
        details=f"{_COSTS} The table `when` has the steps.",
        threshold="steps change level by 5 % or drift by 10 % of a step, or events take 30 % of "
        f"one, beyond chance; {limits_words()}",
        source=OURS,
        recommendation=f"[{{host_advice}} ]{advice}",
        cases={
            **{name: Case(title=title) for name, title in kinds.items()},
            "common": Case(
                "{compute} takes {excess_pct} longer {when} of {of_steps_n}{on}",
                "Compare clocks, temperature and power limits of these steps with the others', and "
                "how long the sequences are: the launches have as many blocks as before.",
            ),
        },
        tables=("when", "device_steps", "job_steps"),
        window_shows="the affected steps",
        specificity=OF_TIME,
    )


_remark: Final = partial(Rule, kind=CAPTURE, scope="run", source=OURS)
_path_rule: Final = partial(
    Rule,
    scope="run",
    threshold=limits_words(),
    source="the definition of the critical path (docs/step_budget.md)",
    tables=("ceilings", "job_steps", "wall"),
    window_shows="the {unit} with most of it",
    specificity=OF_CLASS,
)

RULES: Final = rules_by_id(
    *RANK_RULES.values(),
    _when(
        "compute",
        "{gpus} slow {when} of {of_steps_n}{on}: compute {excess_pct} longer{why}",
        "{gpus} {gets} and {gets} over {of_steps_n} steps: compute up to {excess_pct} longer{why}",
        ("slow stretch", "slow stretches"),
        "Check its clocks, temperature and power limit over time, and what else started on that "
        "GPU then.",
    ),
    _when(
        "idle",
        "{hosts} late {when} of {of_steps_n}{on}[ in {named}]: {each_ns} a step more",
        "{hosts} {later} over {of_steps_n} steps[ in {named}]: up to {each_ns} a step more",
        ("pause", "pauses"),
        "Check what the host does in these steps: data loading, checkpoints, compilation, "
        "garbage collection.",
    ),
    _when(
        "copies",
        "Copies[ on {who}] take longer {when} of {of_steps_n}{on}: {each_ns} a step more",
        "Copies[ on {who}] take {longer} over {of_steps_n} steps: up to {each_ns} a step more",
        ("stretch of copies", "stretches of copies"),
        "Copy to and from pinned memory on a separate stream, while the next steps compute.",
    ),
    _when(
        "communication",
        "Communication[ of {who}] takes longer {when} of {of_steps_n}{on}: {each_ns} a step more",
        "Communication[ of {who}] takes {longer} over {of_steps_n} steps: up to {each_ns} a step "
        "more",
        ("slow stretch of communication", "slow stretches of communication"),
        "Check the links and switches at that time: other jobs, retries, a link reset.",
    ),
    _path_rule(
        "path_host",
        title="{whose}: {shown_ns}{each}{where}"
        "[, {part_ns} of it{part_where}][, {next_ns}{next_where}]",
        details="{shown_ns}{each} of the critical path. Its host time is {path_ns}{each}, "
        "{most_ns} of it{place}. Host causes leave GPU {device_id} of rank {rank} idle for "
        "{host_idle_ns}.",
        threshold=f"idle time with host causes, and host work on the path; {limits_words()}",
        recommendation="[{host_advice} ]Move this off the launching thread, or do it while the "
        "GPU runs the previous {unit}.",
        cases={
            "launches": Case(
                title="{whose}: many tiny kernels, and launches are slower",
                recommendation="Launch less often: CUDA graphs, torch.compile, fused operators.",
            )
        },
    ),
    _path_rule(
        "path_waits",
        scope="api",
        title="{whose} after {name:quoted}: {shown_ns}{each}{where}"
        "[, {part_ns} of it{part_where}][, {next_ns}{next_where}]",
        details="{shown_ns}{each} of the critical path. The host time after this wait is "
        "{path_ns}{each}, {most_ns} of it{place}; {worst_ns} in the worst {unit}.",
        recommendation="[{host_advice} ]Wait later, or not at all: the launches after this wait "
        "could be queued while the GPU is still busy.",
        specificity=OF_KERNEL,
    ),
    _path_rule(
        "path_transfer",
        title="Transfer on the critical path: {path_ns} a {unit}",
        details=_ON_PATH,
        recommendation="Overlap these collectives with independent computation, or "
        "send less: fewer and larger messages, lower precision.",
    ),
    _path_rule(
        "path_copies",
        title="Copies on the critical path: {path_ns} a {unit}",
        details=_ON_PATH,
        recommendation="Move fewer bytes: keep reused data on the device. Copy the rest ahead of "
        "time from pinned memory on a separate stream, as far as computation can hide it.",
    ),
    _remark(
        "clocks_apart",
        title="Clocks of the machines are not aligned: nothing over ranks is certain",
        details="No collective connects the profiles of {ranks_n} ranks.",
        threshold="several ranks whose profiles share neither matched collectives nor one host's "
        "clock",
        recommendation="Read each rank by itself (device_steps). Steps of the job are matched by "
        "position, without ceilings and replays across ranks.",
        tables=("rank_edges", "job_steps"),
    ),
    _remark(
        "path_inferred",
        title="Only {certain_pct} of the critical path is certain",
        details="{inferred_ns} of {wall_ns} depend on an edge that no profile records.",
        threshold=f"below {CERTAIN_PCT:g} % of the steps' time",
        recommendation="Where certain_pct is low, treat classes as estimates: some edges between "
        "streams or threads are inferred.",
        record="--cuda-event-trace=true",
        tables=("job_steps", "rank_edges"),
    ),
)
