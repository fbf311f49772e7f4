"""Names of output folders: patterns as in Nsight Systems, and numbers that are free."""

from __future__ import annotations

import os
import socket

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.run.publish import OutputFolder, expand_pattern


def test_patterns_stand_for_variable_host_process_and_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOB", "17%p")
    host, pid = socket.gethostname(), os.getpid()
    # What a variable holds is not a pattern again.
    assert expand_pattern("run-%q{JOB}_%h_%p_100%%") == f"run-17%p_{host}_{pid}_100%"
    (tmp_path / "r1-1").mkdir()
    (tmp_path / "r2-2").symlink_to("nowhere")
    assert expand_pattern("r%n-%n") == "r3-3"
    assert expand_pattern("plain") == "plain"


@pytest.mark.parametrize("pattern", ["a%x", "a%", "%q", "%q{NOT_SET_ANYWHERE}", "%q{", "% h"])
def test_an_unknown_pattern_is_refused(pattern, monkeypatch):
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    with pytest.raises(UsageError, match=r"^--output: "):
        expand_pattern(pattern)


def test_the_default_name_takes_the_lowest_free_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for taken in (1, 3):
        (tmp_path / f"recipe-{taken}").mkdir()
    with OutputFolder(None, "recipe", replace=False) as folder:
        assert folder.final == tmp_path / "recipe-2"


@pytest.mark.parametrize("wanted", [None, "recipe-%n"])
def test_two_runs_at_once_get_two_numbers(tmp_path, monkeypatch, wanted):
    monkeypatch.chdir(tmp_path)
    with OutputFolder(wanted, "recipe", replace=False) as output:
        with OutputFolder(wanted, "recipe", replace=False) as other:
            assert other.publish({}).name == "recipe-1"
        assert output.publish({}).name == "recipe-2"
    assert (tmp_path / "recipe-2" / "recipe-2.nsys-analysis").is_file()


def test_a_name_that_is_no_text_is_refused_before_anything_is_made(tmp_path):
    wanted = os.fsdecode(os.fsencode(tmp_path) + b"/out\xff")
    with pytest.raises(UsageError, match="contains bytes that are not UTF-8 text"):
        OutputFolder(wanted, "recipe", replace=False)
    assert not any(tmp_path.iterdir())
