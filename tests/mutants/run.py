"""Plants bugs one at a time in a copy of the package, and tells which ones no test notices.

    python tests/mutants/run.py [--only WORDS] [--shard 1/4] [--jobs N]

The tests that an entry of planted_bugs.txt names are run on the copy as it is first: all of them
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
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
#: What the copy holds: the package under its import name, and what tests look at besides.
_PACKAGE: Final = {
    "shared/nsys_llm": "nsys_llm",
    "recipes": "nsys_llm/recipes",
    "manifests": "nsys_llm/manifests",
}
_FOLDERS: Final = ("tests", "recipes", "shared", "manifests", "docs")
_FILES: Final = ("pyproject.toml", "install.py", "README.md")
#: For the tests of one bug; those of all bugs, on the copy as it is, may take ten times as long.
_TIMEOUT_S: Final = 600
_FAILED: Final = 1
_NOT_ENDED: Final = 124


class Bug(NamedTuple):
    """A mistake: whose numbers it would falsify, a passage of a file, and tests that notice."""

    recipe: str
    says: str
    file: str
    tests: tuple[str, ...]
    right: str
    wrong: str


def planted() -> list[Bug]:
    text = Path(__file__).with_name("planted_bugs.txt").read_text("utf-8")
    return [_parsed(entry.splitlines()) for entry in text.rstrip("\n").split("\n\n")[1:]]


def _parsed(lines: Sequence[str]) -> Bug:
    recipe, _, says = lines[0].partition(": ")
    file, *tests = lines[1].split()
    right, wrong = (
        "\n".join(line[1:] for line in lines[2:] if line[0] == sign) for sign in ("-", "+")
    )
    return Bug(recipe, says, file, tuple(tests), right, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="bugs whose recipe or text holds these words")
    parser.add_argument("--shard", default="1/1", help="a part of them, such as 1/4")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="run side by side")
    given = parser.parse_args()
    part, parts_n = map(int, given.shard.split("/"))
    chosen = [bug for bug in planted() if given.only in f"{bug.recipe} {bug.says}"]
    chosen = chosen[part - 1 :: parts_n]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        sound = _copy(Path(folder) / "sound")
        tests = sorted({name for bug in chosen for name in bug.tests})
        print(f"as it is: {len(tests)} files of tests ...", flush=True)
        code, output = _tested(sound, tests, 10 * _TIMEOUT_S)
        if code:
            print(output)
            return _FAILED
        places = [Path(folder) / str(number) for number, _ in enumerate(chosen)]
        noticed = list(pool.map(_noticed, chosen, places))
    print(f"{sum(noticed)} of {len(chosen)} planted bugs noticed")
    return 0 if all(noticed) else _FAILED


def _noticed(bug: Bug, folder: Path) -> bool:
    """Plant one bug, and tell whether a test notices."""
    began = time.monotonic()
    _copy(folder)
    top = next(name for name in _PACKAGE if bug.file.startswith(f"{name}/"))
    for place in (bug.file, _PACKAGE[top] + bug.file.removeprefix(top)):
        text = (folder / place).read_text("utf-8")
        (folder / place).write_text(text.replace(bug.right, bug.wrong), "utf-8")
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
    for name, place in [*_PACKAGE.items(), *((name, name) for name in _FOLDERS)]:
        shutil.copytree(ROOT / name, folder / place, ignore=skip, dirs_exist_ok=True)
    for name in _FILES:
        shutil.copy2(ROOT / name, folder / name)
    return folder


def _tested(folder: Path, tests: Sequence[str], most_s: int = _TIMEOUT_S) -> tuple[int, str]:
    """Run tests on the copy in a folder; return their exit code, or 124, and what they printed."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["-m", "not nsys and not traces and not browser", "--tb=line"]
    # A test that takes long on a busy machine has noticed nothing.
    words += ["--timeout", str(_TIMEOUT_S)]
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
            output, _ = process.communicate(timeout=most_s)
        except subprocess.TimeoutExpired:
            # With the commands that tests have started.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return _NOT_ENDED, f"{output}\nno end after {most_s} s"
    return process.returncode, output


if __name__ == "__main__":
    sys.exit(main())
