"""The packages that a Python lacks are named all together, with one command."""

import shlex
import sys

import pytest

from nsys_llm.core import needed


@pytest.mark.parametrize("managed", [False, True])
def test_all_that_is_missing_is_named_with_one_command(monkeypatch, tmp_path, managed):
    absent = {"psutil", "adbc_driver_manager"}
    monkeypatch.setattr(needed, "find_spec", lambda name: None if name in absent else name)
    monkeypatch.setattr(needed.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    if managed:
        (tmp_path / "EXTERNALLY-MANAGED").touch()
    lacks, _, command = needed.missing().partition("; to install them: ")
    assert lacks == f"{sys.executable} lacks adbc-driver-manager, psutil"
    words = shlex.split(command)
    asked = words[words.index("install") + 1 :]
    if managed:
        # An environment of its own begins without any package.
        assert words[:3] == [sys.executable, "-m", "venv"]
        assert len(asked) == len(needed.requirements())
    else:
        assert words[:2] == [sys.executable, "-m"]
        assert asked == ["adbc-driver-manager>=1.0,<2", "psutil>=5.9.4"]


def test_nothing_is_missing_here():
    assert needed.missing() is None
