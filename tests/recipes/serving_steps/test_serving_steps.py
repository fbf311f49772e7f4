"""Planted servers: what serving_steps says is what was planted, and what brute force says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from effort import nightly_but, seeds
from quick_run import quick
from results import plain, rows
from serving_plants import (
    FIELDS,
    TOLD,
    Run,
    Server,
)

from nsys_llm.facts.steps.token_waits import weighted_percentile
from nsys_llm.recipes.serving_steps.analysis import ANALYSIS
from nsys_llm.recipes.serving_steps.findings.answer import headline
from nsys_llm.recipes.serving_steps.tables.cost_model import independent, robust_fit

GRAPHS = (1, 2, 4, 8, 16)
#: One of each kind of server.
KINDS = {
    **{engine: Server(engine, graphs=GRAPHS) for engine in TOLD},
    "empty": Server("vllm", empty_ns=3_000_000, arrivals=0.04, output=(5, 20)),
    "empty new": Server("vllm_new", empty_ns=3_000_000, arrivals=0.04, output=(5, 20)),
    "blocking": Server("trtllm_tokens", ahead=False, before_ns=60_000),
    "eager": Server("vllm", graphs=GRAPHS, launch_ns=150_000, arrivals=0.3),
    "drafts": Server("sglang_sums", width=4, output=(40, 120)),
    "vllm drafts": Server("vllm_sums", width=3, output=(40, 120)),
    "apart": Server("sglang", graphs=GRAPHS, apart=True, slots_n=16),
    "apart sums": Server("sglang_sums", graphs=GRAPHS, apart=True, slots_n=16),
    "apart whole": Server("sglang", apart=True, slots_n=16, chunk=4_096),
    "large": Server("vllm_sums", slots_n=24, arrivals=0.4, graphs=(8, 16, 24)),
}


def tables_of(run: Run, folder, *options):
    folder.mkdir(exist_ok=True)
    return quick("serving_steps", run.write(folder / "rank0.sqlite"), *options)


def nulls(frame, name):
    return [None if value != value or value is None else int(value)
            for value in frame[name].astype(object).where(frame[name].notna(), None)]  # fmt: skip


class Truth:
    """Times of a run's steps by their definitions, step by step."""

    def __init__(self, run: Run) -> None:
        self.run, self.steps = run, run.steps
        ends, latest = [], run.steps[0].begin_ns
        for step in run.steps:
            latest = max([latest, *(end for _, end in step.ops)])
            ends.append(latest)
        self.end = ends
        self.before = [run.steps[0].begin_ns, *ends[:-1]]
        pairs = zip(run.steps, self.before, strict=True)
        self.begin = [max(before, step.begin_ns) for step, before in pairs]

    def busy(self, place: int) -> int:
        low, high = self.begin[place], self.end[place]
        cut = [(max(start, low), min(end, high)) for start, end in self.run.ops]
        return sum(end - start for start, end in cut if end > start)  # one stream: no overlap

    def intervals(self):
        """Return each interval between tokens: time, requests, whether a prompt is read."""
        every, last = [], None
        for place, step in enumerate(self.steps):
            if not step.fields["gen_reqs"]:
                continue
            if last is not None:
                inside = self.steps[last + 1 : place]
                read = sum(item.fields["ctx_reqs"] for item in inside)
                waited = self.steps[last].stay_n
                mixed = bool(read or step.fields["ctx_reqs"])
                every.append((self.end[place] - self.end[last], waited, step, mixed))
            last = place
        return every


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(KINDS, ["vllm", "sglang_sums", "trtllm", "drafts"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_steps_are_as_planted(seed, kind, tmp_path):
    run = KINDS[kind].run(seed)
    tables, truth = tables_of(run, tmp_path), Truth(run)
    frame = tables["batch_steps"]
    drafts = frame[frame["mark"] == "draft"]
    busy_ns = [sum(end - start for start, end in step.ops) for step in run.every if step.draft]
    assert drafts["busy_ns"].tolist() == busy_ns
    frame = frame[frame["mark"] != "draft"]
    assert len(frame) == len(run.steps)
    for name in FIELDS:
        assert nulls(frame, name) == [run.told(step)[name] for step in run.steps], name
    assert frame["start_ns"].tolist() == truth.before
    between = [begin - before for begin, before in zip(truth.begin, truth.before, strict=True)]
    assert frame["between_ns"].tolist() == between
    cost = [end - begin for end, begin in zip(truth.end, truth.begin, strict=True)]
    assert frame["cost_ns"].tolist() == cost
    assert frame["busy_ns"].tolist() == [truth.busy(place) for place in range(len(run.steps))]
    assert (frame["window_ns"] == frame["between_ns"] + frame["cost_ns"]).all()
    assert (frame["cost_ns"] == frame["busy_ns"] + frame["idle_ns"]).all()
    sizes = [step.graph or None for step in run.steps]
    if "new" not in kind:
        assert nulls(frame, "graph_size") == sizes
    assert frame["graph"].notna().tolist() == [size is not None for size in sizes]
    told = [phase for phase in frame["phase"].tolist() if isinstance(phase, str)]
    assert told == [run.named_phase(step) for step in run.steps]
    assert sum(frame["no_work_ns"]) == (
        0 if KINDS[kind].engine.startswith("sglang")
        else sum(end - start for start, end in planted_empty(run, truth))
    )  # fmt: skip


def planted_empty(run: Run, truth: Truth):
    """Return when nobody was there, as far as that is longer than 5 gaps and a step."""
    gaps = [begin - before for begin, before in zip(truth.begin, truth.before, strict=True)][1:]
    costs = [end - begin for end, begin in zip(truth.end, truth.begin, strict=True)][1:]
    least = max(5 * sorted(gaps)[(len(gaps) - 1) // 2], sorted(costs)[(len(costs) - 1) // 2])
    for place, step in enumerate(run.steps[1:], 1):
        free = max(truth.before[place], run.steps[place - 1].end_ns)
        arrives = step.fields["ctx_reqs"] and run.told(step)["gen_reqs"] == 0
        if arrives and step.begin_ns - free > least:
            yield free, step.begin_ns


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(KINDS, ["vllm", "eager"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_time_between_tokens_is_that_of_the_requests(seed, kind, tmp_path):
    run = KINDS[kind].run(seed)
    frame = tables_of(run, tmp_path)["inter_token"]
    if "new" in kind or kind == "sglang":  # no step tells, and no mixed step does
        assert rows(frame, "intervals_n p50_ns") == [(0, None)]
        assert frame["reason"].notna().all()
        return
    every = Truth(run).intervals()
    kept = [item for item in every if item[1] > 0]
    waited = np.repeat([item[0] for item in kept], [item[1] for item in kept])
    names = "intervals_n left_out_n tokens_n p50_ns p99_ns mixed_n mixed_adds_ns mixed_usual_ns"
    (row,) = rows(frame, names)
    p50_ns, p99_ns = np.percentile(waited, (50, 99))
    ((most_ns,),) = rows(frame, "p99_most_ns")
    assert row[4] - 1e-3 <= p99_ns <= most_ns + 1e-3
    if run.server.apart:  # whose prompt goes on is not told, or not always
        assert row[2] <= waited.size
        assert row[3] <= p50_ns
        return
    assert row[:3] == (len(kept), len(every) - len(kept), waited.size)
    assert row[3:5] == pytest.approx((p50_ns, p99_ns), rel=1e-12)
    assert row[4] == most_ns
    adds = []
    for requests in {item[2].fields["gen_reqs"] for item in kept}:
        mixed, pure = (
            [item[0] for item in kept
             if item[2].fields["gen_reqs"] == requests and item[3] == is_mixed]
            for is_mixed in (True, False)
        )  # fmt: skip
        adds += [time_ns - np.mean(pure) for time_ns in mixed] if pure else []
    usual = sorted(adds)[: len(adds) - max(len(adds) // 20, 1)]
    assert row[5] == len(adds)
    assert row[6] == (pytest.approx(np.mean(adds)) if adds else None)
    assert row[7] == (pytest.approx(np.mean(usual)) if usual else None)


RECIPES = ("idle_gaps", "llm_hotspots", "nvtx_phase_attribution", "step_budget", "tail_stats")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["drafts", "vllm drafts"])
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_accepted_tokens_are_those_that_requests_keep(seed, kind, tmp_path):
    run = KINDS[kind].run(seed)
    (row,) = rows(
        tables_of(run, tmp_path)["speculation"], "steps_n width pairs_n accepted_n proposed_n"
    )
    # Of steps after which nobody comes or goes.
    firsts = [
        first
        for first, after in pairwise(run.steps)
        if first.fields["gen_reqs"] == after.fields["gen_reqs"] > 0 and not first.fields["ctx_reqs"]
    ]
    verify_n = sum(step.fields["gen_reqs"] > 0 for step in run.steps)
    accepted_n = sum(first.accepted_n - first.fields["gen_reqs"] for first in firsts)
    proposed_n = sum(first.fields["gen_tokens"] - first.fields["gen_reqs"] for first in firsts)
    assert row == (verify_n, KINDS[kind].width, len(firsts), accepted_n, proposed_n)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", nightly_but(RECIPES, ["step_budget"]))
def test_drafts_are_no_steps_in_any_recipe(recipe, tmp_path):
    run = KINDS["drafts"].run(3)
    path = run.write(tmp_path / "rank0.sqlite")
    first, last = len(run.steps) - 3, len(run.steps) - 1
    whole, two = quick(recipe, path), quick(recipe, path, "--steps", f"{first}:{last}")
    launched = sum(len(step.ops) for step in run.steps[first:last])
    coverage = two["coverage"].set_index("op").loc["kernel"]
    assert (coverage["total_n"], coverage["selected_n"]) == (len(run.ops), launched)
    if recipe == "step_budget":
        assert len(whole["job_steps"]) == len(run.steps)
    if recipe == "nvtx_phase_attribution":
        assert whole["step_stats"]["steps_n"].max() <= len(run.steps)


@pytest.mark.slow
@pytest.mark.parametrize("engine", nightly_but(["vllm", "sglang", "trtllm"], ["vllm"]))
def test_names_of_no_format_are_counted_and_no_costs_reported(engine, tmp_path):
    run = Server(engine, unparsed=0.3).run(5)
    unread = [step for step in run.steps if not step.parsed]
    tables = tables_of(run, tmp_path)
    (row,) = rows(tables["servers"], "steps_n unparsed_n unparsed reason")
    names = [step.name for step in unread][:3]
    assert row == (len(run.steps), len(unread), " | ".join(names), "unparsed")
    assert tables["batch_steps"]["format"].isna().sum() == len(unread)
    names = ("batches", "cost_model", "inter_token", "before_steps", "padding")
    assert all(tables[name].empty for name in names)
    assert headline(tables) == []
    assert f"{len(unread)} of {len(run.steps)} steps" in ANALYSIS.answer(tables)
    few = tables_of(Server(engine, unparsed=0.02).run(2), tmp_path / "few")
    assert 0 < few["servers"]["unparsed_n"].iloc[0] <= 6
    assert len(few["batches"])
    assert "names_of_no_format" in set(few["findings"]["rule"])


@pytest.mark.slow
def test_without_a_format_the_answer_says_what_records_one(tmp_path):
    trace = Server().run(1).trace
    trace.drop_table("NVTX_EVENTS")
    tables = quick("serving_steps", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    assert rows(tables["servers"], "kernels_of engine reason") == [("vllm", None, "no format")]
    answer = ANALYSIS.answer(tables)
    assert "--profiler-config" in answer
    assert "\n" not in answer
    assert tables["findings"].query("kind == 'performance'").empty


@pytest.mark.slow
@pytest.mark.parametrize(("around", "known"), [(1, True), (2, False)])
def test_a_step_of_another_range_has_the_one_batch_in_it(around, known, tmp_path):
    run = Server("vllm", steps_n=40).run(1)
    steps = run.steps
    for first in range(0, len(steps), around):
        some = steps[first : first + around]
        run.trace.nvtx("outer", some[0].begin_ns - 10, some[-1].end_ns + 10, tid=7)
    frame = tables_of(run, tmp_path, "--step", "outer")["batch_steps"]
    if known:
        assert nulls(frame, "gen_reqs") == [step.fields["gen_reqs"] for step in steps]
    else:
        assert frame.empty  # no step has a single batch: no format is read
    inner = Server("vllm", steps_n=40).run(1)
    for step in inner.steps:
        inner.trace.nvtx("inner", step.begin_ns + 10, step.end_ns - 10, tid=1)
    frame = tables_of(inner, tmp_path / "inner", "--step", "inner")["batch_steps"]
    assert nulls(frame, "ctx_tokens") == [step.fields["ctx_tokens"] for step in inner.steps]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_padding_is_what_graphs_compute_beyond_the_batch(seed, tmp_path):
    server = Server("trtllm_tokens", graphs=(1, 4, 8, 16), slots_n=16, arrivals=0.4, steps_n=200)
    server = replace(server, noise=0.0005)
    run = server.run(seed)
    replayed = [step for step in run.steps if step.graph]
    padding_n = sum(step.graph - step.fields["gen_tokens"] for step in replayed)
    for options in ((), ("--capture-sizes", "1,4,8,16")):
        tables = tables_of(run, tmp_path / str(len(options)), *options)
        (row,) = rows(tables["padding"], "steps_n rows_n padding_n row_ns time_ns")
        assert row[:3] == (len(replayed), sum(step.graph for step in replayed), padding_n)
        # Contexts, which names do not tell, cost too: more requests have more of them.
        per_row = server.costs[1] + server.costs[3] * np.mean(
            [step.fields["g_sk"] / step.fields["gen_reqs"] for step in replayed]
        )
        assert row[3] == pytest.approx(per_row, rel=0.25)
        assert row[4] == pytest.approx(padding_n * row[3])


@pytest.mark.slow
def test_a_server_that_prefills_outside_of_graphs_is_told_so(tmp_path):
    run = KINDS["eager"].run(4)
    tables = tables_of(run, tmp_path)
    found = tables["findings"].set_index("rule")
    assert {"eager_prefill", "prefill_in_decode"} <= set(found.index)
    assert found.loc["eager_prefill", "about_basis"] == "usual"
    assert found.loc["prefill_in_decode", "severity"] == "tail"
    overview = quick("llm_overview", tmp_path / "rank0.sqlite")
    first = overview["opportunities"].iloc[0]
    # Each prefill is a pause of those that wait, but of another kind of step, and no event.
    assert "when_idle" in set(overview["all_findings"]["rule"])
    assert (first["rule"], first["about_basis"]) == ("eager_prefill", "measured")
    (shown,) = overview["recipes"]["headline"].dropna()
    assert shown.splitlines() == headline(tables)
    replayed = tables["batches"].groupby("phase")["graph_pct"].mean()
    assert (replayed["decode"], replayed["mixed"]) == (100, 0)
    # Its GPU idles no less in the steps that replay a graph.
    run = replace(KINDS["eager"], launch_ns=0, inside_ns=250_000, ahead=False).run(4)
    tables = tables_of(run, tmp_path / "alike")
    assert tables["batches"]["idle_ns"].max() > 200_000
    assert "eager_prefill" not in set(tables["findings"]["rule"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(["mixed", "decode", "empty new"], ["mixed"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_one_pause_and_empty_servers_are_nothing_that_steps_do(seed, kind, tmp_path):
    server = {
        "mixed": Server("vllm", graphs=GRAPHS, pause_ns=30_000_000),
        "decode": Server("vllm", pause_ns=30_000_000, arrivals=0.0, output=(200, 300)),
        "empty new": KINDS["empty new"],
    }[kind]
    tables = tables_of(server.run(seed), tmp_path)
    assert set(tables["findings"].query("kind == 'performance'")["rule"]) <= {"graph_padding"}
    adds, unit = (ANALYSIS.answer(tables).partition("prefill adds ")[2].split() or (0, "us"))[:2]
    assert (unit, float(adds) < 500) == ("us", True)  # chunks of 256 tokens of 900 ns


#: Noise of what a step takes, by name.
NOISE = {
    "normal": lambda rng, x: rng.normal(0, 5_000, len(x)),
    "outliers": lambda rng, x: (
        rng.normal(0, 5_000, len(x)) * np.where(rng.random(len(x)) < 0.07, 6, 1)
    ),
    "growing": lambda rng, x: rng.normal(0, 800, len(x)) * x[:, 1],
    "late": lambda rng, x: rng.normal(0, 3_000, len(x)) + 6e4 * (rng.random(len(x)) < 0.03),
    "none": lambda rng, x: np.zeros(len(x)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "steps_n"), nightly_but(product(NOISE, (30, 300)), [("outliers", 30)])
)
def test_intervals_of_slopes_hold_the_truth_in_95_of_100_runs(noise, steps_n):
    rng, truth, runs_n = np.random.default_rng(1), np.array([6e5, 3e3, 4.0]), 400
    held = np.zeros(3)
    for _ in range(runs_n):
        requests = rng.integers(1, 17, steps_n)
        columns = np.column_stack(
            [np.ones(steps_n), requests, requests * rng.integers(50, 300, steps_n)]
        )
        fit = robust_fit(columns, np.round(columns @ truth + NOISE[noise](rng, columns)))
        held += (fit.low <= truth) & (truth <= fit.high)
    # Three standard errors of 400 runs: 3.3 points.
    assert (100 * held / runs_n >= 91.7).all()


@pytest.mark.slow
def test_a_phase_by_itself_costs_what_it_does_among_others(tmp_path):
    path = KINDS["vllm_sums"].run(3).write(tmp_path / "rank0.sqlite")
    every, alone = (quick("serving_steps", path, *words) for words in ((), ("--phase", "decode")))
    for name in ("batches", "cost_model"):
        decode = every[name][every[name]["phase"] == "decode"]
        assert len(decode) > 1
        assert plain(alone[name]) == plain(decode)
    labels = every["batches"]["batch"]  # of the bars of a figure
    assert labels.is_unique
    assert labels.iloc[0] == "decode, 1 request"
    assert labels[labels.str.startswith("mixed")].str.contains("requests, [0-9]+-[0-9]+ prom").any()


def test_columns_that_change_together_are_one():
    requests = np.arange(1.0, 60.0)
    columns = np.column_stack([1_000 + requests, 300 * requests + np.arange(59) % 2])
    assert independent(columns) == [[0, 1]]
    columns[:, 1] = 1e4 * np.sin(requests)
    assert independent(columns) == [[0], [1]]


@pytest.mark.parametrize("seed", range(6))
def test_percentiles_of_uncertain_counts_hold_those_of_all_counts_between(seed):
    rng = np.random.default_rng(seed)
    values, least = rng.integers(0, 99, 6), rng.integers(0, 2, 6)
    most = least + rng.integers(0, 3, 6)
    every = product(*(range(low, high + 1) for low, high in zip(least, most, strict=True)))
    every = [np.repeat(values, counts) for counts in every if any(counts)]
    for percent in (20, 50, 99):
        each = [np.percentile(some, percent) for some in every]
        expected = pytest.approx((min(each), max(each))) if least.any() else None
        assert weighted_percentile(values, least, most, percent) == expected
