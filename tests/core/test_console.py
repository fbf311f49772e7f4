"""Lines and progress, which is a line now and then; with --quiet nothing."""

from types import SimpleNamespace

import pytest

from nsys_llm.core import console as module
from nsys_llm.core.console import Console


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    hands = SimpleNamespace(now_s=100.0)
    hands.monotonic = lambda: hands.now_s
    monkeypatch.setattr(module, "time", hands)
    return hands


def test_lines_say_how_serious_they_are_and_go_to_standard_error(capsys):
    console = Console()
    console.note("two reports")
    console.warn("rank 1 is absent")
    console.error("a.sqlite: not a report")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "two reports",
        "warning: rank 1 is absent",
        "error: a.sqlite: not a report",
    ]
    quiet = Console(quiet=True)
    quiet.note("a")
    quiet.warn("b")
    quiet.error("c")
    assert capsys.readouterr().err == "error: c\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb.sqlite", "a\\nb.sqlite"),
        ("a\rb", "a\\rb"),
        ("\x1b[2Jb", "\\u001b[2Jb"),
        ("a\tb", "a\\tb"),
        ("\udcff.sqlite", "\\udcff.sqlite"),
        ("größe-模型.sqlite", "größe-模型.sqlite"),
    ],
)
def test_a_message_stays_one_printable_line(capsys, text, shown):
    Console().error(text)
    assert capsys.readouterr().err == f"error: {shown}\n"


def test_a_line_comes_every_ten_seconds(capsys, clock):
    progress = Console().progress(9)
    progress.advance(1)
    assert capsys.readouterr().err == ""
    clock.now_s += 10
    progress.advance(2)
    assert capsys.readouterr().err == "3 of 9 profiles done\n"
    clock.now_s += 9
    progress.advance(1)
    assert capsys.readouterr().err == ""
    clock.now_s += 1
    progress.advance(1)
    assert capsys.readouterr().err == "5 of 9 profiles done\n"
