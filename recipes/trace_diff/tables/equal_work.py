"""What two runs are compared by: steps of equal work, whatever mix of them each run had.

Steps whose names tell what is in their batch are compared within cells of equal composition, with
the baseline's weights. Where too few cells are in both runs, buckets of batches and prompts take
their place, and each step is moved to the middle of its bucket by the slopes of the baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.facts.compared.step_works import Work
from nsys_llm.numeric.grouping import distinct_rows, positions, split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.view.text import counted, format_count, quoted

from .step_splits import ADJUSTED, BETWEEN, FloatArray, Mask, Part, RunSteps

#: Steps of a cell that both runs need.
LEAST_STEPS: Final = 5
#: Share of each run's steps in common cells, in percent, below which there is no figure.
LEAST_COVERED_PCT: Final = 50.0
#: Steps left out at each end of a cell.
TRIMMED: Final = 0.1
#: A step is slow above so many times the median of its own run; in cells, of its cell.
SLOW_TIMES: Final = 2.0
#: Steps that each coefficient of a fit needs.
_LEAST_A_SLOPE: Final = 10
#: Percent by which an amount has to change to be said.
_CHANGED_PCT: Final = 5.0
#: Share of steps, in percent, by which the mix has to change to be said.
_MIX_PCT: Final = 5.0
_MOST_WORKS: Final = 2
_EQUAL: Final = "; steps of equal work are compared"
#: Context of a request that is so many times the other's, beyond all of the baseline's.
_OTHER_CONTEXT: Final = 1.2

Cell = Hashable


@dataclass(frozen=True)
class Cells:
    """Steps of equal work in both runs.

    Attributes:
        shares: Of each cell, its weight; None where all steps are of one work.
        covered_pct: Share of the steps of each run in these cells, of the run with less.
        adjusted_ns: What each step of the baseline, and of the input, is longer than in the middle
            of its cell, by the slopes of the baseline; or what is left out of it.
    """

    cell_of: Callable[[Work], Cell]
    shares: Mapping[Cell, float] | None
    covered_pct: float = 100.0
    adjusted_ns: tuple[FloatArray, FloatArray] | None = None
    adjusted_part: Part = ADJUSTED
    note: str | None = None

    @property
    def weights(self) -> FloatArray:
        """Of each cell, shape (cells,)."""
        return np.ones(1) if self.shares is None else np.array(list(self.shares.values()))

    def codes(self, steps: RunSteps) -> IntArray:
        """Return the position of each step's cell among `shares`, -1 for none of them."""
        if self.shares is None:
            return np.zeros(len(steps), dtype=np.int64)
        return positions(map(self.cell_of, steps.work), self.shares)


ALL_ALIKE: Final = Cells(lambda _: None, None)


def slow_steps(steps: RunSteps, cell: IntArray) -> Mask:
    """Return which steps are above twice the median of their cell on any GPU, shape (steps, GPUs).

    Those of cell -1 are not.
    """
    slow = np.zeros(steps.by_gpu.shape, dtype=bool)
    compared = np.flatnonzero(cell >= 0)
    _, code = distinct_rows([cell[compared], steps.gpu[compared]])
    for rows in split_by_code(code, int(code.max(initial=-1)) + 1):
        values = steps.by_gpu[compared[rows]]
        slow[compared[rows]] = values > SLOW_TIMES * np.median(values, axis=0)
    return slow


def equal_cells(before: RunSteps, after: RunSteps) -> Cells | None:
    """Return the cells by which steps with told compositions are compared; None for too few."""
    if len({*before.work, *after.work}) == 1:
        return _with_context(ALL_ALIKE, before, after)
    for cell_of, fields in ((lambda work: work, ()), (_bucket, ("gen_tokens", "ctx_tokens"))):
        shares, covered_pct = _shares(cell_of, before, after)
        if covered_pct >= LEAST_COVERED_PCT:
            return _with_context(Cells(cell_of, shares, covered_pct), before, after, fields)
    return None


#: What steps of other work are compared by, and what they are called, in this order.
_KINDS: Final[tuple[tuple[Callable[[Work], bool], str], ...]] = (
    (lambda work: work.is_decode, "decode step"),
    (lambda work: work.is_prefill, "prefill step"),
    (lambda work: work.tokens > 0, "step"),
)


def decode_cells(before: RunSteps, after: RunSteps) -> tuple[Cells, str] | None:
    """Return the steps by which runs of other work have a figure, and what they are; None: none.

    Steps that only generate in both runs; else those that only read prompts; else those with
    tokens of no kind. Their time is that of a step itself, without that between steps.
    """
    for is_of, unit in _KINDS:
        if all(any(map(is_of, side.work)) for side in (before, after)):
            between = before.between_ns, after.between_ns
            # What is of another kind is in a cell that has no share.
            return Cells(is_of, {True: 1.0}, 100.0, between, BETWEEN), unit
    return None


def tokens_of(work: Work) -> int:
    """Return the tokens by which a step of `decode_cells` is divided."""
    if work.is_decode:
        return work.gen_tokens
    return work.ctx_tokens if work.is_prefill else work.tokens


def named_cells(before: RunSteps, after: RunSteps) -> Cells | None:
    """Return the cells of steps whose names tell no amounts: by name; None where few are common."""
    names = [Counter(side.work) for side in (before, after)]
    common = names[0].keys() & names[1].keys()
    if not common and all(len(name) == 1 for name in names):
        return ALL_ALIKE  # a pattern of --step says that two names are one
    held = [sum(name[work] for work in common) / name.total() for name in names]
    if min(held) < LEAST_COVERED_PCT / 100:
        return None
    if len(common) == 1 and all(len(name) == 1 for name in names):
        return ALL_ALIKE
    whole = sum(names[0][work] for work in common)
    shares: dict[Cell, float] = {work: names[0][work] / whole for work in sorted(common)}
    return Cells(lambda work: work, shares, 100 * min(held))


def mix_words(before: RunSteps, after: RunSteps) -> str | None:
    """Say how the mix of steps changed; None where it hardly did."""
    counts = [Counter(map(_kind, side.work)) for side in (before, after)]
    kinds = sorted(counts[0] | counts[1])
    shares = {kind: [100 * count[kind] / count.total() for count in counts] for kind in kinds}
    moved = {kind: second - first for kind, (first, second) in shares.items()}
    if sum(map(abs, moved.values())) <= 2 * _MIX_PCT:
        return None
    most = sorted(kinds, key=lambda kind: (-abs(moved[kind]), kind))[:_MOST_WORKS]
    reported = [
        f"{kind} {' -> '.join(f'{share:.0f}' for share in shares[kind])} % of the steps"
        for kind in most
    ]
    return f"the mix of steps changed ({'; '.join(reported)}){_EQUAL}"


def work_words(before: RunSteps, after: RunSteps) -> str:
    """Say in words how the work of a step changed: batch, prompt tokens, context, or names."""
    words = next(_amount_words(before, after), None) or context_words(before, after)
    if words is not None:
        return words
    mix = mix_words(before, after)
    if mix is not None:
        return mix.removesuffix(_EQUAL)
    kinds = []
    for counts in (Counter(map(_kind, side.work)) for side in (before, after)):
        named = ", ".join(kind for kind, _ in counts.most_common(_MOST_WORKS))
        more_n = len(counts) - _MOST_WORKS
        kinds.append(f"{named} and {counted(more_n, 'other')}" if more_n > 0 else named)
    return f"steps are other ones: {' -> '.join(kinds)}"


def context_words(before: RunSteps, after: RunSteps) -> str | None:
    """Say that the input looks at contexts of another length at equal batches; None if it does not.

    It does where its mean is beyond all that the baseline has, and so no slope tells what that
    costs.
    """
    known = [side.keys_n[side.keys_n > 0] for side in (before, after)]
    if not all(part.size for part in known):
        return None
    means = [float(part.mean()) for part in known]
    low, high = known[0].min() / _OTHER_CONTEXT, known[0].max() * _OTHER_CONTEXT
    if low <= means[1] <= high:
        return None
    requests = np.median([max(work.gen_reqs, work.ctx_reqs) for work in after.work])
    pair = " -> ".join(format_count(mean) for mean in means)
    return f"KV length at {counted(round(float(requests)), 'request')}, {pair} in all"


def _bucket(work: Work) -> Cell:
    """Return the phase, and powers of two of requests and of prompt tokens."""
    if not work.is_told or max(work.gen_tokens, work.ctx_tokens) < 0:
        return work
    return work.is_decode, work.is_prefill, _power(work.gen_reqs), _power(work.ctx_tokens, 7)


def _power(n: int, least: int = 0) -> int:
    return -1 if n <= 0 else max(math.ceil(math.log2(n)), least)


def _shares(
    cell_of: Callable[[Work], Cell], before: RunSteps, after: RunSteps
) -> tuple[dict[Cell, float], float]:
    """Return the weights of the cells that both runs have, and the share of steps in them."""
    sides = []
    for steps in (before, after):
        every = [cell_of(work) for work in steps.work]
        codes = positions(every, dict.fromkeys(every))
        slow = np.flatnonzero(slow_steps(steps, codes).any(axis=1)).tolist()
        usual = Counter(every) - Counter(every[place] for place in slow)
        sides.append((Counter(every), usual))
    common = [cell for cell in sides[0][0] if all(usual[cell] >= LEAST_STEPS for _, usual in sides)]
    held = [100 * sum(every[cell] for cell in common) / max(every.total(), 1) for every, _ in sides]
    whole = sum(sides[0][0][cell] for cell in common)
    return {cell: sides[0][0][cell] / whole for cell in common}, min(held)


def _with_context(
    cells: Cells, before: RunSteps, after: RunSteps, fields: Sequence[str] = ()
) -> Cells:
    """Return cells with what each step is longer by its context and its place in its bucket."""
    sides = (before, after)
    known = all((side.keys_n >= 0).all() for side in sides)
    columns = [*fields, *(["keys"] if known else [])]
    amounts = [_amounts(side, columns) for side in sides]
    codes = [cells.codes(side) for side in sides]
    slopes = _slopes(before, codes[0], amounts[0])
    is_served = before.work[0].label == "" and before.work[0].gen_tokens >= 0
    note = "context lengths are unknown" if is_served and not known else None
    if slopes is None:
        means = [side.keys_n.mean() for side in sides]
        if known and means[0] and abs(means[1] / means[0] - 1) > _CHANGED_PCT / 100:
            pair = " -> ".join(map(format_count, means))
            note = (
                f"contexts differ: KV length {pair} in all, and the baseline does not say what "
                "that costs"
            )
        return replace(cells, note=note)
    middle = _means(codes[0], amounts[0])
    first, second = (
        np.where(code >= 0, ((amount - middle[code]) * slopes).sum(axis=1), 0.0)
        for code, amount in zip(codes, amounts, strict=True)
    )
    return replace(cells, adjusted_ns=(first, second), note=note)


def _amounts(steps: RunSteps, columns: Sequence[str]) -> FloatArray:
    parts = [
        steps.keys_n if name == "keys" else [getattr(work, name) for work in steps.work]
        for name in columns
    ]
    return np.array(parts, dtype=np.float64).reshape(len(columns), len(steps)).T


def _means(codes: IntArray, amounts: FloatArray) -> FloatArray:
    """Return the mean of each cell, and zeros for steps of none, shape (cells + 1, columns)."""
    means = np.zeros((int(codes.max(initial=-1)) + 2, amounts.shape[1]))
    for code in np.unique(codes[codes >= 0]).tolist():
        means[code] = amounts[codes == code].mean(axis=0)
    return means


def _slopes(steps: RunSteps, codes: IntArray, amounts: FloatArray) -> FloatArray | None:
    """Return what one more of each amount costs within the cells of the baseline; None: unknown."""
    usual = (codes >= 0) & ~slow_steps(steps, codes).any(axis=1)
    columns_n = amounts.shape[1]
    if not columns_n or usual.sum() < _LEAST_A_SLOPE * columns_n:
        return None
    values = np.column_stack([amounts[usual], steps.program_ns[usual]])
    apart = values - _means(codes[usual], values)[codes[usual]]
    scale = np.abs(apart[:, :-1]).max(axis=0)
    varied = scale > 0
    if not varied.any():
        return None
    slopes = np.zeros(columns_n)
    fitted = np.linalg.lstsq(apart[:, :-1][:, varied] / scale[varied], apart[:, -1], rcond=1e-9)[0]
    slopes[varied] = fitted / scale[varied]
    return slopes


def _amount_words(before: RunSteps, after: RunSteps) -> Iterator[str]:
    amounts: tuple[tuple[str, Callable[[Work], int]], ...] = (
        ("batch", lambda work: work.gen_reqs if work.ctx_reqs <= 0 else -1),
        (
            "tokens a request",
            lambda work: work.gen_tokens // work.gen_reqs if work.gen_reqs > 0 else -1,
        ),
        ("prompt tokens a step", lambda work: work.ctx_tokens if work.ctx_tokens > 0 else -1),
        ("tokens a step", lambda work: work.tokens),
    )
    for label, of in amounts:
        values = [[n for n in map(of, side.work) if n > 0] for side in (before, after)]
        if not all(values):
            continue
        first, second = (sum(item) / len(item) for item in values)
        if 100 * abs(second - first) > _CHANGED_PCT * max(first, second):
            pair = (
                format_count(n) if n >= 100 or n.is_integer() else f"{n:.3g}"
                for n in (first, second)
            )
            yield f"{label} {' -> '.join(pair)}"


def _kind(work: Work) -> str:
    """Return what a step is in words: never a folded name of an engine."""
    if work.label:
        amounts = ", ".join(f"{name} {n}" for name, n in work.amounts)
        return quoted(f"{work.label}: {amounts}" if amounts else work.label)
    if work.is_decode:
        return "steps without context"
    return "steps without generation" if work.is_prefill else "mixed steps"
