"""Servers of a few lines each: what names and graphs do not tell is not known, and said so."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from quick_run import quick
from results import rows
from serving_plants import Server
from trace_builder import TraceBuilder

from nsys_llm.recipes.serving_steps.analysis import ANALYSIS

NORM, GEMM, ACTIVATION = "vllm::rms_norm_kernel", "sm90_xmma_gemm_bf16", "vllm::act_and_mul_kernel"


def write(folder, steps, rank=0, during=None):
    """Write steps: name, ns, then size of the graph (0: none), ns of the host before, kernels.

    Args:
        during: Range of the host before.
    """
    trace = TraceBuilder(hostname=f"node{rank}").process(pid=rank + 1, name="server")
    clock = 10_000
    for name, took_ns, *more in steps:
        size, before_ns, kernels = (*more, *(0, 0, None)[len(more) :])
        if during and before_ns:
            trace.nvtx(during, clock, clock + before_ns)
        clock += before_ns
        ops = kernels or [(NORM, size or 7), (GEMM, 7), (ACTIVATION, size or 7)]
        identity = trace.reserve_correlation_ids(1)
        call = "cudaGraphLaunch_v10000" if size else "cudaLaunchKernel_v7000"
        trace.api(call, start_ns=clock + 1_000, end_ns=clock + 9_000, correlation_id=identity)
        start_ns = clock + 12_000
        for place, (kernel, blocks) in enumerate(ops if size else [(GEMM, 7)]):
            node = {"graph_node_id": (size << 32) + place + 1} if size else {}
            took = took_ns // (len(ops) if size else 1)
            trace.kernel(kernel, start_ns=start_ns, duration_ns=took, grid=(blocks, 1, 1),
                         correlation_id=identity, **node)  # fmt: skip
            start_ns += took
        trace.nvtx(name, clock, clock + 11_000)
        clock = max(start_ns, clock + 11_000) + 3_000
    folder.mkdir(exist_ok=True)
    return trace.write_sqlite(folder / f"rank{rank}.sqlite")


def test_what_few_steps_run_on_another_device_is_not_of_the_server(tmp_path):
    path = write(tmp_path, [(decode(4), 500_000)] * 20)
    expected = quick("serving_steps", path)["batch_steps"]["cost_ns"].tolist()
    with closing(sqlite3.connect(path)) as base, base:
        name = "CUPTI_ACTIVITY_KIND_KERNEL"
        columns = [row[1] for row in base.execute(f"PRAGMA table_info({name})")]
        changed = {"deviceId": "1", "end": "end + 2000000"}
        values = ", ".join(changed.get(column, column) for column in columns)
        base.execute(f"INSERT INTO {name} SELECT {values} FROM {name} WHERE rowid IN (6, 11)")
    assert quick("serving_steps", path)["batch_steps"]["cost_ns"].tolist() == expected


def decode(requests):
    return f"execute_context_0(0)_generation_{requests}({requests})"


def of_graphs(sizes, requests, row_ns=2_000, kernels=None):
    """Return decode steps that replay the smallest graph which holds their requests."""
    chance = np.random.default_rng(1)
    for n in requests:
        size = min(item for item in sizes if item >= n)
        yield decode(n), 300_000 + row_ns * size + int(chance.normal(0, 300)), size, 0, kernels


def test_a_row_of_large_graphs_has_its_price(tmp_path):
    requests = np.random.default_rng(2).integers(233, 257, 120).tolist()
    tables = quick("serving_steps", write(tmp_path, of_graphs((240, 248, 256), requests)))
    ((row_ns,),) = rows(tables["padding"], "row_ns")
    assert abs(row_ns - 2_000) < 100


CONSTANT = [(NORM, 132), (GEMM, 7), (ACTIVATION, 132)]


@pytest.mark.slow
def test_the_size_of_a_graph_is_told_by_two_kinds_of_kernels_that_have_it_alone(tmp_path):
    requests = np.random.default_rng(3).integers(1, 17, 60).tolist()
    sizes = (1, 2, 4, 8, 16)
    for place, kernels in enumerate((
        CONSTANT,  # as many blocks as there are processors
        [("triton_poi_fused_mul_silu_1", 14), (GEMM, 7), ("triton_red_fused_rms_norm_0", 14)],
        [(NORM, 16), (GEMM, 7)],
        None,
    )):  # fmt: skip
        path = write(tmp_path / str(place), of_graphs(sizes, requests, kernels=kernels))
        tables = quick("serving_steps", path)
        if kernels is not None:
            assert tables["padding"].empty
        else:
            padding_n = sum(min(s for s in sizes if s >= n) - n for n in requests)
            assert tables["padding"]["padding_n"].tolist() == [padding_n]
    path = write(tmp_path / "alone", of_graphs((64,), requests, kernels=[(NORM, 64), (GEMM, 7)]))
    assert quick("serving_steps", path)["padding"].empty
    # The only size that was captured is far above all batches: that is what is to be told.
    tables = quick("serving_steps", write(tmp_path / "real", of_graphs((64,), requests)))
    assert tables["padding"]["rows_n"].tolist() == [64 * len(requests)]


@pytest.mark.slow
def test_drafts_that_no_name_tells_of_are_no_padding(tmp_path):
    requests = np.random.default_rng(3).integers(1, 9, 80).tolist()
    for width in (1, 2, 4):
        steps = [
            (f"[Executor] _forward_step 3: 0 ctx reqs, {n} gen reqs", *more)
            for n, (_, *more) in zip(
                requests, of_graphs((width, 2 * width, 4 * width, 8 * width),
                                    [width * n for n in requests]), strict=True
            )
        ]  # fmt: skip
        path = write(tmp_path / str(width), steps)
        tables = quick("serving_steps", path)
        assert tables["padding"].empty == (width > 1)
        sizes = quick("llm_hotspots", path)["cuda_graphs"]["captured_size"]
        assert sizes.isna().all() == (width > 1)


@pytest.mark.slow
def test_an_empty_server_that_reads_prompts_by_themselves_has_no_work(tmp_path):
    served = [("step[EXTEND bs=1 toks=90]", 300_000, 0, 9_000_000)]
    served += [(f"step[DECODE bs={1 + k % 2}]", 900_000) for k in range(20)]
    tables = quick("serving_steps", write(tmp_path, served * 6))
    # Each operation comes 15 us after the step before; five times nobody was there for 9 ms.
    (empty_ns,) = (ns for kind, ns in rows(tables["wall"], "wall_class time_ns")
                   if kind == "no_work")  # fmt: skip
    assert empty_ns == 5 * 9_003_000
    assert tables["before_steps"]["total_ns"].sum() <= 6 * 21 * 15_000
    assert "host_before_steps" not in set(tables["findings"]["rule"])
    # More generate than were read, and no step runs for them: they are there by name only, unless
    # the host is at work for them.
    served[1:] = [("step[DECODE bs=2]", 900_000)] * 20
    during = None, "scheduler.recv_requests", "scheduler.process_batch_result"
    for place, (name, is_empty) in enumerate(zip(during, (True, True, False), strict=True)):
        path = write(tmp_path / f"waiting{place}", served * 6, during=name)
        for recipe in ("serving_steps", "step_budget"):
            tables = quick(recipe, path)
            assert ("no_work" in set(tables["wall"]["wall_class"])) == is_empty
            # A third of the time is before prompts; 15 us before each step are the host's anyway.
            assert (max(tables["findings"]["gain_pct"].dropna(), default=0) < 5) == is_empty
    # Parts of one prompt are none that come.
    name = "step[EXTEND bs=1 toks=90]"
    parts = [(name, 300_000), (name, 300_000, 0, 9_000_000), *served[1:]]
    tables = quick("serving_steps", write(tmp_path / "parts", parts * 6))
    assert "no_work" not in set(tables["wall"]["wall_class"])


@pytest.mark.slow
def test_chunks_of_one_prompt_are_no_new_requests(tmp_path):
    def served(sums):
        for _ in range(30):
            for k in range(10):
                yield f"step[DECODE bs={3 if k < 3 else 2}]", 500_000
            for k in range(1, 5):
                told = f" c_sq=512 c_sqsq=9 c_sqsk=9 c_sk={512 * k}" if sums else ""
                yield f"step[EXTEND bs=1 toks=512{told}]", 3_000_000

    columns = "p50_ns p99_ns p99_most_ns tokens_n"
    chunks_ns = 4 * 3_015_000 + 515_000
    tokens_n = 30 * (2 * 3 + 7 * 2)
    tables = quick("serving_steps", write(tmp_path, served(False)))
    # Nobody knows whether it is one prompt or four, and so whether anybody waits for them.
    assert rows(tables["inter_token"], columns) == [(515_000, 515_000, chunks_ns, tokens_n)]
    assert ANALYSIS.answer(tables).endswith("p50 515 us, p99 515 us to 12.6 ms")
    tables = quick("serving_steps", write(tmp_path / "sums", served(True)))
    # Two requests wait for four chunks in one interval of ten; who is read does not.
    row = 515_000, chunks_ns, chunks_ns, tokens_n + 29 * 2
    assert rows(tables["inter_token"], columns) == [row]


def test_pairs_in_which_somebody_came_or_went_tell_no_accepted_tokens(tmp_path):
    width, requests, keys, steps, accepted_n, pairs_n = 3, 4, 8_000, [], 0, 0
    chance = np.random.default_rng(4)
    for k in range(60):
        tokens = requests * width
        steps.append((f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}"
                      f"(sq{tokens}sk{keys + tokens}sqsq9sqsk9)", 500_000))  # fmt: skip
        grown = int(chance.integers(requests, tokens + 1))
        replaced = k % 4 == 3
        if k < 59 and not replaced:
            accepted_n, pairs_n = accepted_n + grown, pairs_n + 1
        keys += grown + (4_000 if k % 8 == 3 else -3_000) * replaced
    tables = quick("serving_steps", write(tmp_path, steps))
    (row,) = rows(tables["speculation"], "pairs_n accepted_n proposed_n")
    # The token that each request keeps anyway is no draft.
    accepted_n, proposed_n = accepted_n - pairs_n * requests, pairs_n * requests * (width - 1)
    assert row == (pairs_n, accepted_n, proposed_n)
    line = ANALYSIS.answer(tables).splitlines()[0]
    assert line.endswith(f"; 4 requests; {100 * accepted_n / proposed_n:.1f} % of drafts accepted")


def sums_step(width, keys, took_ns):
    sums = f"(sq{4 * width}sk{keys}sqsq9sqsk9)"
    return f"execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4{sums}", took_ns


@pytest.mark.parametrize(
    ("plain_keys", "block", "slow", "basis"),
    [
        (8_000, 5, 1.0, "recorded"),
        # Steps without drafts have shorter contexts, or all came first: something else may differ.
        (1_000, 5, 1.0, None),
        (8_000, 40, 1.0, None),
        (8_000, 40, 1.5, None),
    ],
)
def test_what_differs_besides_is_not_taken_for_the_price_of_drafts(
    plain_keys, block, slow, basis, tmp_path
):
    # A draft in four is accepted; twice the time of a step without any needs one.
    steps, keys = [], 8_000
    for start in range(0, 40, block):
        steps += [sums_step(1, plain_keys + 4 * k, 400_000) for k in range(start, start + block)]
        for _ in range(block):
            steps.append(sums_step(2, keys, round(slow * 800_000)))
            keys += 5
    tables = quick("serving_steps", write(tmp_path, steps))
    (row,) = rows(tables["speculation"], "accepted basis verdict")
    assert row == (pytest.approx(0.25), basis, None if basis is None else "loses")
    if basis is not None:
        # Each step begins 15 us after the one before.
        ((low, needed, high, lost_ns),) = rows(
            tables["speculation"], "needed_low needed needed_high lost_ns"
        )
        assert low <= needed <= high
        assert needed == pytest.approx(815 / 415 - 1)
        assert lost_ns == pytest.approx(40 * 815_000 * (1 - 1.25 * 415 / 815), rel=0.001)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("execute_context_0(0)_decode_{0}({0})", "vLLM"),
        ("step[DECODE bs={0} slots=3]", "SGLang"),
        ("[Executor] _forward_step 7: 0 ctx reqs, {0} gen requests", "TensorRT-LLM"),
    ],
)
def test_a_job_of_names_of_no_format_alone_is_told_so(name, engine, tmp_path):
    names = [name.format(1 + k % 5) for k in range(40)]
    tables = quick("serving_steps", write(tmp_path, [(item, 500_000) for item in names]))
    columns = "engine steps_n unparsed_n reason"
    assert rows(tables["servers"], columns) == [(engine, 40, 40, "unparsed")]
    assert tables["batches"].empty
    assert all(item in ANALYSIS.answer(tables) for item in [engine, *names[:3]])


@pytest.mark.parametrize("name", ["execute_step_3", "_forward_step", "step[TRAIN 3]", "step 7"])
def test_a_training_job_is_no_server(name, tmp_path):
    tables = quick("serving_steps", write(tmp_path, [(name, 500_000)] * 30))
    assert rows(tables["servers"], "engine reason") == [(None, "no format")]


def verified(draft, is_read_twice=True):
    """Return steps of SGLang that verify drafts: what the draft model does begins so."""
    for prompt in range(1, 13):
        read = "step[EXTEND bs=1 toks=700]"
        yield read, 1_500_000
        if is_read_twice:
            yield draft + read, 90_000
        for _ in range(prompt % 3 + 2):
            yield from [(f"{draft}step[DECODE bs=2]", 30_000)] * 2
            yield "step[TARGET_VERIFY bs=2]", 600_000


@pytest.mark.parametrize("draft", ["", "draft "])
@pytest.mark.parametrize("is_read_twice", [True, False])
def test_what_a_draft_model_runs_is_no_step(draft, is_read_twice, tmp_path):
    every = [*verified(draft, is_read_twice)]
    tables = quick("serving_steps", write(tmp_path, every))
    steps = tables["batch_steps"].query("mark != 'draft'")
    assert (steps["phase"] == "prefill").sum() == 12
    assert len(steps) == 12 + sum("VERIFY" in name for name, _ in every)
    assert len(tables["batch_steps"]) == len(every)
    assert "between tokens per step: " in ANALYSIS.answer(tables)


def test_two_equal_chunks_of_a_prompt_are_two_steps(tmp_path):
    steps = [("step[EXTEND bs=1 toks=512]", 500_000)] * 3
    steps = (steps + [("step[TARGET_VERIFY bs=1]", 600_000)] * 9) * 3
    assert len(quick("serving_steps", write(tmp_path, steps))["batch_steps"]) == len(steps)


def test_a_step_of_nobody_is_no_step_and_words_say_per_step_without_drafts(tmp_path):
    steps = [("step[IDLE bs=0]" if k % 5 else "step[TARGET_VERIFY bs=2]", 500_000)
             for k in range(50)]  # fmt: skip
    tables = quick("serving_steps", write(tmp_path, steps))
    assert tables["servers"]["unparsed_n"].tolist() == [0]
    assert tables["servers"]["steps_n"].tolist() == [10]
    assert "between tokens per step: " in ANALYSIS.answer(tables)
    assert "2 requests; how many drafts are accepted is not known" in ANALYSIS.answer(tables)


def test_users_wait_for_the_rank_that_generates(tmp_path):
    reads = [("execute_context_1(700)_generation_0(0)", 2_000_000)] * 40
    one = write(tmp_path, reads)
    two = write(tmp_path, [(decode(1 + k % 6), 500_000 + 1_000 * k) for k in range(60)], rank=1)
    tables = quick("serving_steps", one, two)
    answer = ANALYSIS.answer(tables)
    assert answer.startswith("vLLM: 60 steps (rank 1): ")
    assert answer.splitlines()[1].startswith("between tokens: p50 54")
    assert set(tables["cost_model"]["rank"]) == {1}
    assert ANALYSIS.answer(quick("serving_steps", one)).startswith("vLLM: 40 steps: 40 prefill")


@pytest.mark.slow
def test_lines_say_of_which_rank_they_are_where_others_are_not_read(tmp_path):
    paths = [write(tmp_path, [("work", 500_000)] * 30)]
    paths += [write(tmp_path, [(decode(1 + k % 6), 500_000) for k in range(40)], rank=1)]
    assert ANALYSIS.answer(quick("serving_steps", *paths)).startswith("vLLM: 40 steps (rank 1): ")
    slower = write(tmp_path, [(decode(1 + k % 6), 600_000) for k in range(40)], rank=2)
    answer = ANALYSIS.answer(quick("serving_steps", *paths, slower))
    assert answer.startswith("vLLM: 40 steps (rank 2, slowest of 2): ")


def summed(requests, keys):
    sums = f"sq{requests}sk{keys}sqsq{requests}sqsk{keys}"
    return f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({sums})"


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        # Each request has 1,000 keys: nobody can tell a token from its context.
        (lambda n: (summed(n, 1_000 * n), 500_000 + 6_000 * n), "6 us a token with its context"),
        (lambda n: (summed(8, 900 * n), 500_000 + 4_000 * n), "us with the tokens + 4.44 ns a"),
        (lambda n: (decode(n), 900_000 - 9_000 * n), "a decode step = 912 us - 9 us a token"),
    ],
)
def test_the_model_says_what_each_coefficient_stands_for(seen, line, tmp_path):
    requests = np.random.default_rng(5).integers(1, 33, 120).tolist()
    answer = ANALYSIS.answer(quick("serving_steps", write(tmp_path, map(seen, requests))))
    assert line in answer.splitlines()[2]


def test_steps_of_nobody_have_no_phase(tmp_path):
    steps = [(decode(0 if k % 3 == 0 else 1 + k % 5), 500_000) for k in range(60)]
    frame = quick("serving_steps", write(tmp_path, steps))["batch_steps"]
    assert frame["phase"].isna().tolist() == [k % 3 == 0 for k in range(60)]


def test_a_server_without_graphs_is_not_told_to_capture_steps_with_prompts(tmp_path):
    run = Server("vllm", launch_ns=150_000, arrivals=0.3, steps_n=50).run(4)
    tables = quick("serving_steps", run.write(tmp_path / "rank0.sqlite"))
    assert "eager_prefill" not in set(tables["findings"]["rule"])


def test_idle_time_before_steps_is_a_share_of_what_it_lies_in(tmp_path):
    # Idle for 415 us before each step of 300 us.
    tables = quick("serving_steps", write(tmp_path, [(decode(2), 300_000, 0, 400_000)] * 60))
    assert tables["before_steps"]["window_pct"].sum() == pytest.approx(100 * 415 / 715, abs=2)
    details = tables["findings"].set_index("rule").loc["host_before_steps", "details"]
    assert details.endswith(" a step in `(none)`.")
