"""How much a step does, by its name, and what launch sizes tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nsys_llm.recipes.trace_diff.per_rank.step_works import Work, named_numbers, step_works
from nsys_llm.recipes.trace_diff.tables.config_changes import GEOMETRY, sizes_of


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
    assert work.tokens_n == tokens


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


@pytest.mark.parametrize("seed", range(20))
def test_common_sizes_are_those_of_a_brute_force_sum(seed):
    rng = np.random.default_rng(seed)
    names, grids = ["a", "b", "c"], [1, 2, 4, 8]
    rows = [(name, grid, block) for name in names for grid in grids for block in (32, 64)]
    n = rng.integers(0, 5, (2, len(rows)))
    frame = pd.DataFrame(rows, columns=["name", "grid_x", "block_x"])
    for column in GEOMETRY:
        if column not in frame:
            frame[column] = 1
    frame = frame.assign(baseline_launches_n=n[0], input_launches_n=n[1])
    sizes = sizes_of(frame.sample(frac=1, random_state=seed))
    for name in names:
        of_name = [at for at, row in enumerate(rows) if row[0] == name]
        both = [at for at in of_name if n[0, at] and n[1, at]]
        common = min(sum(n[side, at] for at in both) / n[side, of_name].sum() for side in (0, 1))
        assert sizes.loc[name, "common"] == pytest.approx(common)


def test_kernels_of_which_a_size_is_not_recorded_have_none():
    frame = pd.DataFrame({column: [1, 1, 1] for column in GEOMETRY}).astype("Int64")
    frame = frame.assign(name=["a", "a", "b"], baseline_launches_n=1, input_launches_n=1)
    frame.loc[1, "grid_x"] = pd.NA
    assert sizes_of(frame).index.tolist() == ["b"]
