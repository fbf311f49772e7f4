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
        time_ns: Length of each.
        tokens_n: Requests that got a token at both ends, at least 1.
        last: Position of the step that ends it.
        mixed: Whether a step in it reads a prompt.
        left_out_n: How many are not here: not known, cut, or nobody waited.
        unknown_n: Those of them that do not tell who waited, or contradict each other.
    """

    time_ns: IntArray
    tokens_n: IntArray
    last: IntArray
    mixed: _Mask
    left_out_n: int
    unknown_n: int


def token_waits(
    end_ns: IntArray,
    generating: IntArray,
    reading: IntArray,
    read_on: IntArray,
    unknown: _Mask,
    breaks: _Mask,
    *,
    together: bool,
) -> TokenWaits:
    """Return the waits of one rank, in order of time; arrays of shape (steps,).

    A wait counts once for each request that generates in the step that ends it, but for those whose
    prompt was read strictly between: their first token came later. A lower bound of what a client
    sees.

    Args:
        end_ns: Where all that the step and earlier ones launched has ended.
        generating: Requests that generate, -1 or less where that is not told.
        reading: Requests whose prompt is read, likewise.
        read_on: How many of them were read in the step before, too.
        unknown: Of which steps nobody knows who is in them.
        breaks: Steps that are in no statistic, or before which steps are missing.
        together: Whether a step holds all requests that generate. Where others wait while prompts
            are read, one prompt in several steps may count several times.
    """
    place = np.flatnonzero(generating > 0)
    first, last = place[:-1], place[1:]

    def until(values: npt.NDArray[Any]) -> IntArray:
        return np.concatenate(([0], np.cumsum(values)))

    unknown_n, reads_n, breaks_n = until(unknown), until(reading > 0), until(breaks)
    new_n = until(np.maximum(reading, 0) - read_on)
    # Whose prompt goes on beyond the first step of a wait had no token of that.
    on_n = np.where(last > first + 1, read_on[np.minimum(first + 1, last)], 0)
    tokens_n = generating[last] - (new_n[last] - new_n[first + 1] + on_n)
    is_known = unknown_n[last + 1] == unknown_n[first + 1]
    if not together:
        reads_between_n = reads_n[last] - reads_n[first + 1]
        contradicts = (tokens_n < 0) | ((tokens_n == 0) & (reads_between_n > 1))
        is_known &= ~(contradicts & (generating[last] > 1))
    kept = is_known & (breaks_n[last + 1] == breaks_n[first + 1]) & (tokens_n > 0)
    return TokenWaits(
        (end_ns[last] - end_ns[first])[kept],
        tokens_n[kept],
        last[kept],
        (reads_n[last + 1] > reads_n[first + 1])[kept],
        int((~kept).sum()),
        int((~is_known).sum()),
    )


def weighted_percentile(values: IntArray, counts: IntArray, percent: float) -> float | None:
    """Return a percentile of values of which each stands so many times; None for none.

    The first value that so many of them do not exceed.
    """
    if not values.size:
        return None
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(reached, percent / 100 * reached[-1])])
