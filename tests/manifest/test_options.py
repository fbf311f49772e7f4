"""Options as they are typed: every type, every contradiction, and parsers that know some."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.manifest.options import add_options, resolved_options
from nsys_llm.run.cli import build_parser

MANIFEST = load_manifest("llm_hotspots")


def parser(*taken):
    made = argparse.ArgumentParser(prog="test", exit_on_error=False)
    for flag in taken:
        made.add_argument(flag, help="given by another")
    add_options(made, MANIFEST)
    return made


def typed(*words):
    return vars(parser().parse_args([*words, "--input", "a"]))


def resolved(*words):
    return resolved_options(MANIFEST, typed(*words))


def test_every_option_of_the_manifest_is_a_flag_and_starts_as_none():
    given = typed()
    assert given.keys() == {option.name for option in MANIFEST.options}
    assert {name for name, value in given.items() if value is not None} == {"input"}


def test_absent_options_resolve_to_their_defaults():
    options = resolved()
    assert options["top"] == 50
    assert options["engine"] == "auto"
    assert options["csv"] is False
    assert options["device"] is None
    assert options["input"] == ["a"]


def test_aliases_are_resolved_away():
    options = resolved("--start", "2us", "--end", "5us")
    assert options["filter_time"] == (2000, 5000)
    assert not {"start", "end"} & options.keys()


@pytest.mark.parametrize(
    ("words", "window"),
    [
        (["--start", "0"], (0, None)),
        (["--end", "7"], (None, 7)),
        (["--filter-time", "5s/7s"], (5_000_000_000, 7_000_000_000)),
        (["--filter-time", "3/"], (3, None)),
        (["--filter-time", "/1s2ms3us4ns"], (None, 1_002_003_004)),
        ([], None),
    ],
)
def test_a_window_may_be_open_on_one_side(words, window):
    assert resolved(*words)["filter_time"] == window


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("--ranks", "0,4-7", (0, 4, 5, 6, 7)),
        ("--ranks", "3, 1,1-2", (1, 2, 3)),
        ("--device", "2", (2,)),
        ("--top", "7", 7),
        ("--output", "%h-%n", "%h-%n"),
    ],
)
def test_values_are_read_by_type(flag, text, value):
    assert resolved(flag, text)[flag.strip("-").replace("-", "_")] == value


@pytest.mark.parametrize(
    ("text", "steps"), [("1:4", (1, 4)), (":4", (None, 4)), ("0:", (0, None)), ("2:3", (2, 3))]
)
def test_steps_are_a_half_open_range(text, steps):
    assert resolved("--steps", text)["steps"] == steps


@pytest.mark.parametrize(
    ("flag", "text", "hint"),
    [
        ("--filter-time", "5s", "START"),
        ("--filter-time", "-5/3", "'-5' is before the capture"),
        ("--filter-time", "-/3", "'-' is before the capture"),
        ("--perfetto-window", "-1.5ms/3", "'-1.5ms' is before the capture"),
        ("--start", "-5s", "'-5s' is before the capture"),
        ("--steps", "-3:5", "not a range of steps"),
        ("--ranks", "-1-3", "not a list of numbers"),
        ("--filter-time", "/", "START"),
        ("--filter-time", "5x/7s", "5x"),
        ("--start", "soon", "soon"),
        ("--top", "0", "above 0"),
        ("--top", "-1", "above 0"),
        ("--top", "1.5", "above 0"),
        ("--ranks", "a", "0,4-7"),
        ("--ranks", "7-4", "smaller number first"),
        ("--ranks", "0-2000000", "'0-2000000' are more than 1,000,000 numbers"),
        ("--start", "99999999999999999999s", "later than any capture"),
        ("--steps", "3", "A:B"),
        ("--steps", ":", "A:B"),
        ("--steps", "4:4", "no step"),
        ("--engine", "cobol", "vllm"),
    ],
)
@pytest.mark.parametrize("words", ["{flag}={text}", "{flag} {text}"])
def test_a_wrong_value_is_refused_with_a_hint(words, flag, text, hint):
    given = words.format(flag=flag, text=text).split(" ")
    with pytest.raises(argparse.ArgumentError) as caught:
        parser().parse_args([*given, "--input", "a"])
    assert hint in str(caught.value)
    assert flag in str(caught.value)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--base", "--mangled"], "exclude each other"),
        (["--start", "1", "--filter-time", "1/2"], "give one of them"),
        (["--end", "1", "--filter-time", "1/2"], "give one of them"),
        (["--filter-time", "7/5"], "empty"),
        (["--start", "5", "--end", "5"], "empty"),
        (["--steps", "1:2", "--skip-warmup"], "--skip-warmup"),
        (["--step", "decode"], "--steps A:B"),
        (["--filter-nvtx", "@NCCL"], "RANGE"),
        (["--filter-projected-nvtx", "@"], "RANGE"),
        (["--step", "@", "--skip-warmup"], "RANGE"),
    ],
)
def test_options_that_contradict_each_other_or_mean_nothing_are_refused(words, hint):
    with pytest.raises(UsageError) as caught:
        resolved(*words)
    assert hint in caught.value.message


@pytest.mark.parametrize("words", [["--steps", "1:2"], ["--skip-warmup"]])
def test_a_step_may_be_named_where_steps_are_chosen(words):
    assert resolved("--step", "decode@default", *words)["step"] == "decode@default"


def test_options_that_a_parser_has_already_stay_as_they_are():
    # Newer releases of Nsight Systems bring these themselves.
    made = parser("--output", "--force-overwrite", "--export-dir")
    assert made.format_help().count("given by another") == 3
    given = vars(made.parse_args(["--input", "a", "--output", "b"]))
    assert resolved_options(MANIFEST, given)["output"] == "b"


def test_the_input_must_be_given():
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parser().parse_args([])


@pytest.mark.parametrize("asked", ["overview", "show", *recipe_names()])
def test_a_command_parsed_alone_is_the_same_as_among_all(asked, capsys):
    for whole in (build_parser(), build_parser(asked)):
        with pytest.raises(SystemExit):
            whole.parse_args([asked, "--help"])
    texts = capsys.readouterr().out.split(f"usage: nsys-llm {asked} ")
    assert len(texts) == 3
    assert texts[1] == texts[2]


def test_the_list_of_commands_is_the_same_without_their_options():
    assert build_parser("--help").format_help() == build_parser().format_help()


def test_help_brings_no_package_that_takes_long_to_import():
    heavy = {"numpy", "pandas", "pyarrow", "dask", "plotly", "nbformat"}
    script = "import sys, nsys_llm.run.cli; nsys_llm.run.cli.build_parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert not heavy & set(done.stdout.decode().split())


def test_a_pattern_of_kernels_that_means_nothing_is_refused():
    with pytest.raises(UsageError, match=r"'re:\(' is not a regular expression"):
        resolved("--step-kernel", "re:(", "--skip-warmup")


@pytest.mark.parametrize("flag", ["--filter-nvtx", "--step", "--step-kernel"])
def test_bytes_that_are_no_text_are_refused(flag):
    with pytest.raises(UsageError, match="bytes that are not UTF-8 text"):
        resolved(flag, "step\udcff", "--skip-warmup")
