"""How much of a matrix and how many examples a run of the tests takes: dev, CI or nightly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Final

import pytest
from hypothesis import settings

#: Examples of each hypothesis test, by the profile that `--hypothesis-profile` names.
PROFILES: Final = {"dev": 15, "ci": 60, "nightly": 500}


def examples(in_ci: int, **others: Any) -> settings:
    """Return the settings of a hypothesis test that needs other numbers than the profile's.

    Args:
        in_ci: Its examples in CI; elsewhere they are as many more or less as the profile's.
        others: Other settings.
    """
    scale = settings().max_examples
    return settings(max_examples=max(in_ci * scale // PROFILES["ci"], 1), **others)


def nightly_but(cases: Iterable[Any], in_ci: Iterable[Any]) -> list[Any]:
    """Return the cases as parameters, those that CI leaves out marked `nightly`.

    Args:
        cases: A string, or a sequence of values, each.
        in_ci: Which of them CI takes.
    """
    chosen = [_values(case) for case in in_ci]
    given = [_values(case) for case in cases]
    assert chosen
    assert set(chosen) <= set(given)
    return [
        pytest.param(*case, marks=() if case in chosen else pytest.mark.nightly) for case in given
    ]


def pairwise(cases: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the cases as parameters, so many of them in CI that each pair of values occurs."""
    given = [tuple(case) for case in cases]
    left = {pair for case in given for pair in _pairs(case)}
    chosen = []
    while left:
        best = max(given, key=lambda case: len(left & _pairs(case)))
        chosen.append(best)
        left -= _pairs(best)
    return nightly_but(given, chosen)


def _pairs(case: tuple[Any, ...]) -> set[Any]:
    return set(combinations(enumerate(case), 2))


def _values(case: Any) -> tuple[Any, ...]:
    return (case,) if isinstance(case, str) else tuple(case)
