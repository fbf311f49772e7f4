"""The eleven questions of docs/agents.md: at most two calls of `nsys-llm show` answer each."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from demo_truth import PLANTED

import nsys_llm
from nsys_llm.run.cli import main

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"


def calls_of(question):
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    (answer,) = [answer for asked, answer in rows if asked == question]
    return re.findall(r"`(nsys-llm show [^`]+)`", answer)


@pytest.fixture(scope="module")
def demo(shared_runs, tmp_path_factory):
    folder = shared_runs.ranks("demo")
    options = {"baseline": folder / "baseline", "what_if": ["transfer=0.25"]}
    out = tmp_path_factory.mktemp("agents") / "out"
    result = nsys_llm.analyze("llm_overview", folder / "after", out, mode="none", **options)
    return PLANTED, result


def shown(folder, call, capsys):
    words = [str(folder) if word == "RESULT" else word for word in shlex.split(call)]
    assert main(words[1:]) == 0, call
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def answers(demo, capsys):
    """Return what the calls for a question print."""

    def asked(question):
        calls = calls_of(question)
        assert 1 <= len(calls) <= 2, question
        return [shown(demo[1].folder, call, capsys) for call in calls]

    return asked


def test_there_are_eleven_questions():
    section = DOCUMENT.read_text("utf-8").split("## Eleven questions")[1].split("##")[0]
    assert len(re.findall(r"^\| [A-Z].+\? \|", section, re.MULTILINE)) == 11


def test_what_to_fix_first(demo, answers):
    (overall,) = answers("What to fix first?")
    first = overall["findings"][0]
    assert (first["cause"], first["cause_rank"]) == ("rank", 2)
    assert first["recommendation"]
    assert 0 < first["gain_pct"] <= first["bound_pct"]


def test_idle_time_of_a_rank_by_cause(demo, answers):
    (causes,) = answers("Why is rank 2's GPU idle?")
    wall = demo[1].tables["wall"]
    idle = wall[(wall["rank"] == 2) & (wall["wall_class"] == "idle")]
    assert sum(row["time_ns"] for row in causes) == idle["time_ns"].sum() > 0
    assert causes == sorted(causes, key=lambda row: -row["time_ns"])


def test_who_waits_for_whom(answers):
    waits, verdicts = answers("Who waits for whom?")
    assert waits[0]["rank"] == 2
    assert waits[0]["caused_wait_ns"] > 10 * waits[1]["caused_wait_ns"]
    assert [row["rank"] for row in verdicts if row["verdict"]] == [2]


def test_top_kernels_of_a_rank(demo, answers):
    (kernels,) = answers("Which kernels take rank 2's time?")
    assert len(kernels) == 5
    assert all(0 < row["p50_ns"] <= row["p99_ns"] for row in kernels)
    table = demo[1].parts["llm_hotspots"].tables["rank_kernels"]
    most = table[table["rank"] == 2]["exclusive_ns"].max()
    assert kernels[0]["exclusive_ns"] == most


def test_launches_of_one_kernel_with_their_configuration(demo, answers):
    configs, slow = answers(
        "How was one kernel launched, and how long did each configuration take?"
    )
    table = demo[1].parts["tail_stats"].tables["tails"]
    named = table["name"].str.contains("flash", case=False)
    assert sum(row["launches_n"] for row in configs) == table[named]["launches_n"].sum() > 0
    assert all(" / " in row["config"] for row in configs)
    assert {row["config"] for row in slow} <= {row["config"] for row in configs}


def test_split_of_a_decode_step(answers):
    categories, ((phase),) = answers("What is in a decode step?")
    a_step_ns = [row["exclusive_ns"] / phase["steps_n"] for row in categories]
    assert categories[0]["category"] == "gemm"
    # GPU time that several operations share counts once, so it is at most that of the steps.
    assert 0.5 * phase["mean_ns"] < sum(a_step_ns) < 1.5 * phase["mean_ns"]


def test_a_faster_all_reduce(answers):
    ((replayed,),) = answers("What if the all-reduce took a quarter?")
    assert 0 < replayed["then_ns"] < replayed["now_ns"]
    gain_pct = 100 * (1 - replayed["then_ns"] / replayed["now_ns"])
    assert replayed["gain_pct"] == pytest.approx(gain_pct)
    assert replayed["next_limit"] == "compute"


def test_the_longest_gaps(answers):
    (gaps,) = answers("Which are the longest gaps, and what did the host do?")
    assert len(gaps) == 5
    assert [row["duration_ns"] for row in gaps] == sorted(
        (row["duration_ns"] for row in gaps), reverse=True
    )
    assert all(row["cause"] and (row["api"] or row["nvtx_range"]) for row in gaps)


def test_the_verdict_and_its_cause(demo, answers):
    (verdict,), changes = answers("Faster or slower, and why?")
    # A step of the second run does more tokens.
    assert verdict["word"] == "OTHER WORK"
    assert demo[1].answer.startswith(verdict["word"])
    assert changes == sorted(changes, key=lambda row: -row["change_ns"])
    assert {row["rank"] for row in changes} == {None}


def test_what_was_not_recorded(answers):
    (overall,) = answers("What was not recorded?")
    flags = {item["record"] for item in overall["unrecorded"]}
    assert any("--gpu-metrics-device" in flag for flag in flags)


def test_was_everything_read(answers):
    overall, coverage = answers("Was everything read?")
    assert (overall["exit_code"], overall["failed"]) == (0, {})
    assert {row["rank"] for row in coverage} == {0, 1, 2, 3}
