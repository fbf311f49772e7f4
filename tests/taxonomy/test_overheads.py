"""Whose time an overhead event is, by its type, or by its name where there is no type."""

from __future__ import annotations

import pytest

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.api_classes import APPLICATION, PROFILER, overhead_kind


@pytest.mark.parametrize(
    ("overhead_type", "owner", "kind"),
    [
        (2, APPLICATION, "JIT compilation"),
        (3, PROFILER, "buffer flush"),
        (4, PROFILER, "instrumentation"),
        (5, PROFILER, "resource management"),
        (6, APPLICATION, "module loading"),
        (7, APPLICATION, "lazy function loading"),
        (8, APPLICATION, "command buffer full"),
    ],
)
@pytest.mark.parametrize("table", ["profiler_overheads", "cuda_overheads"])
def test_a_type_says_whose_it_is_whatever_the_table_and_the_name(table, overhead_type, owner, kind):
    assert overhead_kind(table, overhead_type, "CUPTI: Something") == (owner, kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CUPTI: Buffer flush", "buffer flush"),
        ("CUPTI Buffer flush", "buffer flush"),
        ("CUDA profiling data flush", "CUDA profiling data flush"),
        ("NVTX profiling initialization", "NVTX profiling initialization"),
        ("TLS allocation", "TLS allocation"),
        ("Unknown", "unknown"),
        (None, "unknown"),
        ("", "unknown"),
    ],
)
@pytest.mark.parametrize("overhead_type", [NULL_INT, 0, 1])
def test_without_a_type_the_table_says_whose_it_is_and_the_name_what(overhead_type, name, kind):
    assert overhead_kind("profiler_overheads", overhead_type, name) == (PROFILER, kind)
    assert overhead_kind("cuda_overheads", overhead_type, name) == (APPLICATION, kind)
