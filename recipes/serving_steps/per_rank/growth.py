"""Time per launch of each kernel at short and at long contexts, at equal batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.batches import Batches
from nsys_llm.analyses.steps.step_times import StepTimes
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray

#: Keys of context per request, of the upper half of the steps to the lower one.
LEAST_APART: Final = 1.5
#: Steps of each half.
LEAST_STEPS: Final = 20
#: So many of each are looked at, far apart.
_MOST_STEPS: Final = 500
_PS: Final = 1000


@dataclass(frozen=True)
class KernelGrowth:
    """One kernel of one rank.

    Attributes:
        kernel: Full name.
        low_ps: Mean time of a launch, in ps, in the steps with short contexts.
        high_ps: In those with long ones.
        error_ps: Standard error of the difference.
        exclusive_ns: Its time on the rank's devices, shared with no other kernel.
    """

    kernel: str
    low_ps: int
    high_ps: int
    error_ps: int
    exclusive_ns: int


@dataclass(frozen=True)
class ContextGrowth:
    """Two halves of the steps that only generate, of each batch size by itself.

    Attributes:
        steps_n: Of each half.
        low_keys: Mean keys of a request in the lower half.
        high_keys: In the upper one.
    """

    steps_n: int
    low_keys: int
    high_keys: int
    kernels: tuple[KernelGrowth, ...]


def context_growth(
    view: RankView,
    steps: Steps,
    batches: Batches,
    times: StepTimes,
    kernels: tuple[Sequence[str], IntArray],
) -> ContextGrowth | None:
    """Return how kernels grow with the context; None where contexts do not differ enough.

    Args:
        kernels: Full names, and which of them each kernel has that the filters leave or not.
    """
    side = _sides(batches, times)
    low, high = (np.flatnonzero(side == code) for code in (0, 1))
    if low.size < LEAST_STEPS:
        return None
    low, high = (some[:: -(-some.size // _MOST_STEPS)] for some in (low, high))
    keys = batches.field("g_sk") / np.maximum(batches.field("gen_reqs"), 1)
    names, code = kernels
    grown = _kernels(view, steps, len(names), code, (low, high))
    exclusive_ns = _exclusive_ns(view, len(names))
    return ContextGrowth(
        low.size,
        round(float(keys[low].mean())),
        round(float(keys[high].mean())),
        tuple(
            KernelGrowth(names[name], *times_ps, int(exclusive_ns[name]))
            for name, times_ps in grown.items()
        ),
    )


def _sides(batches: Batches, times: StepTimes) -> IntArray:
    """Return which half each step is in, 0 for short contexts, 1 for long ones, -1 for none.

    Of steps with equal numbers of requests and tokens, whose halves are far enough apart.
    """
    names = ("ctx_reqs", "gen_reqs", "gen_tokens", "g_sk")
    context, requests, tokens, keys = (batches.field(name) for name in names)
    side = np.full(len(keys), -1, dtype=np.int64)
    usable = times.counted & (context == 0) & (requests > 0) & (tokens > 0) & (keys != NULL_INT)
    pairs = np.column_stack((requests, tokens))
    for pair in np.unique(pairs[usable], axis=0):
        rows = np.flatnonzero(usable & (pairs == pair).all(axis=1))
        rows = rows[np.argsort(keys[rows], kind="stable")]
        half = rows.size // 2
        lower, upper = rows[:half], rows[rows.size - half :]
        if half and keys[upper].mean() >= LEAST_APART * keys[lower].mean():
            side[lower], side[upper] = 0, 1
    return side


def _kernels(
    view: RankView, steps: Steps, names_n: int, code: IntArray, halves: Sequence[IntArray]
) -> dict[int, tuple[int, int, int]]:
    """Return of kernels in both halves both means and the error, in ps, by place of the name."""
    kernels = view.trace.unfiltered["kernels"]
    # `Steps.step` has the operations of these tables, in order; kernels are the first.
    step = steps.step[: len(kernels)]
    length_ns = kernels["end_ns"] - kernels["start_ns"]
    sides = []
    for some in halves:
        place = np.full(len(steps) + 1, -1, dtype=np.int64)
        place[some] = np.arange(some.size)
        rows = np.flatnonzero(place[step] >= 0)
        cell = place[step[rows]] * names_n + code[rows]
        shape = (some.size, names_n)
        n = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        sides.append((n, exact_sums(cell, length_ns[rows], n.size).reshape(shape)))
    grown: dict[int, tuple[int, int, int]] = {}
    for name in range(names_n):
        columns = [(n[:, name], ns[:, name]) for n, ns in sides]
        if all((n > 0).sum() >= LEAST_STEPS for n, _ in columns):
            means = [ns.sum() / n.sum() for n, ns in columns]
            each = [ns[n > 0] / n[n > 0] for n, ns in columns]
            error_ns = float(np.sqrt(sum(some.var(ddof=1) / some.size for some in each)))
            low_ps, high_ps, error_ps = (round(ns * _PS) for ns in (*map(float, means), error_ns))
            grown[name] = low_ps, high_ps, error_ps
    return grown


def _exclusive_ns(view: RankView, names_n: int) -> IntArray:
    """Return the time of each kernel on all devices; of several at once the first has it."""
    sums = np.zeros(names_n + 1, dtype=np.int64)
    for layers in view.wall_layers[1]:
        length_ns = layers.compute[:, 1] - layers.compute[:, 0]
        sums += exact_sums(layers.label, length_ns, names_n + 1)
    return sums
