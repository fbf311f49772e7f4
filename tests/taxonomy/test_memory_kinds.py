"""Packed codes of copies and fills say what CUPTI's codes mean."""

import numpy as np
import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.cuda_codes import (
    COPY_KINDS,
    MEMORY_KINDS,
    MoveKind,
    fill_codes,
    move_codes,
)


def moved(kind, source, target):
    codes = move_codes(*(np.array([value], dtype=np.int64) for value in (kind, source, target)))
    return MoveKind.of(int(codes[0]))


def filled(target):
    return MoveKind.of(int(fill_codes(np.array([target], dtype=np.int64))[0]))


def test_every_known_code_comes_back():
    for kind, name in enumerate(COPY_KINDS):
        for source, source_kind in enumerate(MEMORY_KINDS):
            for target, other in enumerate(MEMORY_KINDS):
                assert moved(kind, source, target) == MoveKind(name, source_kind, other)
    for target, name in enumerate(MEMORY_KINDS):
        assert filled(target) == MoveKind("memset", None, name)


@pytest.mark.parametrize("kind", [len(COPY_KINDS), 99, -1, NULL_INT])
def test_an_unknown_kind_of_copy_is_unknown_and_no_fill(kind):
    assert moved(kind, 1, 2) == MoveKind("unknown", "pinned", "device")


def test_an_unknown_kind_of_memory_is_unknown_and_null_is_not_recorded():
    assert moved(1, 8, NULL_INT) == MoveKind("HtoD", "unknown", None)
    assert filled(NULL_INT) == MoveKind("memset", None, None)


@pytest.mark.parametrize(
    ("source", "target", "pageable"),
    [
        ("pageable", "device", True),
        ("device", "pageable", True),
        ("pageable", None, True),
        ("pinned", "device", False),
        ("pinned", None, None),
        (None, None, None),
    ],
)
def test_pageable_is_told_only_where_it_is_recorded(source, target, pageable):
    assert MoveKind("HtoD", source, target).pageable is pageable


def test_a_fill_has_no_source_that_could_be_missing():
    assert filled(2).pageable is False
    assert filled(0).pageable is True
    assert filled(NULL_INT).pageable is None


def test_a_byte_copied_inside_the_device_is_read_and_written():
    assert (moved(8, 2, 2).device_traffic, filled(2).device_traffic) == (2, 1)
    assert moved(1, 1, 2).device_traffic is None
