"""Runs what is too long for every commit, in parts, and keeps a ledger of them.

    python tests/nightly.py tests 3/4   one part of the four; `make tests SHARD=3/4` does the same
    python tests/nightly.py tests       all parts that have not passed on this commit
    python tests/nightly.py ledger      what came of each part on this commit, as Markdown

Targets are `tests` (all of them, with every case), `mutants` (planted bugs), `campaigns` (hostile
input, faults, shapes, sentences) and `matrix` (Pythons and libraries). A part is meant to take less
than 45 minutes on two cores. The ledger is in the folder that NSYS_LLM_LEDGER names, else below
~/.cache, with the output of each part. A checkout with changes has no commit: its parts
are run each time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from campaigns.shape_profiles import SHAPES
from campaigns.targets import TARGETS
from matrix import combinations

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = Path(os.environ.get("NSYS_LLM_LEDGER") or Path.home() / ".cache/nsys-llm-nightly")
LEDGER: Final = FOLDER / "ledger.jsonl"
#: How many parts a target has unless the command says.
PARTS_N: Final = {"tests": 4, "mutants": 1, "campaigns": 4, "matrix": 4}
#: Of each target; and how often a command is hurt.
FUZZ_S: Final = 120
INJECTIONS_N: Final = 80
#: For how long sentences on random jobs are checked.
SENTENCES_S: Final = 1200
#: After this a command of a part has not ended.
LONGEST_S: Final = 2 * 3600
PYTEST: Final = (
    "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder",
    "--hypothesis-profile", "nightly", "--nightly", "--durations", "20",
)  # fmt: skip


def commands(target: str, part: int, parts_n: int) -> list[list[str]]:
    """Return what Python runs for a part of a target; parts have nothing in common."""
    shard = ("--shard", f"{part}/{parts_n}")
    if target == "tests":
        return [[*PYTEST, *shard]]
    if target == "mutants":
        return [["tests/mutants/run.py", *shard]]
    if target == "matrix":
        names = [case.name for case in combinations()]
        return [["tests/matrix.py", *names[part - 1 :: parts_n]]]
    fuzz = [["tests/campaigns/fuzz.py", name, "--seconds", f"{FUZZ_S}"] for name in sorted(TARGETS)]
    faults = ["tests/campaigns/faults.py", "--injections", f"{INJECTIONS_N}"]
    shapes = [
        ["tests/campaigns/shapes.py", "--shapes", *[*SHAPES][n::parts_n]] for n in range(parts_n)
    ]
    sentences = ["tests/campaigns/sentences.py", "--seconds", f"{SENTENCES_S}"]
    chance = ["-m", "tests.campaigns.chance"]
    return [*[*fuzz, faults, sentences, chance][part - 1 :: parts_n], shapes[part - 1]]


def run_part(target: str, part: int, parts_n: int, commit: str) -> bool:
    """Run a part and write it into the ledger; return whether all of it passed."""
    name = f"{target} {part}/{parts_n}"
    log = FOLDER / f"{commit}-{name.replace(' ', '-').replace('/', '-of-')}.log"
    print(f"{name}: {log} ...", flush=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        failures = [
            " ".join(words)
            for words in commands(target, part, parts_n)
            if _exit_code(words, output.fileno())
        ]
    row = {"shard": name, "commit": commit, "seconds": round(time.monotonic() - began)}
    said = log.read_text("utf-8", errors="replace").strip().rpartition("\n")[2]
    line = json.dumps({**row, "failures": failures, "last_line": said})
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")
    print(line, flush=True)
    return not failures


def _exit_code(words: Sequence[str], output: int) -> int:
    """Run Python to its end; a command that has none ends with what it started."""
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=output, stderr=output, start_new_session=True
    ) as process:
        try:
            return process.wait(LONGEST_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return 124


def _rows(commit: str) -> list[dict[str, Any]]:
    lines = LEDGER.read_text("utf-8").splitlines() if LEDGER.exists() else []
    return [row for row in map(json.loads, lines) if row["commit"] == commit]


def this_commit() -> str:
    """Return the commit of the checkout; with `-changed` where files differ from it."""
    commit, changes = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain"])
    )
    return f"{commit or 'unknown'}{'-changed' if changes or not commit else ''}"


def main() -> int:
    """Run the command; return 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", choices=[*PARTS_N, "ledger"])
    parser.add_argument("shard", nargs="?", metavar="PART/PARTS", help="none: all of them")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    commit = this_commit()
    if given.target == "ledger":
        print(
            f"| part on {commit} | seconds | failures | last line |", "|---|---|---|---|", sep="\n"
        )
        for row in {row["shard"]: row for row in _rows(commit)}.values():
            failures = "; ".join(row["failures"]) or "none"
            print(f"| {row['shard']} | {row['seconds']} | {failures} | {row['last_line']} |")
        return 0
    if given.shard:
        part, parts_n = map(int, given.shard.split("/"))
        return int(not run_part(given.target, part, parts_n, commit))
    parts_n = PARTS_N[given.target]
    rows = [] if commit.endswith("changed") else _rows(commit)
    passed = {row["shard"] for row in rows if not row["failures"]}
    parts = range(1, parts_n + 1)
    left = [part for part in parts if f"{given.target} {part}/{parts_n}" not in passed]
    return int(not all([run_part(given.target, part, parts_n, commit) for part in left]))


if __name__ == "__main__":
    sys.exit(main())
