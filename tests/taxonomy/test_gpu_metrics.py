"""Which GPU metrics are in percent: by the unit behind the name, or by a known name."""

from __future__ import annotations

import pytest

from nsys_llm.taxonomy.gpus import is_percent


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("SMs Active [Throughput %]", True),
        ("GPC Clock Frequency [MHz]", False),
        ("Brand New [%]", True),
        ("SM Active", True),
        ("Async Compute in Flight", True),
        ("Async Compute In Flight", True),
        ("DRAM Read Throughput", True),
        ("GPC Clock Frequency", False),
        ("PCIe Read Requests to BAR1", False),
        ("Brand New", False),
        ("", False),
    ],
)
def test_the_unit_of_a_metric(metric, expected):
    assert is_percent(metric) is expected
