"""Classes of collectives, at and around their limits."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.job.collectives.confidence import met_confidence
from nsys_llm.recipes.tail_stats.tables.collectives import classes

#: Waiting, total, doubt -> class. The limits themselves are mixed.
CLASSES = [
    (39, 100, 0, "transfer"),
    (40, 100, 0, "mixed"),
    (60, 100, 0, "mixed"),
    (61, 100, 0, "skew"),
    (0, 100, 0, "transfer"),
    (50, 100, 10, "mixed"),  # 40 to 60: neither limit is passed
    (50, 100, 11, "inconclusive"),  # 39 to 61: may be either
    (90, 100, 40, "skew"),  # 50 to 130 is not transfer
    (5, 100, 40, "transfer"),
    (0, 0, 0, "inconclusive"),
]


@pytest.mark.parametrize(("wait", "total", "doubt", "expected"), CLASSES)
def test_a_class_is_told_by_the_share_of_waiting(wait, total, doubt, expected):
    classified = classes(*(np.array([value]) for value in (wait, total, doubt)), np.array([True]))
    assert classified.tolist() == [expected]


def test_without_a_common_instant_the_class_is_inconclusive():
    classified = classes(*(np.array([value]) for value in (90, 100, 0)), np.array([False]))
    assert classified.tolist() == ["inconclusive"]


def test_confidence_needs_many_collectives_that_overlap():
    assert met_confidence(10, 10) == "high"
    assert met_confidence(9, 9) == "medium"
    assert met_confidence(100, 98) == "medium"
    assert met_confidence(10, 8) == "low"
    assert met_confidence(2, 2) == "low"
    assert met_confidence(0, 0) == "low"
