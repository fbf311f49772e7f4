"""Runs that tests of several files look at: made once, by whichever process of pytest is first.

They are whole: tables as CSV too, the notebook and the page, on a terminal of 24 lines by 80. No
test may change them; what needs to is copied.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import Run, run
from hostile import hostile_inputs, write_hostile
from results import demo_inputs

from nsys_llm.report import notebook, report_files
from nsys_llm.testing.demo import write_demo

#: Whose runs on hostile names CI looks at: an overview shows the tables of all recipes.
HOSTILE_IN_CI = ("llm_hotspots", "llm_overview", "trace_diff")
#: Of the terminal; the last line is the prompt's.
LINES_N = 24
COLUMNS_N = 80
#: Of the small demo set.
SCALE = 0.1


class SharedRuns:
    """The runs of every recipe over the small demo set, and over hostile names.

    Args:
        root: A folder that all processes of pytest have in common.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(exist_ok=True)

    def ranks(self, kind: str) -> Path:
        """Return a folder of profiles: `demo`, with both of its runs, or `names`."""
        folder = self._root / kind
        with self._first(kind) as first:
            if first and kind == "demo":
                write_demo(folder, scale=SCALE)
            elif first:
                write_hostile(folder)
        return folder

    def run(self, kind: str, recipe: str) -> tuple[Run, Path]:
        """Return how the run of a recipe ended, and its output folder."""
        ranks = self.ranks(kind)
        place = self._root / f"{kind}-{recipe}"
        ended = place / "ended.json"
        with self._first(place.name) as first:
            if first:
                # Of one whose test was given up.
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                inputs = demo_inputs if kind == "demo" else hostile_inputs
                outcome = whole_run(recipe, inputs(ranks, recipe), place / "out")
                ended.write_text(json.dumps([outcome.code, outcome.printed, outcome.said]), "utf-8")
        return Run(*json.loads(ended.read_text("utf-8"))), place / "out"

    @contextmanager
    def _first(self, name: str) -> Iterator[bool]:
        """Tell whether nobody was here before, while everybody else waits."""
        with (self._root / f"{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield not os.fstat(lock.fileno()).st_size
            lock.write("done\n")


def whole_run(recipe: str, inputs: Sequence[Path], output: Path) -> Run:
    words = ["--mode", "none", "--allow-missing-ranks", "--csv", "--html", "--output", output]
    with pytest.MonkeyPatch.context() as patch:
        # The first to ask may be a file whose runs draw nothing.
        patch.setattr(report_files, "write_notebook", notebook.write_notebook)
        patch.setenv("COLUMNS", str(COLUMNS_N))
        patch.setenv("LINES", str(LINES_N))
        return run(*words, "--input", *inputs, recipe=recipe)
