"""Running numbers in names of ranges: those that count up go, those that name something stay."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.facts.phases.ranges import counting_keys, shown_name


def counting(**ranges):
    texts = [name.replace("_", " ") for name in ranges]
    return counting_keys(texts, np.array(list(ranges.values())))


def test_a_number_that_comes_once_counts_up():
    assert counting(step_1=1, step_2=1, step_3=1) == {"step #"}
    # Two forms may be anything; a number inside a word is no running one.
    assert counting(step_1=1, step_2=1) == frozenset()
    assert counting(a4D=1, a5D=1, a6D=1) == frozenset()


def test_a_number_that_comes_again_names_something():
    assert counting(layer_1=2, layer_2=2, layer_3=2) == frozenset()
    # Five ranges for three numbers are fewer than two each.
    assert counting(layer_1=2, layer_2=2, layer_3=1) == {"layer #"}


def test_more_numbers_than_a_model_has_layers_count_up():
    texts = [f"request {number}" for number in range(257)]
    many = np.full(257, 100)
    assert counting_keys(texts, many) == {"request #"}
    assert counting_keys(texts[:256], many[:256]) == frozenset()


@pytest.mark.parametrize(
    ("numbers", "shown"), [("auto", "step #"), ("hide", "step #"), ("keep", "step 7")]
)
def test_names_are_shown_as_asked(numbers, shown):
    assert shown_name("step 7", frozenset({"step #"}), numbers) == shown


def test_a_number_that_stays_is_hidden_only_if_asked():
    assert shown_name("layer 7", frozenset(), "auto") == "layer 7"
    assert shown_name("layer 7", frozenset(), "hide") == "layer #"
