"""The demo set is the same every time, and never written over another."""

from __future__ import annotations

import pytest
from demo_truth import write_demo

from nsys_llm.core.errors import OutputError


@pytest.mark.nightly
def test_set_is_the_same_every_time(tmp_path):
    one, two = (write_demo(tmp_path / name, scale=0.2) for name in ("one", "two"))
    assert one.planted == two.planted
    for first, second in zip(one.baseline + one.after, two.baseline + two.after, strict=True):
        assert first.read_bytes() == second.read_bytes()
    with pytest.raises(OutputError, match="there already"):
        write_demo(tmp_path / "one", scale=0.2)
