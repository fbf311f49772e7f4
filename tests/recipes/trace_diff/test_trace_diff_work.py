"""How much a step does, by its name, and what launch sizes tell."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from nsys_llm.facts.compared.step_works import Work, named_numbers, step_works
from nsys_llm.recipes.trace_diff.tables.chosen_steps import inter_token_ns
from nsys_llm.recipes.trace_diff.tables.equal_work import equal_cells
from nsys_llm.recipes.trace_diff.tables.step_splits import RunSteps


@pytest.mark.parametrize(
    ("name", "numbers", "tokens"),
    [
        ("decode bs=32", {"bs": 32}, 32),
        ("train batch_size=8, seq_len: 2048", {"batch_size": 8, "seq_len": 2048}, 16_384),
        ("forward: num_tokens=96 bs=4", {"num_tokens": 96, "bs": 4}, 96),
        ("prefill tokens: 512, decode tokens: 8", {"prefill tokens": 512, "decode tokens": 8}, 520),
        ("step 12", {}, None),
        ("iteration=7 rank: 3 layer_4", {}, None),
        ("ProfilerStep#12", {}, None),
        ("lr=0.125 loss: 2.5", {}, None),
    ],
)
def test_numbers_of_step_names_are_read(name, numbers, tokens):
    assert dict(named_numbers(name)) == numbers
    (work,), _, _ = step_works([name])
    parts = [n for n in (work.ctx_tokens, work.gen_tokens, work.tokens) if n >= 0]
    assert (sum(parts) if parts else None) == tokens


def test_what_counts_up_is_no_work():
    works, _, _ = step_works([f"phase: {n} size: {4 + n % 2}" for n in range(9)])
    assert [work.amounts for work in works] == [(("size", 4 + n % 2),) for n in range(9)]


def test_formats_of_engines_tell_kinds_of_steps_and_context():
    names = (
        "execute_context_1(512)_generation_0(0)",
        "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk90sqsq2sqsk90)",
        "execute_context_1(512)_generation_2(2)",
        "execute_context_1(x)_generation_0(0)",
    )
    works, keys_n, unparsed_n = step_works(names)
    assert [work.is_prefill for work in works] == [True, False, False, False]
    assert [work.is_decode for work in works] == [False, True, False, False]
    assert (keys_n, unparsed_n) == ([-1, 90, -1, -1], 1)
    assert works[1] == Work(
        "",
        (("ctx_reqs", 0), ("ctx_tokens", 0), ("gen_reqs", 2), ("gen_tokens", 2)),
        0, 0, 2, 2,
    )  # fmt: skip


def detailed(gen, keys, ctx=0):
    """Return vLLM's detailed name of a step: requests that generate, keys of context, a prompt."""
    prompt = f"{min(ctx, 1)}(sq{ctx}sk{ctx}sqsq{ctx}sqsk{ctx})"
    return f"execute_{gen}_context_{prompt}_generation_{gen}(sq{gen}sk{keys}sqsq{gen}sqsk{keys})"


def series(steps, cost_ns):
    """Return steps of (requests, keys, prompt tokens), each as long as `cost_ns` says."""
    works, keys_n, unparsed_n = step_works([detailed(*step) for step in steps])
    assert unparsed_n == 0
    ns = np.array([cost_ns(*step) for step in steps], dtype=np.float64)
    place, keys = np.arange(len(steps)), np.array(keys_n)
    lined_up = place * 0 - 1, place, tuple(works), keys, ns, ns, ns * 0, ns.reshape(-1, 1)
    return RunSteps("step", "step", len(steps), 0, {}, *lined_up)


def mixed(seed, longest, fullest, n=240):
    """Return steps with prompts of which hardly two are as long; batches of 5 to 8 requests."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(5, 9, n), rng.integers(1_000, fullest, n), rng.integers(129, longest, n)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("slower_ns", [0, 9_000])
def test_buckets_and_contexts_leave_what_is_slower_whatever_the_mix(seed, slower_ns):
    """Each token of a prompt and each key of context costs its time, which buckets take off."""
    rng = np.random.default_rng(100 + seed)
    of_prompt, of_key, of_request = rng.uniform(50, 500), rng.uniform(1, 9), rng.uniform(100, 900)

    def cost_ns(gen, keys, ctx):
        return 200_000 + of_request * gen + of_key * keys + of_prompt * ctx

    before = series(mixed(seed, 257, 4_000), cost_ns)
    # Shorter prompts and fuller contexts, which the baseline has, too.
    steps = mixed(seed + 50, 180, 4_000)
    after = series([step for step in steps if step[1] > 2_500], lambda *s: cost_ns(*s) + slower_ns)
    cells = equal_cells(before, after)
    assert cells.note is None
    assert (cells.covered_pct, len(cells.shares)) == (100, 1)
    # Prompts of 129 to 256 tokens and 5 to 8 requests are one bucket: all of it is equal work.
    first, second = (
        side.program_ns - adjusted
        for side, adjusted in zip((before, after), cells.adjusted_ns, strict=True)
    )
    assert np.ptp(first) < 1
    assert second - first.mean() == pytest.approx(np.full(len(after), slower_ns), abs=1)


def test_buckets_part_phases_and_powers_of_two():
    """Exact batches hardly repeat; of equal work are those of one power of two."""
    decodes = [(gen, 100 * gen, 0) for gen in range(9, 17)] * 3
    small, large = ([(4, 500, ctx) for ctx in range(first, first + 8)] * 3 for first in (300, 600))
    sides = [
        series([(*step[:2], step[2] + shift * bool(step[2])) for step in steps], lambda *s: 1e5)
        for shift, steps in ((0, decodes + small + large), (40, decodes[::-1] + large + small))
    ]
    cells = equal_cells(*sides)
    codes = [cells.codes(side) for side in sides]
    for side, code in zip(sides, codes, strict=True):
        # Batches of 9 to 16; prompts of 257 to 512 tokens; of 513 to 1,024.
        groups = [(work.is_decode, work.ctx_tokens > 512) for work in side.work]
        assert len(set(zip(code.tolist(), groups, strict=True))) == len(set(groups)) == 3
    assert sorted(cells.shares.values()) == pytest.approx([1 / 3] * 3)


def test_contexts_that_nobody_can_price_are_said_and_not_adjusted_for():
    steps = [(8, 4_000, 0)] * 30
    longer = [(8, 4_400, 0)] * 30
    cells = equal_cells(series(steps, lambda *_: 1e5), series(longer, lambda *_: 1e5))
    assert cells.adjusted_ns is None
    assert "KV length 4,000 -> 4,400 in all," in cells.note
    names = [f"execute_context_0(0)_generation_{n}({n})" for n in (8,) * 30]
    works, keys_n, _ = step_works(names)
    side = replace(series(steps, lambda *_: 1e5), work=tuple(works), keys_n=np.array(keys_n))
    assert equal_cells(side, side).note == "context lengths are unknown"


@pytest.mark.parametrize(
    ("mixed", "sums", "p99_ns"), [(0, "", 10), (1, "", 10), (3, "", None), (3, " c=1 g=3", 30)]
)
def test_steps_that_do_not_tell_whether_they_generate_leave_the_wait_unknown(mixed, sums, p99_ns):
    """A mixed step takes 30 ns, each other 10; without sums its name tells no kind of request."""
    places = range(50, 50 + mixed)
    names = ["step[DECODE bs=4]"] * 200
    for place in places:
        names[2 * place - 60] = f"step[MIXED bs=4{sums}]"
    works, keys_n, _ = step_works(names)
    ends = np.cumsum([30 if "MIXED" in name else 10 for name in names])
    gpu = SimpleNamespace(
        walls=SimpleNamespace(works=works),
        steps=SimpleNamespace(
            work=np.arange(200), number=np.arange(200), keys_n=np.array(keys_n), end_ns=ends
        ),
    )
    assert inter_token_ns(SimpleNamespace(name="step[...]", gpus={0: gpu}), 99) == p99_ns
