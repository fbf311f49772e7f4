"""What is uploaded: source and wheel are sound; the wheel runs the demo without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from installing import installer
from test_wheel import FOLDERS, tracked

OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*words, folder):
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=OUTSIDE, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_what_is_uploaded_is_sound_and_runs_in_a_clean_environment(tmp_path):
    source = installer().copy_sources(tmp_path / "source")
    dist = tmp_path / "dist"
    # The wheel is built from the archive of the source, not from the folder.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source]
    run(*build, folder=tmp_path)
    (archive,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    checked = run(sys.executable, "-m", "twine", "check", "--strict", archive, wheel, folder=dist)
    assert checked.count("PASSED") == 2
    with tarfile.open(archive) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    assert held >= {*tracked(), "LICENSE", "README.md", "pyproject.toml", "setup.py"}
    packed = {
        place + name.removeprefix(folder)
        for name in tracked()
        for folder, place in FOLDERS.items()
        if name.startswith(folder) and not name.endswith(".c")
    }
    with zipfile.ZipFile(wheel) as file:
        assert set(file.namelist()) >= packed
    environment, outside = tmp_path / "environment", tmp_path / "outside"
    outside.mkdir()
    run(sys.executable, "-m", "venv", environment, folder=outside)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, folder=outside)
    place = run(python, "-c", "import nsys_llm; print(nsys_llm.__file__)", folder=outside)
    assert Path(place).is_relative_to(environment)
    command = environment / "bin" / "nsys-llm"
    printed = run(command, "demo", "demo", folder=outside)
    assert "Rank 2's GPU is slow" in printed
    for name in ("report.md", "analysis.ipynb", "report.json"):
        assert (outside / "demo" / "llm_overview" / name).stat().st_size > 1_000
    assert '"cause": "rank"' in run(command, "show", "demo/llm_overview", "--json", folder=outside)
    run(python, "-m", "pip", "check", folder=outside)
