"""Parts of the night: all of each target, each once, and what passed is not run again."""

from __future__ import annotations

import json
import sys

import nightly
import pytest


@pytest.mark.parametrize("target", ["campaigns", "matrix"])
def test_parts_hold_all_of_a_target_once(target):
    def words(parts_n):
        parts = range(1, parts_n + 1)
        commands = [
            command for part in parts for command in nightly.commands(target, part, parts_n)
        ]
        return sorted(word for command in commands for word in command if "matrix" not in word)

    assert words(3) == words(1)
    assert len(words(1)) > 10


def test_a_part_that_passed_on_this_commit_is_not_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nightly, "FOLDER", tmp_path)
    monkeypatch.setattr(nightly, "LEDGER", tmp_path / "ledger.jsonl")
    monkeypatch.setattr(nightly, "this_commit", lambda: "abc")
    fails = ["-c", f"import sys; sys.exit(open({str(tmp_path / 'fails')!r}).read())"]
    monkeypatch.setattr(nightly, "commands", lambda _, part, __: [fails] if part == 2 else [["-V"]])
    monkeypatch.setitem(nightly.PARTS_N, "tests", 3)
    monkeypatch.setattr(sys, "argv", ["nightly.py", "tests"])
    (tmp_path / "fails").write_text("so it ends")
    assert nightly.main() == 1
    (tmp_path / "fails").write_text("")
    assert nightly.main() == 1  # a text, even an empty one, is exit code 1
    rows = [json.loads(line) for line in nightly.LEDGER.read_text("utf-8").splitlines()]
    assert [row["shard"] for row in rows] == ["tests 1/3", "tests 2/3", "tests 3/3", "tests 2/3"]
    assert [len(row["failures"]) for row in rows] == [0, 1, 0, 1]
    assert rows[1]["last_line"] == "so it ends"
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["nightly.py", "ledger"])
    assert nightly.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
