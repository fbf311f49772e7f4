"""What runs when: marks, cases of a matrix and examples, for `make quick`, CI and the night."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import Signature, signature
from itertools import combinations
from typing import Any, Final

import pytest
from hypothesis import settings

#: Examples of each hypothesis test, by the profile that `--hypothesis-profile` names.
PROFILES: Final = {"dev": 10, "ci": 30, "nightly": 200}

#: Folders of which every test is `slow`.
SLOW_FOLDERS: Final = ("contract", "install", "judgement")
#: What `make quick` leaves out; the longest of CI begin first, so that no core waits for them.
SLOW: Final = ("browser", "nsys", "cluster", "traces", "slow")
#: What a test without one of these marks may take by day.
MOST_CPU_S: Final = 2.0
#: When one that has, or any at night, is given up, s; others: see pyproject.toml.
LONGEST_S: Final = 600


def is_nightly(item: pytest.Item) -> bool:
    """Return whether a test is marked `nightly`, or `nightly(ids of cases)` with its case."""
    case = getattr(item, "callspec", None)
    marks = item.iter_markers("nightly")
    return any(not mark.args or (case and case.id in mark.args) for mark in marks)


def examples(in_ci: int, *, nightly: int | None = None, **others: Any) -> settings:
    """Return the settings of a hypothesis test that needs other numbers than the profile's.

    Args:
        in_ci: Its examples in CI; elsewhere they are as many more or less as the profile's.
        nightly: Its examples at night, where that is more.
        others: Other settings.
    """
    scale = settings().max_examples
    if nightly is not None and scale >= PROFILES["nightly"]:
        return settings(max_examples=nightly, **others)
    return settings(max_examples=max(in_ci * scale // PROFILES["ci"], 1), **others)


def over_seeds(
    all_seeds: range, each_n: int = 25
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator: pytest calls a test with `seeds`, so many, and the test runs for each.

    For tests of a millisecond: to start a test and to tell of its end takes several. The last
    seed that is printed is the one that failed. By day every third block is taken.
    """
    blocks = [all_seeds[at : at + each_n] for at in range(0, len(all_seeds), each_n)]
    by_day = [(block,) for block in blocks[::3]]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run_all(*, seeds: range, **others: Any) -> None:
            for seed in seeds:
                print(f"seed {seed}")
                test(seed=seed, **others)

        given = signature(test).parameters
        run_all.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                value.replace(name="seeds") if name == "seed" else value
                for name, value in given.items()
            ]
        )
        names = [f"{block[0]}-{block[-1]}" for block in blocks]
        cases = nightly_but([(block,) for block in blocks], by_day)
        return pytest.mark.parametrize("seeds", cases, ids=names)(run_all)

    return decorate


def seeds(nightly_n: int, in_ci: int) -> list[Any]:
    """Return seeds from 0 as parameters, of which CI takes so many, far apart.

    Tests derive the rank with a fault from the seed: that of 0 alone would be rank 0.
    """
    apart = nightly_n // (in_ci + 1)
    chosen = [(apart * (number + 1),) for number in range(in_ci)]
    return nightly_but(((seed,) for seed in range(nightly_n)), chosen)


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
    return [pytest.param(*case) if case in chosen else at_night(case)[0] for case in given]


def at_night(*cases: Any) -> list[Any]:
    """Return cases as parameters for the night: others of their kind are looked at by day."""
    return [pytest.param(*_values(case), marks=pytest.mark.nightly) for case in cases]


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
