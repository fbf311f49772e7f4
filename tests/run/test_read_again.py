"""Ranks that are read a second time: each profile once, and a fault costs one rank only."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from nsys_llm.core.errors import ProfileError, UsageError
from nsys_llm.run import perfetto
from nsys_llm.trace.identity import RankKey

#: Ranks 0 and 2 are processes of one profile, 1 and 3 of another.
RANKS = [SimpleNamespace(key=RankKey(f"/in/{n % 2}", n), file=f"rank{n}") for n in range(4)]
RUN = SimpleNamespace(
    options={"export_dir": None}, profiles=[SimpleNamespace(fingerprint=frozenset(), ranks=RANKS)]
)


@pytest.fixture
def opened(monkeypatch):
    """What is opened, in order; profiles hold nothing."""
    paths = []

    @contextmanager
    def open_profile(path, tables, *, export_dir, again, roots):
        assert (tables, export_dir, again) == ((), None, True)
        paths.append(path)
        if path in missing:
            raise missing[path]
        yield SimpleNamespace(path=Path(path), fingerprint=frozenset())

    missing = {}
    monkeypatch.setattr(perfetto, "open_profile", open_profile)
    monkeypatch.setattr(perfetto, "read_trace", lambda report, *_: str(report.path))
    monkeypatch.setattr(perfetto, "select_rank", lambda trace, pid, _: ((trace, pid), (), ()))
    return paths, missing


def seen(look):
    return list(perfetto.read_again(RUN, RANKS, (), look))


def test_each_profile_is_opened_once(opened):
    made = seen(lambda rank, view: (rank.file, *view.trace))
    assert opened[0] == ["/in/0", "/in/1"]
    assert made == [((f"rank{n}", f"/in/{n % 2}", n), None) for n in (0, 2, 1, 3)]


def test_a_fault_costs_one_rank_which_is_named(opened):
    def look(rank, _):
        if rank.file == "rank2":
            raise IndexError("out of it")
        return "made"

    reason = "rank2: internal error of nsys-llm-recipes (IndexError: out of it)."
    assert seen(look) == [("made", None), (None, reason), ("made", None), ("made", None)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProfileError("0.sqlite: is gone."), "0.sqlite: is gone."),
        (
            OSError("/in/x broke"),
            "rank0 and 1 more: internal error of nsys-llm-recipes (OSError: x broke).",
        ),
    ],
)
def test_a_profile_that_cannot_be_opened_costs_its_ranks(opened, error, reason):
    opened[1]["/in/0"] = error
    assert seen(lambda *_: "made") == [*[(None, reason)] * 2, *[("made", None)] * 2]


def test_what_no_rank_would_survive_ends_it(opened):
    opened[1]["/in/1"] = UsageError("stop")
    with pytest.raises(UsageError, match="stop"):
        seen(lambda *_: "made")
