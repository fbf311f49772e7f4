"""What two runs are compared by: steps of equal work, whatever mix of them each run had.

Steps whose names tell what is in their batch are compared within cells of equal composition, with
the baseline's weights. Where too few cells are in both runs, buckets of batches and prompts take
their place, and each step is moved to the middle of its bucket by the slopes of the baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.view.text import counted, format_count, quoted

from ..per_rank.step_works import Work
from .step_splits import ADJUSTED, BETWEEN, FloatArray, Mask, Part, Series

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
#: Context of a request that is so many times the other's, beyond all of the baseline's.
_OTHER_CONTEXT: Final = 1.2

Cell = Hashable


@dataclass(frozen=True)
class Cells:
    """Steps of equal work in both runs.

    Attributes:
        cell_of: Returns the cell of a work.
        shares: Of each cell, its weight; None where all steps are of one work.
        covered_pct: Share of the steps of each run in these cells, of the run with less.
        adjusted_ns: What each step of the baseline, and of the input, is longer than in the middle
            of its cell, by the slopes of the baseline; or what is left out of it.
        adjusted_part: Where that is in a step.
        note: What is not known of the work.
    """

    cell_of: Callable[[Work], Cell]
    shares: Mapping[Cell, float] | None
    covered_pct: float = 100.0
    adjusted_ns: tuple[FloatArray, FloatArray] | None = None
    adjusted_part: Part = ADJUSTED
    note: str | None = None

    def codes(self, series: Series) -> IntArray:
        """Return the position of each step's cell among `shares`, -1 for none of them."""
        if self.shares is None:
            return np.zeros(len(series), dtype=np.int64)
        place = {cell: code for code, cell in enumerate(self.shares)}
        return np.array([place.get(self.cell_of(work), -1) for work in series.work], dtype=np.int64)


ALL_ALIKE: Final = Cells(lambda _: None, None)


def slow_steps(series: Series, cell: IntArray) -> Mask:
    """Return which steps are above twice the median of their cell on any GPU, shape (steps, GPUs).

    Args:
        series: The steps of a run.
        cell: Of each, -1 for none.
    """
    slow = np.zeros(series.by_gpu.shape, dtype=bool)
    for code in np.unique(cell[cell >= 0]).tolist():
        for gpu in np.unique(series.gpu).tolist():
            rows = np.flatnonzero((cell == code) & (series.gpu == gpu))
            if rows.size:
                values = series.by_gpu[rows]
                slow[rows] = values > SLOW_TIMES * np.median(values, axis=0)
    return slow


def equal_cells(before: Series, after: Series) -> Cells | None:
    """Return the cells by which steps with told compositions are compared; None for too few.

    Args:
        before: Of the baseline.
        after: Of the input.
    """
    if len(set(before.work)) == 1 and set(before.work) == set(after.work):
        return _with_context(Cells(lambda work: work, None), before, after)
    for cell_of in (_exactly, _bucket):
        shares, covered_pct = _shares(cell_of, before, after)
        if covered_pct >= LEAST_COVERED_PCT:
            cells = Cells(cell_of, shares, covered_pct)
            fields: tuple[str, ...] = () if cell_of is _exactly else ("gen_tokens", "ctx_tokens")
            return _with_context(cells, before, after, fields)
    return None


def decode_cells(before: Series, after: Series) -> tuple[Cells, str] | None:
    """Return the steps by which runs of other work have a figure, and what they are; None: none.

    Their time is that of a step itself, without that between steps.

    Steps that only generate in both runs; else those that only read prompts; else those with
    tokens of no kind.
    """
    kinds: tuple[tuple[Callable[[Work], bool], str], ...] = (
        (lambda work: work.is_decode, "decode step"),
        (lambda work: work.is_prefill, "prefill step"),
        (lambda work: work.tokens > 0, "step"),
    )
    for is_of, unit in kinds:
        if all(any(map(is_of, side.work)) for side in (before, after)):
            between = before.between_ns, after.between_ns
            return Cells(_chosen_by(is_of), {True: 1.0}, 100.0, between, BETWEEN), unit
    return None


def _chosen_by(is_of: Callable[[Work], bool]) -> Callable[[Work], Cell]:
    return lambda work: is_of(work) or None


def tokens_of(work: Work) -> int:
    """Return the tokens by which a step of `decode_cells` is divided."""
    if work.is_decode:
        return work.gen_tokens
    return work.ctx_tokens if work.is_prefill else work.tokens


def named_cells(before: Series, after: Series) -> Cells | None:
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


def mix_words(before: Series, after: Series) -> str | None:
    """Say how the mix of steps changed; None where it hardly did."""
    counts = [Counter(map(_kind, side.work)) for side in (before, after)]
    shares = [{kind: 100 * n / count.total() for kind, n in count.items()} for count in counts]
    kinds = sorted(set(shares[0]) | set(shares[1]))
    moved = {kind: shares[1].get(kind, 0.0) - shares[0].get(kind, 0.0) for kind in kinds}
    if sum(map(abs, moved.values())) <= 2 * _MIX_PCT:
        return None
    most = sorted(kinds, key=lambda kind: (-abs(moved[kind]), kind))[:_MOST_WORKS]
    reported = [
        f"{kind} {shares[0].get(kind, 0.0):.0f} -> {shares[1].get(kind, 0.0):.0f} % of the steps"
        for kind in most
    ]
    return f"the mix of steps changed ({'; '.join(reported)}); steps of equal work are compared"


def work_words(before: Series, after: Series) -> str:
    """Say in words how the work of a step changed: batch, prompt tokens, context, or names."""
    words = list(_amount_words(before, after))
    if words:
        return words[0]
    mix = mix_words(before, after)
    if mix is not None:
        return mix.removesuffix("; steps of equal work are compared")
    listed = [_listed(Counter(_kind(work) for work in side.work)) for side in (before, after)]
    return f"steps are other ones: {' -> '.join(listed)}"


def context_words(before: Series, after: Series) -> str | None:
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
    return f"KV length {pair} at {counted(round(float(requests)), 'request')}"


def _exactly(work: Work) -> Cell:
    return work


def _bucket(work: Work) -> Cell:
    """Return the phase, and powers of two of requests and of prompt tokens."""
    if not work.is_told or max(work.gen_tokens, work.ctx_tokens) < 0:
        return work
    return work.is_decode, work.is_prefill, _power(work.gen_reqs), _power(work.ctx_tokens, 7)


def _power(n: int, least: int = 0) -> int:
    return -1 if n <= 0 else max(math.ceil(math.log2(n)), least)


def _shares(
    cell_of: Callable[[Work], Cell], before: Series, after: Series
) -> tuple[dict[Cell, float], float]:
    """Return the weights of the cells that both runs have, and the share of steps in them."""
    sides = []
    for series in (before, after):
        every = [cell_of(work) for work in series.work]
        place = {cell: code for code, cell in enumerate(dict.fromkeys(every))}
        codes = np.array([place[cell] for cell in every], dtype=np.int64)
        slow = np.flatnonzero(slow_steps(series, codes).any(axis=1)).tolist()
        usual = Counter(every) - Counter(every[place] for place in slow)
        sides.append((Counter(every), usual))
    common = [cell for cell in sides[0][0] if all(usual[cell] >= LEAST_STEPS for _, usual in sides)]
    held = [100 * sum(every[cell] for cell in common) / max(every.total(), 1) for every, _ in sides]
    whole = sum(sides[0][0][cell] for cell in common)
    return {cell: sides[0][0][cell] / whole for cell in common}, min(held)


def _with_context(cells: Cells, before: Series, after: Series, fields: Sequence[str] = ()) -> Cells:
    """Return cells with what each step is longer by its context and its place in its bucket."""
    known = all((side.keys_n >= 0).all() for side in (before, after))
    told = [side.keys_n[side.keys_n >= 0] for side in (before, after)]
    note = None if known or not _is_served(before.work[0]) else "contexts are not told"
    columns = [*fields, *(["keys"] if known else [])]
    amounts = [_amounts(side, columns) for side in (before, after)]
    codes = [cells.codes(side) for side in (before, after)]
    slopes = _slopes(before, codes[0], amounts[0])
    if slopes is None:
        if known and told[0].mean() and abs(told[1].mean() / told[0].mean() - 1) > 0.05:
            pair = " -> ".join(format_count(part.mean()) for part in told)
            note = (
                f"contexts differ: KV length {pair}, and the baseline does not say what that costs"
            )
        return Cells(cells.cell_of, cells.shares, cells.covered_pct, note=note)
    middle = _means(codes[0], amounts[0])
    adjusted = [
        np.where(code >= 0, ((amount - middle[code]) * slopes).sum(axis=1), 0.0)
        for code, amount in zip(codes, amounts, strict=True)
    ]
    moved = adjusted[0], adjusted[1]
    return Cells(cells.cell_of, cells.shares, cells.covered_pct, moved, note=note)


def _is_served(work: Work) -> bool:
    return work.label == "" and work.gen_tokens >= 0


def _amounts(series: Series, columns: Sequence[str]) -> FloatArray:
    parts = [
        series.keys_n if name == "keys" else [getattr(work, name) for work in series.work]
        for name in columns
    ]
    return np.array(parts, dtype=np.float64).reshape(len(columns), len(series)).T


def _means(codes: IntArray, amounts: FloatArray) -> FloatArray:
    """Return the mean of each cell, and zeros for steps of none, shape (cells + 1, columns)."""
    cells_n = int(codes.max(initial=-1)) + 1
    means = np.zeros((cells_n + 1, amounts.shape[1]))
    for code in range(cells_n):
        if (codes == code).any():
            means[code] = amounts[codes == code].mean(axis=0)
    return means


def _slopes(series: Series, codes: IntArray, amounts: FloatArray) -> FloatArray | None:
    """Return what one more of each amount costs within the cells of the baseline; None: unknown."""
    usual = (codes >= 0) & ~slow_steps(series, codes).any(axis=1)
    if not amounts.shape[1] or usual.sum() < _LEAST_A_SLOPE * amounts.shape[1]:
        return None
    means = _means(codes[usual], np.column_stack([amounts[usual], series.program_ns[usual]]))
    apart = np.column_stack([amounts[usual], series.program_ns[usual]]) - means[codes[usual]]
    scale = np.abs(apart[:, :-1]).max(axis=0)
    varied = scale > 0
    if not varied.any():
        return None
    slopes = np.zeros(amounts.shape[1])
    fitted = np.linalg.lstsq(apart[:, :-1][:, varied] / scale[varied], apart[:, -1], rcond=1e-9)[0]
    slopes[varied] = fitted / scale[varied]
    return slopes


def _amount_words(before: Series, after: Series) -> Iterator[str]:
    amounts: tuple[tuple[str, Callable[[Work], int]], ...] = (
        ("batch", lambda work: work.gen_reqs if work.ctx_reqs <= 0 else -1),
        ("tokens a request", lambda work: _ratio(work.gen_tokens, work.gen_reqs)),
        ("prompt tokens a step", lambda work: work.ctx_tokens if work.ctx_tokens > 0 else -1),
        ("tokens a step", lambda work: work.tokens),
    )
    for label, of in amounts:
        values = [[n for n in map(of, side.work) if n > 0] for side in (before, after)]
        if not all(values):
            continue
        first, second = (sum(item) / len(item) for item in values)
        if 100 * abs(second - first) > _CHANGED_PCT * max(first, second):
            yield f"{label} {_number(first)} -> {_number(second)}"
    context = context_words(before, after)
    if context is not None:
        yield context


def _ratio(part: int, whole: int) -> int:
    return part // whole if part > 0 and whole > 0 else -1


def _number(value: float) -> str:
    return format_count(value) if value >= 100 or value.is_integer() else f"{value:.3g}"


def _kind(work: Work) -> str:
    """Return what a step is in words: never a folded name of an engine."""
    if work.label:
        amounts = ", ".join(f"{name} {n}" for name, n in work.amounts)
        return quoted(f"{work.label}: {amounts}" if amounts else work.label)
    if work.is_decode:
        return "steps without context"
    return "steps without generation" if work.is_prefill else "mixed steps"


def _listed(counts: Counter[str]) -> str:
    reported = [kind for kind, _ in counts.most_common(_MOST_WORKS)]
    more = len(counts) - len(reported)
    return ", ".join(reported) + (f" and {counted(more, 'other')}" if more else "")
