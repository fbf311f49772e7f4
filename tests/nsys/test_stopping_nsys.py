"""SIGTERM ends a run under a real `nsys`, whether its launcher alone gets it or all processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from itertools import product
from pathlib import Path

import pytest
from effort import nightly_but
from results import RECIPE, RECIPES_FOLDER, environment, wait_until

pytestmark = pytest.mark.nsys

#: What must not be waited for takes ten minutes; the end takes 1 s, and more on a busy machine.
SOON_S = 20

#: Put before the recipe's script: reads a profile for ever.
STUCK = """
import pathlib as _pathlib, time as _time
from nsys_llm.run import worker as _worker

def _stuck(*_):
    _pathlib.Path({begun!r}).touch()
    # Not in a single sleep: Python would see a signal of just before it only at its end.
    until_s = _time.monotonic() + 600
    while _time.monotonic() < until_s:
        _time.sleep(0.1)

_worker._map_profile = _stuck
"""


def stuck_recipe(folder: Path, begun: Path) -> Path:
    """Copy what the launcher needs of a recipe, and make it stick; return the recipes' folder."""
    shutil.copytree(RECIPES_FOLDER / RECIPE, folder / RECIPE)
    script = folder / RECIPE / f"{RECIPE}.py"
    script.write_text(STUCK.format(begun=str(begun)) + script.read_text("utf-8"), "utf-8")
    return folder


def processes(session: int) -> list[str]:
    words = ["ps", "-eo", "sid=,stat=,args="]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [args for sid, state, args in rows if int(sid) == session and state[0] != "Z"]


@pytest.mark.parametrize(
    ("mode", "whole_group"),
    nightly_but(
        product(["none", "concurrent"], [False, True]), [("none", True), ("concurrent", False)]
    ),
    ids=str,
)
def test_nothing_goes_on_and_nothing_is_left(nsys, rank_set, tmp_path, mode, whole_group):
    begun, work = tmp_path / "begun", tmp_path / "work"
    work.mkdir()
    recipes = stuck_recipe(tmp_path / "recipes", begun)
    words = ["--mode", mode, "--input", str(rank_set), "--output", str(work / "out")]
    with subprocess.Popen(
        [nsys, "recipe", RECIPE, *words],
        env=environment(NSYS_RECIPE_PATH=str(recipes)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as launcher:
        wait_until(begun, launcher)
        since_s = time.monotonic()
        (os.killpg if whole_group else os.kill)(launcher.pid, signal.SIGTERM)
        launcher.wait(timeout=60)
    while (running := processes(launcher.pid)) or os.listdir(work):
        assert time.monotonic() - since_s < SOON_S, running
        time.sleep(0.05)
