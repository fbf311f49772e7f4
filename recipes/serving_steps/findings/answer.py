"""What serving_steps says first: what steps cost, what users wait, and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from nsys_llm.report.answers import nothing_ran
from nsys_llm.report.findings import Finding
from nsys_llm.report.group_words import group_of_ranks
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.step_names import recording_advice
from nsys_llm.view.text import (
    counted,
    counted_range,
    format_count,
    format_ns,
    format_percent,
    listed,
)

from .steps import examples, serving_findings

_PHASES: Final = ("decode", "mixed", "prefill")
#: Steps of a phase whose median is reported.
_LEAST_STEPS: Final = 5
#: Ranks of which none takes longer than another by this share take as long; and one has more
#: requests than another from this ratio on.
_SLOWER: Final = 0.02
_MORE_REQUESTS: Final = 1.25
#: What one more of a term of the model is, and what of it is in the coefficient of another.
_TERMS: Final = {
    "gen_reqs": ("a request", "requests"),
    "gen_tokens": ("a token", "tokens"),
    "ctx_tokens": ("a token of a prompt", "tokens of prompts"),
    "g_sk": ("a token of context", "context"),
    "c_sqsk": ("a pair of token and key", "pairs of token and key"),
}


def answer(tables: Tables) -> str:
    """Return what steps cost and what users wait, a line each; why not where that is not known."""
    lines = headline(tables)
    if not lines:
        return _why_not(tables)
    return "\n".join([*lines, *_model_lines(tables), *_drafts_line(tables)])


def headline(tables: Tables) -> list[str]:
    """Return the lines that an overview repeats; none where no format was read."""
    servers = records(tables["servers"])
    server = next((row for row in servers if row["slowest"]), None)
    if server is None:
        return []
    rank = server["rank"]
    groups = group_of_ranks(tables)
    alike = [other for other, group in groups.items() if group == groups[rank]]
    every = tables["batch_steps"][tables["batch_steps"]["mark"] == ""]
    every = every[every["rank"].isin(alike)]
    steps = every[every["rank"] == rank]
    where, drafts, speculation = _where(tables, servers, rank), "", tables["speculation"]
    for row in records(speculation[speculation["rank"] == rank]):
        drafts = "; how many drafts are accepted is not known"
        if row["accepted_pct"] is not None:
            drafts = f"; {format_percent(row['accepted_pct'])} of drafts accepted"
    lines = [
        f"{server['engine']}: {counted(server['counted_n'], 'step')}{where}: "
        f"{_phases(steps)}{_by_rank(every) or _requests(steps)}{drafts}"
    ]
    waits = tables["inter_token"]
    row = records(waits[waits["rank"] == rank])[0]
    if row["reason"] is not None:
        lines.append(f"between tokens: not known ({row['reason']})")
    elif row["p50_ns"] is not None:
        p99 = dict.fromkeys(format_ns(row[name]) for name in ("p99_ns", "p99_most_ns"))
        words = f"p50 {format_ns(row['p50_ns'])}, p99 {' to '.join(p99)}"
        adds_ns, usual_ns = (row[name] or 0 for name in ("mixed_adds_ns", "mixed_usual_ns"))
        # What a single pause makes of it is nothing that prefill adds.
        adds_ns = adds_ns if 2 * usual_ns >= adds_ns else usual_ns
        adds = "" if adds_ns <= 0 else f"; prefill adds {format_ns(adds_ns)}"
        per_step = " per step" if drafts else ""
        lines.append(f"between tokens{per_step}: {words}{adds}")
    return lines


def _where(tables: Tables, servers: Sequence[Record], rank: int) -> str:
    """Return which rank the lines are of, and why that one; nothing of a single rank.

    Of ranks that take as long it is the slowest only where a verdict names it.
    """
    if len(servers) == 1:
        return ""
    read = [row for row in servers if row["reason"] is None]
    among_n = len([row for row in read if not row["only_reads"]] or read)
    if among_n == 1:
        return f" (rank {rank})"
    among = "" if among_n == len(servers) else f" of {among_n}"
    costs = [row["cost_ns"] for row in read if row["cost_ns"]]
    own_ns = next(row["cost_ns"] or 0.0 for row in read if row["rank"] == rank)
    verdicts = tables["rank_verdicts"]
    named = verdicts.loc[verdicts["verdict"].notna(), "rank"].tolist()
    if rank not in named and own_ns <= (1 + _SLOWER) * min(costs):
        return f" (rank {rank} of {among_n})"
    return f" (rank {rank}, slowest{among})"


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    servers = tables["servers"]
    if not servers["slowest"].any():
        return []
    drafts = "with drafts per step, not per token"
    if (servers["engine"] == "TensorRT-LLM").any():
        drafts += ", and TensorRT-LLM's names do not show any"
    return [
        "Time between tokens runs from the end of one step to the end of the next: about what a "
        f"client sees, {drafts}. TTFT, queueing and request latency are not covered."
    ]


def _phases(steps: pd.DataFrame) -> str:
    """Return how many steps there are of each phase, and their medians."""
    costs = {phase: steps.loc[steps["phase"] == phase, "cost_ns"] for phase in _PHASES}
    words = [
        f"{format_count(len(some))} {phase}"
        + (f" p50 {format_ns(some.median())}" if len(some) >= _LEAST_STEPS else "")
        for phase, some in costs.items()
        if len(some)
    ]
    return ", ".join(words) or "phases are not known"


def _requests(steps: pd.DataFrame) -> str:
    requests = (steps["gen_reqs"] + steps["ctx_reqs"]).dropna().astype("int64")
    if 2 * len(requests) <= len(steps):
        return ""
    least, most = int(requests.min()), int(requests.max())
    span = f"{format_count(least)}-" if most > least else ""
    return f"; {span}{counted(most, 'request')}"


def _by_rank(steps: pd.DataFrame) -> str:
    """Return the usual requests of ranks where these differ; nothing where they do not."""
    requests = (steps["gen_reqs"] + steps["ctx_reqs"]).astype("float64")
    usual = requests.groupby(steps["rank"]).median().dropna().round().astype("int64")
    if len(usual) < 2 or usual.max() <= _MORE_REQUESTS * usual.min():
        return ""
    # What varies from step to step is no rank's.
    most, least = (requests[steps["rank"] == rank] for rank in (usual.idxmax(), usual.idxmin()))
    if most.quantile(0.1) <= least.quantile(0.9):
        return ""
    apart = usual[usual != usual.mode().iloc[0]]
    if len(apart) > 1:
        return f"; {counted_range(usual.tolist(), 'request')} by rank"
    rank, own, others = apart.index[0], int(apart.iloc[0]), int(usual.mode().iloc[0])
    return f"; rank {rank}: {counted(own, 'request')}, others {format_count(others)}"


def _drafts_line(tables: Tables) -> list[str]:
    """Return whether drafts pay on the slowest rank; nothing where that is not known."""
    slowest = tables["servers"].loc[tables["servers"]["slowest"], "rank"]
    rows = tables["speculation"]
    row = next(iter(records(rows[rows["rank"].isin(slowest)])), None)
    if row is None or row["needed_low"] is None:
        return []
    bounds = [row[name] for name in ("needed_low", "needed_high") if row[name] is not None]
    needed = " to ".join(dict.fromkeys(f"{bound:.2f}" for bound in bounds))
    needed = needed if row["needed_high"] is not None else f"at least {needed}"
    accepted = "not known" if row["accepted"] is None else f"{row['accepted']:.2f}"
    verdict = "" if row["verdict"] is None else f": speculation {row['verdict']}"
    return [f"drafts a request and step: accepted {accepted}, needed {needed}{verdict}"]


def _model_lines(tables: Tables) -> list[str]:
    """Return what a decode step is made of, by the coefficients that are certainly not 0."""
    model = tables["cost_model"]
    rows = records(model[(model["phase"] == "decode") & model["term"].notna()])
    sure = [row for row in rows if row["low_ns"] > 0 or row["high_ns"] < 0]
    if len(sure) < 2:
        return []
    signs = ["-" if row["value_ns"] < 0 else "+" for row in sure]
    parts = [f"{sign} {_part(row)}" for sign, row in zip(signs, sure, strict=True)]
    return [f"a decode step = {' '.join(parts).removeprefix('+ ')}"]


def _part(row: Record) -> str:
    """Return one coefficient without its sign, and all that it stands for."""
    value_ns = abs(row["value_ns"])
    time = format_ns(value_ns) if value_ns >= 100 else f"{value_ns:.3g} ns"
    first, *others = str(row["term"]).split(" with ")
    if first == "base":  # in it is what never changes
        others, whose, unit = str(row["left_out"] or "").split(", "), "the", ""
    else:
        whose, unit = "its", f" {_TERMS[first][0]}"
    nouns = [f"{whose} {_TERMS[term][1]}" for term in others if term]
    return f"{time}{unit} with {listed(nouns)}" if nouns else f"{time}{unit}"


def _why_not(tables: Tables) -> str:
    """Return why nothing is reported: no range of an engine, or names of no known format."""
    servers = tables["servers"]
    if servers.empty:
        return nothing_ran(tables)
    unparsed = records(servers[servers["reason"] == "unparsed"])
    if unparsed:
        row = unparsed[0]
        return (
            f"{row['engine']}: {format_count(row['unparsed_n'])} of "
            f"{counted(row['steps_n'], 'step')} have names of no known format "
            f"({examples(row)}), so costs are not reported; `batch_steps` has the others."
        )
    if len(read := records(servers[servers["reason"].isna()])):
        return f"{read[0]['engine']}: no full step is in the selection; `batch_steps` says why."
    for engine in servers["kernels_of"]:
        if (advice := recording_advice(engine)) is not None:
            return f"No step name describes its batch. {advice[1]}."
    return (
        "No step name describes its batch: the profiles have no ranges of vLLM, SGLang or "
        "TensorRT-LLM. See docs/capturing.md for how to record them."
    )


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [*serving_findings(tables), *rank_findings(tables)]
