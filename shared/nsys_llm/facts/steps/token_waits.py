"""What users wait between tokens, by the steps of a server. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: Share of waits, in percent, of which nobody knows who waited: those with prompts are the longest,
#: so that percentiles of the others say too little from here on.
MOST_UNKNOWN_PCT: Final = 1.0

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TokenWaits:
    """Times from the end of a step that generates to that of the next; arrays of shape (waits,).

    Attributes:
        tokens_n: Requests that got a token at both ends, as far as that is certain.
        most_n: As many at most; at least 1.
        last: Position of the step that ends it.
        mixed: Whether a step in it reads a prompt.
        left_out_n: How many are not here: not known, cut, or nobody waited.
        unknown_n: Those of them that do not tell who waited.
    """

    time_ns: IntArray
    tokens_n: IntArray
    most_n: IntArray
    last: IntArray
    mixed: _Mask
    left_out_n: int
    unknown_n: int


def read_on(requests: IntArray, tokens: IntArray, keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return how many requests of each step were read in the one before, too: least, and most.

    Engines cut the last prompt of a step, so there is one of them at most. A step that looks at no
    other keys than its own has none; one of a single request has one where it looks at as many
    keys more as the step before had. Arrays of shape (steps,), of requests whose prompt is read,
    their tokens and keys; -1 or less where that is not told.
    """
    least, most = np.zeros((2, requests.size), dtype=np.int64)
    alone = (requests[1:] == 1) & (requests[:-1] == 1) & (keys[:-1] > 0) & (tokens[1:] > 0)
    least[1:] = alone & (keys[1:] - tokens[1:] == keys[:-1])
    most[1:] = (
        (requests[1:] > 0) & (requests[:-1] > 0) & ((keys[1:] != tokens[1:]) | (keys[1:] < 0))
    )
    return least, most


def token_waits(
    end_ns: IntArray,
    generating: IntArray,
    reading: IntArray,
    going_on: tuple[IntArray, IntArray],
    unknown: _Mask,
    breaks: _Mask,
    *,
    together: bool,
) -> TokenWaits:
    """Return the waits of one rank, in order of time; arrays of shape (steps,).

    A wait counts once for each request that generates in the step that ends it, but for those whose
    prompt was read strictly between: their first token came later. About what a client sees.

    Args:
        end_ns: Where all that the step and earlier ones launched has ended.
        generating: Requests that generate, -1 or less where that is not told.
        reading: Requests whose prompt is read, likewise.
        unknown: Of which steps nobody knows who is in them.
        breaks: Steps that are in no statistic, or before which steps are missing, or nobody is.
        together: Whether a step holds all requests that generate. Where others wait while prompts
            are read, one prompt in several steps may count several times.
    """
    place = np.flatnonzero(generating > 0)
    first, last = place[:-1], place[1:]

    def until(values: npt.NDArray[Any]) -> IntArray:
        return np.concatenate(([0], np.cumsum(values)))

    def waiting(again: IntArray) -> IntArray:
        new_n = until(np.maximum(reading, 0) - again)
        # Whose prompt goes on beyond the first step of a wait had no token of that.
        on_n = np.where(last > first + 1, again[np.minimum(first + 1, last)], 0)
        return np.asarray(generating[last] - (new_n[last] - new_n[first + 1] + on_n))

    unknown_n, reads_n, breaks_n = until(unknown), until(reading > 0), until(breaks)
    least, most = going_on
    tokens_n = most_n = waiting(least)
    if not together:
        most_n = np.minimum(waiting(most), (generating + np.maximum(reading, 0))[first])
        tokens_n = np.clip(tokens_n, 0, most_n.clip(min=0))
    is_known = unknown_n[last + 1] == unknown_n[first + 1]
    kept = is_known & (breaks_n[last + 1] == breaks_n[first + 1]) & (most_n > 0)
    return TokenWaits(
        (end_ns[last] - end_ns[first])[kept],
        tokens_n[kept],
        most_n[kept],
        last[kept],
        (reads_n[last + 1] > reads_n[first + 1])[kept],
        int((~kept).sum()),
        int((~is_known).sum()),
    )


def weighted_percentile(
    values: IntArray, least_n: IntArray, most_n: IntArray, percent: float
) -> tuple[float, float] | None:
    """Return a percentile of values of which each stands so many times, least and most; or None.

    Interpolated linearly, as `numpy.percentile` does. None where there may be none.
    """
    if not least_n.any():
        return None
    order = np.argsort(values, kind="stable")
    low = _lowest(values[order], least_n[order], most_n[order], percent)
    order = order[::-1]
    return low, -_lowest(-values[order], least_n[order], most_n[order], 100 - percent)


def _lowest(values: IntArray, least_n: IntArray, most_n: IntArray, percent: float) -> float:
    """Return the least that a percentile may be: many values up to some, few above; ascending."""
    values, one_n = np.repeat(values, 2), np.minimum(least_n + 1, most_n)
    # One of the value itself, where it may be there, may be as good as all.
    parts = (least_n, 0 * least_n), (one_n, most_n - one_n)
    few, many = (np.append(0, np.cumsum(np.column_stack(some))) for some in parts)
    place = (many + few[-1] - few - 1) * (percent / 100)

    def value(rank: IntArray) -> IntArray:
        beyond = np.searchsorted(few[1:], rank - many + few, side="right")
        upto = np.searchsorted(many[1:], rank, side="right")
        return values[np.where(rank < many, upto, beyond)]

    low, high = value(np.floor(place)), value(np.ceil(place))
    return float((low + (high - low) * (place % 1)).min())
