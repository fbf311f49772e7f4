"""Runs every recipe on profiles of strange shapes, and says what time and memory it takes.

    python tests/campaigns/shapes.py                               all shapes, all recipes
    python tests/campaigns/shapes.py --shapes nested instant --recipes tail_stats llm_overview
    python tests/campaigns/shapes.py --rows 20000                  smaller ones

A run fails above 15 CPU s or 1.5 GB, and where it ends otherwise than a run should. Each has a
process of its own and writes its whole result.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

from campaigns.shape_profiles import SHAPES  # noqa: E402

from nsys_llm.manifest.manifest import recipe_names  # noqa: E402

ROWS_N: Final = 200_000
MOST_CPU_S: Final = 15.0
MOST_MB: Final = 1_500
#: A run is ended then, so that a cliff does not take the night.
_ENDED_CPU_S: Final = 120
_ENDED_BYTES: Final = 12 << 30


@dataclass(frozen=True)
class Taken:
    """What one run took, and how it ended."""

    cpu_s: float
    peak_mb: int
    code: int
    said: str

    @property
    def failed(self) -> str:
        """What is wrong with it; nothing: an empty text."""
        if self.code not in (0, 1, 3):
            return f"exit {self.code}: {self.said}"
        high = [f"{self.cpu_s:.1f} CPU s"] if self.cpu_s > MOST_CPU_S else []
        high += [f"{self.peak_mb} MB"] if self.peak_mb > MOST_MB else []
        return ", ".join(high)


def measure(recipe: str, folder: Path, output: Path) -> Taken:
    """Run a recipe on all profiles of a folder, in a process of its own."""
    words = ["-m", "nsys_llm.run.cli", recipe, "--input", folder, "--output", output, "--quiet"]
    if recipe == "trace_diff":
        words += ["--baseline", folder]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=said, stderr=said, preexec_fn=_limit
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    cpu_s = usage.ru_utime + usage.ru_stime
    return Taken(cpu_s, usage.ru_maxrss // 1024, code, lines[-1] if lines else "")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_ENDED_CPU_S, _ENDED_CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_ENDED_BYTES, _ENDED_BYTES))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def main() -> int:
    """Run the command; return 1 if a run took too much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--recipes", nargs="+", choices=recipe_names(), default=recipe_names())
    parser.add_argument("--rows", type=int, default=ROWS_N)
    given = parser.parse_args()
    print("| shape |", " | ".join(given.recipes), "|")
    print("|---|", "---|" * len(given.recipes), sep="")
    failures = []
    for name in given.shapes:
        cells = []
        with tempfile.TemporaryDirectory(prefix="shape-") as work:
            folder = Path(work, "in")
            folder.mkdir()
            SHAPES[name](given.rows, folder)
            for recipe in given.recipes:
                taken = measure(recipe, folder, Path(work, recipe))
                cells.append(f"{taken.cpu_s:.1f} s, {taken.peak_mb} MB")
                if taken.failed:
                    failures.append(f"{name}, {recipe}: {taken.failed}")
        print(f"| {name} |", " | ".join(cells), "|", flush=True)
    print(*failures, f"{len(failures)} runs took too much or failed", sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
