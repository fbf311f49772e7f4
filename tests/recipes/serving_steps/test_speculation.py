"""Whether drafts pay: servers whose drafts cost and bring what is planted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from effort import at_night, seeds
from quick_run import quick
from results import plain
from serving_plants import Server

from nsys_llm.recipes.serving_steps.analysis import ANALYSIS

#: Drafts take a third of a step; three are verified at once.
DEAR = Server("vllm_sums", width=4, accept=0.05, draft_ns=90_000, steps_n=260, output=(60, 200))
KINDS = {
    "both": replace(DEAR, plain=0.4),
    "verifies only": DEAR,
    "sglang": replace(DEAR, engine="sglang_sums"),
}


def of(server, seed, folder):
    tables = quick("serving_steps", server.run(seed).write(folder / "rank0.sqlite"))
    return tables, tables["speculation"].iloc[0]


def lost(tables):
    return [row for row in ANALYSIS.findings(tables) if row.rule == "drafts_lose"]


def truth(run):
    """Return what a step with drafts takes over one without of as many requests, minus 1."""
    ends, pairs = [max(end for _, end in step.ops) for step in run.steps], []
    for step, before, end in zip(run.steps[1:], ends, ends[1:], strict=False):
        pairs.append((step.fields, end - before))
    by_requests: dict[int, tuple[list[int], list[int]]] = {}
    for fields, took_ns in pairs:
        if fields["gen_reqs"] and not fields["ctx_reqs"]:
            drafts = fields["gen_tokens"] > fields["gen_reqs"]
            by_requests.setdefault(fields["gen_reqs"], ([], []))[drafts].append(took_ns)
    means = [
        (sum(some) / len(some) / (sum(others) / len(others)), len(some))
        for others, some in by_requests.values()
        if min(len(some), len(others)) >= 5
    ]
    return sum(ratio * n for ratio, n in means) / sum(n for _, n in means) - 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6, 1))
def test_steps_without_drafts_say_how_many_must_be_accepted(seed, tmp_path):
    server = KINDS["both"]
    tables, row = of(server, seed, tmp_path)
    assert row["basis"] == "recorded"
    assert row["needed"] == pytest.approx(truth(server.run(seed)), rel=0.05)
    assert row["needed_low"] <= row["needed"] <= row["needed_high"]
    assert row["accepted_low"] <= 3 * server.accept <= row["accepted_high"] + 0.05
    assert row["verdict"] == "loses"
    (finding,) = lost(tables)
    assert finding.title == (
        f"Drafts do not pay on rank 0: a request accepts {row['accepted']:.2f} a step, "
        f"{row['needed_low']:.2f} are needed"
    )
    # What the steps with drafts bring takes a step without them for each token.
    frame = tables["batch_steps"].query("mark == '' and ctx_reqs == 0 and gen_tokens > gen_reqs")
    took_ns = (frame["window_ns"] - frame["no_work_ns"]).sum()
    share = 1 - (1 + row["accepted"]) / (1 + row["needed"])
    assert row["lost_ns"] == pytest.approx(took_ns * share)


@pytest.mark.parametrize(
    ("kind", "accept", "verdict"),
    [
        ("both", 0.05, "loses"),
        ("both", 0.9, "pays"),
        ("sglang", 0.05, "loses"),
        # No step without drafts, and the drafts run inside of the others: nothing is known.
        ("verifies only", 0.05, None),
        *at_night(("sglang", 0.9, "pays"), ("verifies only", 0.9, None)),
    ],
)
def test_the_verdict_is_that_of_the_plant_or_none(kind, accept, verdict, tmp_path):
    tables, _ = of(replace(KINDS[kind], accept=accept), 3, tmp_path)
    assert plain(tables["speculation"])["verdict"] == [verdict]
    assert bool(lost(tables)) == (verdict == "loses")
    assert (f"speculation {verdict}" in ANALYSIS.answer(tables)) == (verdict is not None)


def test_without_keys_only_what_is_needed_is_known(tmp_path):
    tables, row = of(replace(KINDS["both"], engine="vllm"), 2, tmp_path)
    assert tables["speculation"]["accepted"].isna().all()
    assert row["needed"] > 0.2
    assert not lost(tables)
    assert "accepted not known, needed" in ANALYSIS.answer(tables)
