"""The file of --weights: read once, where it is typed, and every mistake is told in one line."""

from __future__ import annotations

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.manifest.weights import read_weights
from nsys_llm.run.cli import build_parser, main


def written(folder, text):
    path = folder / "w.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_patterns_keep_their_order(tmp_path):
    path = written(tmp_path, '{"gemv": 7, "re:^nvjet_.*": 12, "a": 1}')
    assert read_weights(path) == (("gemv", 7), ("re:^nvjet_.*", 12), ("a", 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "must be a JSON object"),
        ("{}", "must be a JSON object"),
        ('{"a": 0}', "'a' has 0 where whole bytes above 0 belong"),
        ('{"a": 1.5}', "'a' has 1.5 where"),
        ('{"a": true}', "'a' has true where"),
        ('{"a": NaN}', "'a' has NaN where"),
        ('{"a": 1e30}', "'a' has 1e+30 where"),
        ('{"a": 9999999999999999999}', "where whole bytes above 0 belong"),
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ('{"": 1}', "'' cannot be used: a name pattern is empty"),
        ('{"re:": 1}', "'re:' cannot be used: a name pattern is empty"),
        ('{"re:(": 1}', "'re:(' is not a regular expression"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path, text, said):
    with pytest.raises(UsageError) as caught:
        read_weights(written(tmp_path, text))
    assert said in caught.value.message
    assert "w.json" in caught.value.message
    assert len(caught.value.message.splitlines()) == 1


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.json", "binary.json", "."):
        with pytest.raises(UsageError, match="cannot be read"):
            read_weights(str(tmp_path / name))


def test_the_command_line_holds_what_the_file_said_and_not_its_name(tmp_path):
    words = ["llm_hotspots", "--input", "x", "--weights", written(tmp_path, '{"a": 7}')]
    given = vars(build_parser().parse_args(words))
    assert resolved_options(load_manifest("llm_hotspots"), given)["weights"] == (("a", 7),)


def test_a_bad_file_ends_the_command_before_anything_is_read(tmp_path, capsys):
    assert main(["llm_hotspots", "x", "--weights", written(tmp_path, "{")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: argument --weights: ")
