"""The package in Python, and `nsys-llm show`."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from command_line import run
from pandas.testing import assert_frame_equal

import nsys_llm
from nsys_llm.core.errors import NsysLlmError, OutputError, UsageError
from nsys_llm.run.cli import main
from nsys_llm.view.choice import holding
from nsys_llm.view.results import Results


@pytest.fixture(scope="module")
def demo(shared_runs):
    return shared_runs.ranks("demo")


@pytest.fixture(scope="module")
def result(demo, tmp_path_factory):
    """An overview of two recipes."""
    words = {"mode": "none", "only": "idle_gaps,step_budget"}
    out = tmp_path_factory.mktemp("api") / "out"
    return nsys_llm.analyze("llm_overview", [demo / "after"], out, **words)


def shown(capsys, *words):
    code = main(["show", *map(str, words)])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_importing_the_package_imports_nothing_else():
    words = "import nsys_llm, sys; print('pandas' in sys.modules, hasattr(nsys_llm, 'analyse'))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_a_result_has_tables_findings_answer_and_parts(result):
    assert result.recipe == "llm_overview"
    assert set(result.parts) == set(result.tables["recipes"]["recipe"])
    assert len(result.parts["idle_gaps"].tables["gaps"]) > 0
    assert result.report["report"]["answer"] == result.answer
    with pytest.raises(KeyError, match="no table 'nothing'; there are: files"):
        result.tables["nothing"]


def test_a_notebook_finds_a_table_of_a_part(result):
    results, gaps = Results(result.folder), result.parts["idle_gaps"].tables["gaps"]
    for name in ("gaps", "idle_gaps/gaps"):
        assert len(results.table(name)) == len(gaps)
        assert "cause" in results.rows(name, 2).text
    assert len(results.table("wall")) == len(result.tables["wall"])
    with pytest.raises(KeyError, match=r"'nope'; there are: files.*, idle_gaps/gaps"):
        results.rows("nope")
    with pytest.raises(KeyError, match="'devices/gaps'; there are"):
        results.rows("devices/gaps")


def test_show_lists_the_tables_of_parts_and_names_who_has_others(result, capsys):
    _, out, _ = shown(capsys, result.folder)
    assert "\nTables of idle_gaps: devices, rank_causes, gaps" in out
    _, _, err = shown(capsys, result.folder, "nothing")
    assert err.rstrip().endswith("recipes; also those of idle_gaps, step_budget.")


def test_probabilities_are_rounded(result, capsys):
    _, out, _ = shown(capsys, result.folder, "rank_verdicts", "--columns", "chance")
    assert max(len(line.strip()) for line in out.splitlines()[1:-1]) <= 8


def test_the_command_is_a_module_too():
    words = [sys.executable, "-m", "nsys_llm", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("nsys-llm-recipes ")


def test_a_result_that_was_written_is_loaded_again(result):
    again = nsys_llm.load(result.folder)
    assert again.report == result.report
    for name, table in result.tables.items():
        assert again.tables[name].equals(table)


@pytest.mark.slow
def test_options_are_those_of_the_command(demo):
    analyzed = nsys_llm.analyze("idle_gaps", demo / "after", min_gap_ns="5us", top=3, mode="none")
    assert analyzed.report["options"]["min_gap_ns"] == 5_000
    assert len(analyzed.tables["gaps"]) == 3
    folder = analyzed.folder
    assert folder.exists()
    del analyzed
    assert not folder.exists()


def test_what_is_not_there_is_one_error(tmp_path):
    with pytest.raises(OutputError, match="no result of a recipe"):
        nsys_llm.load(tmp_path)
    with pytest.raises(NsysLlmError):
        nsys_llm.analyze("idle_gaps", tmp_path / "nowhere", mode="none")
    with pytest.raises(UsageError):
        nsys_llm.analyze("nothing", tmp_path, mode="none")
    with pytest.raises(UsageError, match=r"\['idle_gaps'\] is no name of a recipe"):
        nsys_llm.analyze(["idle_gaps"])
    for folder in (None, "", 7):
        with pytest.raises(OutputError, match="no folder of a result"):
            nsys_llm.load(folder)


def test_show_prints_the_answer_a_table_and_chosen_rows(result, capsys):
    code, out, _ = shown(capsys, result.folder)
    assert code == 0
    assert out.startswith(result.answer)
    code, out, _ = shown(capsys, result.folder, "idle_gaps/gaps", "--top", "2", "--json")
    rows = json.loads(out)
    assert (code, len(rows)) == (0, 2)
    assert rows[0]["duration_ns"] >= rows[1]["duration_ns"]
    code, out, _ = shown(capsys, result.folder, "ranks", "--where", "rank = 2", "--json")
    assert [row["rank"] for row in json.loads(out)] == [2]
    code, out, _ = shown(
        capsys, result.folder, "ranks", "--where", "rank >= 1", "--where", "file != rank3"
    )
    assert out.rstrip().endswith("2 rows")
    code, out, _ = shown(
        capsys, result.folder, "ranks", "--where", "file ~ re:K[02]|RANK1", "--where", "rank ~ 1"
    )
    assert out.rstrip().endswith("none of its 4 rows meets the conditions")
    code, out, _ = shown(capsys, result.folder, "ranks", "--where", "file ~ ANK1", "--json")
    assert [row["rank"] for row in json.loads(out)] == [1]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing"], "no table 'nothing'"),
        (["nothing/gaps"], "no results of a recipe 'nothing'"),
        (["9999"], "no finding 9999"),
        (["1" * 5_000], "a number has too many digits"),
        (["ranks", "--where", "rank"], "write COLUMN OP VALUE"),
        (["ranks", "--where", "where = 1"], "no column 'where'"),
        (["ranks", "--where", "rank = two"], "is not a number"),
        (["ranks", "--where", "file ~ re:("], "is not a regular expression"),
        (["ranks", "--columns", "rank,wrong"], "--columns: no column 'wrong'; there are: rank, "),
        (["ranks", "--sort", "wrong"], "--sort: no column 'wrong'"),
    ],
)
def test_show_says_in_one_line_what_is_not_there(result, capsys, words, error):
    code, out, err = shown(capsys, result.folder, *words)
    assert (code, out) == (2, "")
    assert error in err
    assert len(err.splitlines()) == 1


def test_a_finding_ends_with_commands_that_show_the_rows_of_its_numbers(result, capsys):
    for number, finding in enumerate(result.findings, 1):
        code, out, _ = shown(capsys, result.folder, str(number))
        lines = out.splitlines()
        commands = [line for line in lines if line.startswith("nsys-llm show ")]
        assert code == 0
        assert len(set(commands)) == len(commands)
        assert not [line for line in lines if line.endswith("= None")]
        assert bool(commands) == any(cell["value"] is not None for cell in finding["evidence"])
        for command in commands:
            assert main([*shlex.split(command)[1:], "--json"]) == 0
            assert json.loads(capsys.readouterr().out), command


def test_rows_come_as_csv_and_top_has_a_second_name(result, capsys):
    words = ("gaps", "--rows", "3", "--columns", "rank,duration_ns,cause")
    code, out, _ = shown(capsys, result.folder, *words, "--csv")
    gaps = result.parts["idle_gaps"].tables["gaps"]
    assert code == 0
    assert_frame_equal(
        pd.read_csv(io.StringIO(out)),
        gaps[["rank", "duration_ns", "cause"]].head(3),
        check_dtype=False,
    )
    code, _, err = shown(capsys, result.folder, "1", "--csv")
    assert (code, "--csv: name a table" in err) == (2, True)


def test_a_notebook_chooses_rows_as_show_does(result):
    results = result.parts["idle_gaps"].results
    gaps = results.table("gaps")
    chosen = gaps[gaps["rank"] == 2].sort_values("duration_ns", kind="stable")["cause"].tolist()[:2]
    words = {"where": "rank = 2", "sort": "duration_ns:up", "columns": ["rank", "cause"]}
    rows = results.rows("gaps", 2, **words)
    assert rows.text.splitlines() == ["rank | cause", *(f"2 | {cause}" for cause in chosen)]
    for wrong, error, words in (
        ("gapz", KeyError, "there are: .*gaps"),
        ("gaps", ValueError, "columns: no column 'x'; there are: rank, "),
    ):
        with pytest.raises(error, match=words):
            results.rows(wrong, columns=["x"])
    with pytest.raises(ValueError, match="kind: no 'bar'; there are: bars, "):
        results.chart("gaps", kind="bar", title="Gaps", x="duration_ns", y="cause")


def test_the_package_lists_what_it_offers():
    assert set(nsys_llm.__all__) <= set(dir(nsys_llm))


def test_a_table_that_one_recipe_of_the_overview_has_needs_no_recipe(result, capsys):
    words = ("--top", "3", "--json")
    code, out, _ = shown(capsys, result.folder, "gaps", *words)
    assert (code, len(json.loads(out))) == (0, 3)
    assert shown(capsys, result.folder, "idle_gaps/gaps", *words)[1] == out


def test_columns_and_order_are_chosen(result, capsys):
    words = ("gaps", "--columns", "rank,duration_ns", "--top", "5", "--json")
    rows = [
        [list(row.items()) for row in json.loads(shown(capsys, result.folder, *words, *more)[1])]
        for more in (["--sort", "duration_ns"], ["--sort", "duration_ns:up"])
    ]
    gaps = result.parts["idle_gaps"].tables["gaps"]["duration_ns"].astype("int64")
    for some, expected in zip(rows, (gaps.nlargest(5), gaps.nsmallest(5)), strict=True):
        assert [row[1] for row in some] == [("duration_ns", value) for value in expected]
        assert {row[0][0] for row in some} == {"rank"}
    twice = shown(capsys, result.folder, "gaps", "--columns", "rank,rank", "--top", "1", "--json")
    assert len(json.loads(twice[1])) == 1
    _, text, _ = shown(capsys, result.folder, *words[:-1])
    assert text.splitlines()[0].split() == ["rank", "duration"]


def test_json_has_what_a_program_needs_of_each_finding(result, capsys):
    record = json.loads(shown(capsys, result.folder, "--json")[1])
    for told, finding in zip(record["findings"], result.findings, strict=True):
        for name in ("cause", "recommendation", "record", "bound_pct", "about_basis", "gain_pct"):
            assert told[name] == finding[name], name
    for item in record["unrecorded"]:
        assert item["record"].startswith("--")
    assert "gaps" in record["parts"]["idle_gaps"]


def test_numbers_are_rounded_in_text_and_whole_in_json(result, capsys):
    number = next(n for n, item in enumerate(result.findings, 1) if item["gain_pct"])
    exact = result.findings[number - 1]["gain_pct"]
    assert json.loads(shown(capsys, result.folder, number, "--json")[1])["gain_pct"] == exact
    text = shown(capsys, result.folder, number)[1]
    assert f"{exact:.1f} %" in text
    assert str(exact) not in text
    wall = json.loads(shown(capsys, result.folder, "wall", "--json", "--top", "1")[1])
    assert wall[0]["span_ns"] == result.tables["wall"]["span_ns"].iloc[0]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("start_ns = 1700000000000000001", [1]),
        ("start_ns > 1700000000000000000", [1, 2]),
        ("start_ns < 1.8e18", [0, 1, 2]),
        ("start_ns = null", []),
        ("start_ns != null", [0, 1, 2]),
    ],
)
def test_a_condition_keeps_all_digits_of_a_whole_number(condition, kept):
    """As floats, ns since 1970 that differ by one are the same."""
    start_ns = 1_700_000_000_000_000_000
    frame = pd.DataFrame({"start_ns": [start_ns, start_ns + 1, start_ns + 512]}, dtype="Int64")
    assert holding(frame, [condition]).index.tolist() == kept


@pytest.fixture(scope="module")
def compared(demo, tmp_path_factory):
    """Return an overview with a baseline of which one rank is damaged, and its exit code."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copytree(demo / "baseline", folder / "damaged")
    (folder / "damaged/rank0.sqlite").write_bytes(b"no database")
    words = ("--output", folder / "out", "--only", "idle_gaps", "--mode", "none")
    sides = ("--baseline", folder / "damaged", "--input", demo / "after")
    return folder / "out", run(*words, *sides, recipe="llm_overview")


def test_a_comparison_is_a_part_of_its_overview(compared, capsys):
    folder, _ = compared
    assert list(nsys_llm.load(folder).parts) == ["idle_gaps", "trace_diff"]
    code, out, _ = shown(capsys, folder, "trace_diff/verdict")
    assert code == 0
    assert "NOT COMPARABLE" in out


@pytest.mark.slow
def test_the_short_command_takes_paths(demo, tmp_path):
    words = [demo / "after", "--mode", "none", "--output", tmp_path / "out", "--only", "idle_gaps"]
    ended = run(*words, recipe="overview")
    assert ended.code == 0
    assert (tmp_path / "out/parts/idle_gaps/gaps.parquet").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "x"}, "argument --mode: invalid choice: 'x'"),
        ({"top": -1}, "argument --top: '-1' is not a whole number above 0"),
        ({"top": True}, "argument --top: True is not a text"),
        ({"device": -1}, "argument --device: '-1' is not a list of numbers"),
        ({"ranks": 9}, "--ranks: none of these ranks is there"),
        ({"filter_time": 5}, "argument --filter-time: '5' is not a window"),
        ({"filter_time": (1, 2)}, "--filter-time: (1, 2) are nanoseconds; write like '1s/2s'"),
        ({"top": 10**4300}, "argument --top: a number has too many digits"),
        ({"running": 1}, "idle_gaps has no option"),
        ({"csv": "yes"}, "argument --csv: 'yes' is neither True nor False"),
        ({"inputs": None}, "argument --input: [] is not a list of texts"),
        ({"inputs": ""}, "argument --input: '' is no path"),
        ({"inputs": b"/x"}, "argument --input: b'/x' is not a list of texts"),
        ({"inputs": ["a\0b"]}, "argument --input: 'a\\x00b' is no path"),
    ],
)
def test_options_in_python_are_checked_as_those_of_the_command(demo, tmp_path, options, words):
    arguments = {"inputs": demo / "after", "output": tmp_path / "out", "mode": "none"} | options
    with pytest.raises(NsysLlmError, match=re.escape(words)):
        nsys_llm.analyze("idle_gaps", **arguments)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def copied(result, tmp_path):
    """Return a copy of a result, and how to change its record."""
    folder = tmp_path / "copied"
    shutil.copytree(result.folder, folder)

    def change(name, value):
        record = json.loads((folder / "report.json").read_text("utf-8"))
        place = record
        *path, last = name.split(".")
        for key in path:
            place = place[int(key) if key.isdigit() else key]
        place[last] = value
        (folder / "report.json").write_text(json.dumps(record), "utf-8")

    return folder, change


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tables", {"../x": {"rows": 1}}, "missing or damaged"),
        ("tables", [1], "missing or damaged"),
        ("report", None, "missing or damaged"),
        ("report.findings", [3], "missing or damaged"),
        ("report.answer", 3, "missing or damaged"),
        ("recipe", "rm", "rm"),
        ("format", "x", "missing or damaged"),
        ("format", 99, "later version"),
    ],
)
def test_a_result_of_a_stranger_is_shown_or_refused_in_one_line(copied, capsys, name, value, words):
    folder, change = copied
    change(name, value)
    code, out, errors = shown(capsys, folder)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert words in errors


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_device_that_never_ends_is_no_result(copied, capsys, make):
    folder, _ = copied
    record = folder / "report.json"
    record.unlink()
    make(record)
    code, out, errors = shown(capsys, folder)
    assert (code, out, errors.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("words", [[], ["--json"], ["1"], ["1", "--json"]])
def test_no_name_controls_a_terminal(copied, capsys, words):
    folder, change = copied
    hostile = "a\x1b]0;title\x07b\x9bc\u202ed\u2066e\x00f"
    change("report.answer", hostile)
    change("report.findings.0.title", hostile)
    code, out, _ = shown(capsys, folder, *words)
    assert code == 0
    assert not set(out) & set("\x1b\x07\x9b\u202e\u2066\x00")
    assert "\\u202e" in out
    if "--json" in words:
        json.loads(out)
