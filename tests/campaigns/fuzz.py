"""Feeds the package hostile input for as long as asked, and reports what it does not stand.

    python tests/campaigns/fuzz.py sqlite --seconds 1800 --seed 1

Every case follows from target, seed and number; `--only NUMBER` repeats one and keeps its files.
Cases run in a child that the system limits in memory, and that is ended when a case hangs.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from types import FrameType
from typing import NoReturn

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

from campaigns.targets import TARGETS, Case  # noqa: E402

#: Processor time of one case; the largest takes some 3 s.
_CASE_SECONDS = 40
#: Wall time after which nothing but ending the child helps.
_HANG_SECONDS = 300
_BATCH_CASES = 200
_MEMORY_BYTES = 6 << 30
_PEAK_BYTES = 1_500 << 20


class _TooLong(BaseException):
    """A case has taken more processor time than any should."""


def run_case(target: str, seed: int, number: int, folder: Path) -> Case:
    """Run one case in an empty folder; see `campaigns.targets`."""
    return TARGETS[target](Random(f"{target} {seed} {number}"), folder)


def _limited_case(target: str, seed: int, number: int) -> Case:
    signal.setitimer(signal.ITIMER_PROF, _CASE_SECONDS)
    faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            return run_case(target, seed, number, Path(folder))
    except (_TooLong, Exception) as error:  # noqa: BLE001
        import traceback

        frames = traceback.extract_tb(error.__traceback__)[-4:]
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[::-1])
        return "", [f"{type(error).__name__}: {error} at {where}"]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def _stop(_: int, __: FrameType | None) -> NoReturn:
    raise _TooLong


def _child(target: str, seed: int, first: int, cases_n: int, until: float) -> int:
    """Run some cases, telling each on a line of its own: begun, ended, and what was wrong."""
    signal.signal(signal.SIGPROF, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for number in range(first, first + cases_n):
        if time.time() > until:
            break
        print("case", number, flush=True)
        what, problems = _limited_case(target, seed, number)
        for problem in problems:
            print("bad", number, ascii(problem)[:600], "|", ascii(what)[:600], flush=True)
        print("done", number, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > _PEAK_BYTES:
        print("bad", first, f"the peak of memory is {peak >> 20} MiB", flush=True)
    return 0


def _campaign(target: str, seed: int, seconds: float) -> int:
    begun, first, bad_n, done_n = time.time(), 0, 0, 0
    until = begun + seconds
    while time.time() < until:
        words = ["--child", "--first", str(first), "--until", str(until), "--seed", str(seed)]
        child = subprocess.Popen(
            [sys.executable, __file__, target, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NSYS_LLM_TRACEBACK": "", "PYTHONWARNINGS": "error"},
        )
        printed, said = child.communicate()
        begun_cases = [line.split()[1] for line in printed.splitlines() if line[:5] == "case "]
        ended_cases = [line.split()[1] for line in printed.splitlines() if line[:5] == "done "]
        for line in printed.splitlines():
            if line.startswith("bad "):
                bad_n += 1
                print(line, flush=True)
        for number in begun_cases[len(ended_cases) :]:
            bad_n += 1
            print("bad", number, f"the process ended: {child.returncode}", said[-800:], flush=True)
        if child.returncode and not begun_cases:
            raise SystemExit(f"the child does not start: {said}")
        first += len(begun_cases)
        done_n += len(ended_cases)
    minutes = (time.time() - begun) / 60
    print(f"{target}: {done_n} inputs in {minutes:.0f} min, {bad_n} problems (seed {seed})")
    return 1 if bad_n else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="Repeat this case; its files stay.")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return _child(given.target, given.seed, given.first, _BATCH_CASES, given.until)
    if given.only is not None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        what, problems = run_case(given.target, given.seed, given.only, folder)
        print(folder, what, *problems, sep="\n")
        return 1 if problems else 0
    return _campaign(given.target, given.seed, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
