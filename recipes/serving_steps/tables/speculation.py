"""How many drafts are accepted, and how many must be: the table `speculation`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.serving.rank import ServedSteps
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.two_samples import scaled_mad

from .batches import Row
from .cost_model import GEN_TOKENS, fitted

#: Steps with drafts, and without, at one number of requests whose medians are compared.
_LEAST_STEPS: Final = 5
#: Share of the steps with drafts that such numbers of requests must hold.
_LEAST_SHARE: Final = 0.5
#: Steps whose contexts differ by more are not compared, nor those with and without drafts between
#: which a run changes fewer times: what else changed with them would be taken for the drafts.
_MOST_KEYS: Final = 1.25
_LEAST_CHANGES: Final = 6
#: Pairs whose widths differ by more from those of all steps say nothing about these.
_MOST_WIDTH: Final = 1.1
#: Pairs of steps from which the accepted drafts have an interval.
_LEAST_PAIRS: Final = 10
#: Half of an interval of 95 %, in standard errors.
_ERRORS: Final = 1.96
#: Standard error of a median, in standard deviations over the root of the count.
_OF_MEDIAN: Final = 1.2533
#: Where the time of a step without drafts comes from, and whether drafts pay.
RECORDED, MODEL, PAYS, LOSES = "recorded", "cost model", "pays", "loses"


class _Needed(NamedTuple):
    """Accepted drafts a request and step at which drafts cost what they save.

    Attributes:
        value: None where only bounds are known.
        high: None where nothing says what a step without drafts takes; likewise `basis`.
    """

    low: float
    value: float | None = None
    high: float | None = None
    basis: str | None = None


def speculation(served: ServedSteps) -> Row | None:
    """Return the row of `speculation`, but for the rank; None for one that verifies no drafts."""
    names = ("gen_reqs", "gen_tokens", "g_sk", "ctx_reqs")
    requests, tokens, keys, context = (served.batches.field(name) for name in names)
    counted = served.times.counted
    # Names may tell that drafts are verified, and not of how many tokens.
    no_width = counted & (requests > 0) & (context == 0) & (tokens == NULL_INT)
    verifying = counted & (requests > 0) & (tokens > requests)
    drafts_ns = served.draft_busy_ns
    if not (verifying | no_width).any() and drafts_ns is None:
        return None
    # Nobody came or went between two steps in a row: what their keys grew by was accepted.
    first = np.flatnonzero(verifying[:-1] & verifying[1:] & (context[:-1] == 0))
    after = first + 1
    alike = (requests[first] == requests[after]) & (keys[first] != NULL_INT)
    alike &= (keys[after] != NULL_INT) & (tokens[first] == tokens[after])
    # Whom another replaced brought keys: each request keeps a token at least, and at most all.
    grown = keys[after] - keys[first]
    alike &= (grown >= requests[first]) & (grown <= tokens[first])
    first = first[alike]
    # The token that each always keeps is no draft.
    accepted = grown[alike] - requests[first]
    accepted_n = int(accepted.sum())
    proposed_n = int((tokens[first] - requests[first]).sum())
    known = first.size > 0
    width = float((tokens[verifying] / requests[verifying]).mean()) if verifying.any() else None
    verified_n, steps_n = int((verifying | no_width).sum()), int(counted.sum())
    window_ns = int((served.times.end_ns - served.times.before_ns)[counted].sum())
    draft_ns = None if drafts_ns is None else int(drafts_ns.sum())
    return {
        "steps_n": verified_n,
        "width": width,
        "pairs_n": first.size,
        "pairs_pct": 100.0 * first.size / max(verified_n - 1, 1),
        "accepted_n": accepted_n if known else None,
        "proposed_n": proposed_n if known else None,
        "accepted_pct": 100.0 * accepted_n / proposed_n if known else None,
        "drafts_n": 0 if drafts_ns is None else drafts_ns.size,
        "draft_ns": None if draft_ns is None else draft_ns / max(steps_n, 1),
        "draft_pct": None if draft_ns is None or not window_ns else 100.0 * draft_ns / window_ns,
        **_balance(served, np.flatnonzero(verifying & (context == 0)), first, accepted),
    }


def _balance(served: ServedSteps, steps: IntArray, first: IntArray, accepted: IntArray) -> Row:
    """Return what drafts cost and bring.

    Args:
        steps: Steps that verify drafts and read no prompt.
        first: Shape (pairs,), the first step of each pair; `accepted`: drafts accepted in it.
    """
    if steps.size < _LEAST_STEPS:
        return {}
    needed = _needed(served, steps)
    row: Row = {"needed": needed.value, "needed_low": needed.low, "needed_high": needed.high}
    row["basis"] = needed.basis
    if accepted.size < _LEAST_PAIRS:
        return row
    requests, n = served.batches.field("gen_reqs")[first], accepted.size
    mean = float(accepted.sum() / requests.sum())
    spread = float(np.square(accepted - mean * requests).sum())
    half = _ERRORS * float(np.sqrt(spread * n / (n - 1)) / requests.sum())
    low, high = max(mean - half, 0.0), mean + half
    row |= {"accepted": mean, "accepted_low": low, "accepted_high": high}
    widths = _width(served, first), _width(served, steps)
    if max(widths) > _MOST_WIDTH * min(widths):
        return row
    if needed.high is not None and low > needed.high:
        row["verdict"] = PAYS
    elif high < needed.low:
        total_ns = int(_period_ns(served)[steps].sum())
        least, most = (
            total_ns * (1.0 - (1.0 + mean) / (1.0 + bound))
            for bound in (needed.low if needed.value is None else needed.value, needed.high or 0.0)
        )
        row |= {"verdict": LOSES, "lost_ns": least, "lost_most_ns": max(least, most)}
    return row


def _width(served: ServedSteps, steps: IntArray) -> float:
    """Return the mean tokens of a request in some steps."""
    requests, tokens = (served.batches.field(name)[steps] for name in ("gen_reqs", "gen_tokens"))
    return float(tokens.sum() / requests.sum())


def _period_ns(served: ServedSteps) -> IntArray:
    """Return the time from the end of the step before, without that in which nobody waits."""
    times = served.times
    return times.end_ns - times.before_ns - times.no_work_ns


def _needed(served: ServedSteps, steps: IntArray) -> _Needed:
    """Return what drafts must bring, by steps without any or by the cost model."""
    requests, tokens = (served.batches.field(name) for name in ("gen_reqs", "gen_tokens"))
    generates = (requests > 0) & (served.batches.field("ctx_reqs") == 0)
    plain = np.flatnonzero(served.times.counted & generates & (tokens == requests))
    if not served.batches.tokens_derived and (both := _recorded(served, steps, plain)):
        return both
    period = float(np.median(_period_ns(served)[steps]))
    drafts_ns, verify_n = served.draft_busy_ns, int((tokens > requests).sum())
    draft_ns = 0.0
    if drafts_ns is not None and drafts_ns.size:  # those of prompts are longer and few
        draft_ns = float(np.median(drafts_ns)) * (drafts_ns.size // verify_n)
    # A step without drafts takes no longer than one that verifies some; while the GPU waits for
    # the host, drafts may run for nothing.
    busy_ns = float(np.median(served.times.busy_ns[steps]))
    most_ns = max(period - max(draft_ns - max(period - busy_ns, 0.0), 0.0), 1.0)
    low = max(period / most_ns - 1.0, 0.0)
    # Drafts that run inside of the steps are in what every step costs.
    if drafts_ns is None or not draft_ns:
        return _Needed(low)
    terms, _, fit = fitted(served, steps)
    place = next((k for k, term in enumerate(terms) if term.split(" ")[0] == GEN_TOKENS), None)
    if fit is None or place is None:
        return _Needed(low)
    # In what a token costs is what its request costs: so much at most goes without the drafts,
    # and as long as the GPU works for the others a step takes at least.
    saved_ns = float(fit.high[place]) * float((tokens - requests)[steps].mean())
    least_ns = busy_ns - float(drafts_ns.sum()) / verify_n - max(saved_ns, 0.0)
    return _Needed(low, None, period / least_ns - 1.0, MODEL) if least_ns > 0 else _Needed(low)


def _recorded(served: ServedSteps, steps: IntArray, plain: IntArray) -> _Needed | None:
    """Compare steps of as many requests; None where few of these are without drafts."""
    ratios = list(_ratios(served, steps, plain))
    counts = np.array([count for _, _, count in ratios])
    if counts.sum() < _LEAST_SHARE * steps.size:
        return None
    weights = counts / counts.sum()
    mean = float(sum(w * ratio for w, (ratio, _, _) in zip(weights, ratios, strict=True)))
    variance = sum((w * error) ** 2 for w, (_, error, _) in zip(weights, ratios, strict=True))
    half = _ERRORS * float(np.sqrt(variance))
    return _Needed(mean - half - 1.0, mean - 1.0, mean + half - 1.0, RECORDED)


def _ratios(
    served: ServedSteps, steps: IntArray, plain: IntArray
) -> Iterable[tuple[float, float, int]]:
    """Yield the ratio of medians, its standard error and the steps, by number of requests."""
    period_ns, keys = _period_ns(served), served.batches.field("g_sk")
    requests = served.batches.field("gen_reqs")
    for number in np.intersect1d(requests[steps], requests[plain]).tolist():
        some, others = (rows[requests[rows] == number] for rows in (steps, plain))
        if min(some.size, others.size) < _LEAST_STEPS or _changes_n(some, others) < _LEAST_CHANGES:
            continue
        (had, _), (has, _) = _median(keys[some]), _median(keys[others])
        if max(had, has) > _MOST_KEYS * min(had, has):
            continue
        own, own_error = _median(period_ns[some])
        other, other_error = _median(period_ns[others])
        ratio = own / other
        yield ratio, ratio * float(np.hypot(own_error / own, other_error / other)), some.size


def _changes_n(some: IntArray, others: IntArray) -> int:
    """Return how often steps of one kind follow those of another, in order of time."""
    kinds = np.repeat((0, 1), (some.size, others.size))[np.argsort(np.concatenate((some, others)))]
    return int(np.count_nonzero(np.diff(kinds)))


def _median(values: IntArray) -> tuple[float, float]:
    """Return a median, at least 1, and its standard error."""
    median = max(float(np.median(values)), 1.0)
    spread = scaled_mad(values.astype(np.float64) - median)
    return median, _OF_MEDIAN * spread / float(np.sqrt(values.size))
