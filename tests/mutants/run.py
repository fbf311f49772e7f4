"""Plants bugs one at a time in a copy of the package, and tells which ones no test notices.

    python tests/mutants/run.py [--only WORDS] [--shard 1/4] [--jobs N]

The tests that an entry of planted_bugs.py names are run on the copy as it is first: all of them
must pass. Exit code 1 if any bug stays unnoticed. Tests that do not end are reported, and the next
bug is planted; a bug may have made them endless, and so may a busy machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from planted_bugs import PLANTED, Bug

ROOT: Final = Path(__file__).parents[2]
#: What the copy holds: the package under its import name, and what tests look at besides.
_PACKAGE: Final = {
    "shared/nsys_llm": "nsys_llm",
    "recipes": "nsys_llm/recipes",
    "manifests": "nsys_llm/manifests",
}
_BESIDE: Final = (
    "tests",
    "recipes",
    "shared",
    "manifests",
    "pyproject.toml",
    "install.py",
    "README.md",
    "docs",
)
_TIMEOUT_S: Final = 600
_FAILED: Final = 1
_NOT_ENDED: Final = 124


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="bugs whose recipe or text holds these words")
    parser.add_argument("--shard", default="1/1", help="a part of them, such as 1/4")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="run side by side")
    given = parser.parse_args()
    part, parts_n = map(int, given.shard.split("/"))
    chosen = [bug for bug in PLANTED if given.only in f"{bug.recipe} {bug.says}"]
    chosen = chosen[part - 1 :: parts_n]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        sound = _copy(Path(folder) / "sound")
        tests = sorted({name for bug in chosen for name in bug.tests})
        print(f"as it is: {len(tests)} files of tests ...", flush=True)
        code, output = _tested(sound, tests)
        if code:
            print(output)
            return _FAILED
        places = [Path(folder) / str(number) for number, _ in enumerate(chosen)]
        noticed = list(pool.map(_planted, chosen, places))
    print(f"{sum(noticed)} of {len(chosen)} planted bugs noticed")
    return 0 if all(noticed) else _FAILED


def _planted(bug: Bug, folder: Path) -> bool:
    """Plant one bug, and tell whether a test notices."""
    began = time.monotonic()
    _copy(folder)
    for place in (folder / _inside(bug.file), folder / bug.file):
        text = place.read_text("utf-8")
        place.write_text(text.replace(bug.right, bug.wrong), "utf-8")
    code, output = _tested(folder, bug.tests)
    shutil.rmtree(folder)
    # 1 is failed tests, or a fixture that several share; anything else is a run that says nothing.
    seen = code == 1 and (" failed" in output or "ERROR at setup" in output)
    word = "noticed  " if seen else "NOT ENDED" if code == _NOT_ENDED else "UNNOTICED"
    seconds = time.monotonic() - began
    print(f"{word} {seconds:5.1f} s  {bug.recipe}: {bug.says}", flush=True)
    if not seen and code:
        print(output)
    return seen


def _copy(folder: Path) -> Path:
    """Lay the package out under its import name, and the tests beside it."""
    skip = shutil.ignore_patterns("__pycache__", "*.png")
    folder.mkdir()
    for name, place in _PACKAGE.items():
        shutil.copytree(ROOT / name, folder / place, ignore=skip, dirs_exist_ok=True)
    for name in _BESIDE:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, folder / name, **({"ignore": skip} if source.is_dir() else {}))
    return folder


def _inside(file: str) -> str:
    """Return where a file of the repository lies in the package."""
    top = next(folder for folder in _PACKAGE if file.startswith(f"{folder}/"))
    return _PACKAGE[top] + file.removeprefix(top)


def _tested(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests on the copy in a folder; return their exit code, or 124, and what they printed."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["-m", "not nsys and not traces and not browser", "--tb=line"]
    # As many examples as CI takes: what it would not notice is not noticed here.
    words += ["--hypothesis-profile", "ci"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        # As tests/results.py hands it to child processes.
        "TESTED_COPY": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    with subprocess.Popen(
        [*words, *(f"tests/{name}" for name in tests)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # With the commands that tests have started.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return _NOT_ENDED, f"{output}\nno end after {_TIMEOUT_S:g} s"
    return process.returncode, output


if __name__ == "__main__":
    sys.exit(main())
