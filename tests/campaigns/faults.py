"""Does to running commands what machines and people do, and looks at what is left afterwards.

    python tests/campaigns/faults.py --injections 230 --seed 1
    python tests/campaigns/faults.py --injections 50 --seed 1 --fault "killed between renames"

Each injection starts a command on new profiles, hurts it at a random moment, and then checks:
inputs unchanged, the earlier result whole, nothing left behind, one line and the exit code of the
contract, and a next run that is clean and gives the same tables.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "run")]

from campaigns.outcomes import run_recipe  # noqa: E402
from results import differences, environment, read_results  # noqa: E402
from trace_builder import TraceBuilder  # noqa: E402

from nsys_llm.manifest.manifest import recipe_names  # noqa: E402

RANKS = 4
_LIMIT_SECONDS = 150
_TOLD_EVERY = 10
#: The command's own start, where Python itself would still tell of an interrupt.
_START_SECONDS = 0.3
_MOST_LINES = 2 * RANKS + 4


@dataclass
class Place:
    """Where one injection happens.

    Attributes:
        folder: Holds `in`, `work` (outputs) and `tmp`.
        usual_s: How long a run that nothing happens to takes.
    """

    folder: Path
    recipe: str
    mode: str
    usual_s: float
    extra: tuple[str | Path, ...] = ("--force-overwrite",)

    @property
    def output(self) -> Path:
        return self.folder / "work" / "out"

    def inputs(self) -> list[Path]:
        return [self.folder / "in"] * (2 if self.recipe == "trace_diff" else 1)

    def start(
        self, limits: Callable[[], None] | None = None, stdout: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        """Start the command in a session of its own."""
        words = [self.recipe, "--mode", self.mode, "--output", self.output, *self.extra]
        temporary = str(self.folder / "tmp")
        return subprocess.Popen(
            [sys.executable, "-m", "nsys_llm.run.cli", *words, "--input", *self.inputs()],
            cwd=self.folder,
            env=environment(TMPDIR=temporary, DASK_TEMPORARY_DIRECTORY=temporary),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=limits,
        )


@dataclass
class After:
    """How a command ended.

    Attributes:
        code: Its exit code, negative for a signal.
        said: Lines on standard error.
    """

    code: int
    said: list[str]


def ended(process: subprocess.Popen[str]) -> After:
    """Wait for the end; whatever takes too long is ended, and told as -99."""
    try:
        _, said = process.communicate(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return After(-99, [])
    return After(process.returncode, said.splitlines())


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the children of a command, and theirs."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(place: Place) -> list[str]:
    """Return what is there and should not be, once a command has ended by itself."""
    paths = [*place.folder.rglob(".*"), *(place.folder / "tmp").iterdir()]
    return [f"left: {path}" for path in paths if path.name != "dask-scratch-space"]


def told_well(after: After, codes: tuple[int, ...], most_lines: int = 3) -> list[str]:
    """Return what is wrong with an exit code and the lines."""
    problems = []
    if after.code not in codes:
        problems.append(f"exit {after.code}: {after.said[-4:]}")
    # A local cluster has words of its own for workers that it has to end.
    said = [line for line in after.said if "distributed.nanny - WARNING" not in line]
    if any("Traceback" in line or "internal error" in line for line in after.said):
        problems.append(f"told: {after.said[-3:]}")
    if len(said) > most_lines:
        problems.append(f"{len(said)} lines: {said[:4]}")
    return problems


def same_as(output: Path, reference: Path) -> list[str]:
    """Return whether a result is whole, and equal to another."""
    if not output.is_dir():
        return ["there is no result"]
    return differences(read_results(output), read_results(reference))[:2]


def next_run(place: Place, reference: Path) -> list[str]:
    """Run once more, with nothing happening: it must be clean, and give the same.

    What a killed run has left may stay for a day; it is made older than that.
    """
    for folder in (place.folder / "work").glob(".*"):
        os.utime(folder, (0, 0))
    words = ["--output", place.output, "--force-overwrite", "--quiet"]
    after = run_recipe(place.recipe, *words, "--input", *place.inputs())
    problems = [f"the next run ends with {after.code}: {after.said}"] if after.code else []
    left = [f"left: {path}" for path in (place.folder / "work").glob(".*")]
    return problems + same_as(place.output, reference) + left


def moment(place: Place, random: Random) -> None:
    """Wait for a random moment of the run."""
    time.sleep(_START_SECONDS + random.random() * place.usual_s)


Fault = Callable[[Place, Path, Random], list[str]]


def _signalled(number: signal.Signals, *, group: bool) -> Fault:
    def fault(place: Place, reference: Path, random: Random) -> list[str]:
        shutil.copytree(reference, place.output)
        before = hashes(place.folder / "in")
        process = place.start()
        moment(place, random)
        children = descendants(process)
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, number)
        after = ended(process)
        killed = number == signal.SIGKILL
        for child in children:
            with contextlib.suppress(psutil.Error):
                if killed and child.is_running():
                    child.kill()
        psutil.wait_procs(children, timeout=_LIMIT_SECONDS)
        codes = {"SIGINT": (0, 130, -2), "SIGTERM": (0, 143, -15), "SIGKILL": (0, -9)}
        problems = [] if killed else [*told_well(after, codes[number.name]), *leftovers(place)]
        if hashes(place.folder / "in") != before:
            problems.append("inputs changed")
        if place.output.exists():
            problems += same_as(place.output, reference)
        elif not killed:
            problems.append("the earlier result is gone")
        return problems + next_run(place, reference)

    return fault


def _killed_at_the_exchange(place: Place, reference: Path, random: Random) -> list[str]:
    """Kill between the two renames that replace a result."""
    shutil.copytree(reference, place.output)
    if (child := os.fork()) == 0:
        rename = Path.rename

        def deadly(path: Path, target: Path) -> Path:
            if ".partial-" in path.name:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(path, target)

        Path.rename = deadly  # type: ignore[method-assign]
        words = ["--output", place.output, "--force-overwrite", "--input", *place.inputs()]
        run_recipe(place.recipe, *words)
        os._exit(0)
    os.waitpid(child, 0)
    if place.output.exists():
        return ["the kill came at another time"]
    # A run that only fails gives the earlier result back.
    run_recipe(place.recipe, "--output", place.output, "--input", *place.inputs())
    return same_as(place.output, reference) + next_run(place, reference)


def _full_disk(place: Place, reference: Path, random: Random) -> list[str]:
    """No file may grow beyond a size, as on a disk with so much room."""
    limit = random.randrange(1, 60_000)
    shutil.copytree(reference, place.output)
    after = ended(place.start(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
    problems = told_well(after, (0, 2), _MOST_LINES) + leftovers(place)
    return problems + same_as(place.output, reference) + next_run(place, reference)


def _input_hurt(*, gone: bool) -> Fault:
    def fault(place: Place, reference: Path, random: Random) -> list[str]:
        process = place.start()
        moment(place, random)
        path = random.choice(sorted((place.folder / "in").glob("*.sqlite")))
        if gone:
            path.unlink()
        else:
            os.truncate(path, random.randrange(path.stat().st_size))
        after = ended(process)
        problems = told_well(after, (0, 2, 3), _MOST_LINES) + leftovers(place)
        if after.code == 2 and place.output.exists():
            problems.append("exit 2 with a result")
        return problems

    return fault


def _closed_pipe(place: Place, reference: Path, random: Random) -> list[str]:
    """Close standard output at some moment, as `| head` does: the results stand."""
    reading, writing = os.pipe()
    process = place.start(stdout=writing)
    os.close(writing)
    moment(place, random)
    os.close(reading)
    problems = told_well(ended(process), (0,)) + leftovers(place)
    return problems + same_as(place.output, reference)


FAULTS: Mapping[str, Fault] = {
    "interrupted with all children": _signalled(signal.SIGINT, group=True),
    "terminated": _signalled(signal.SIGTERM, group=False),
    "killed": _signalled(signal.SIGKILL, group=True),
    "killed between renames": _killed_at_the_exchange,
    "a full disk": _full_disk,
    "an input gone": _input_hurt(gone=True),
    "an input cut": _input_hurt(gone=False),
    "a closed pipe": _closed_pipe,
}


def _report(rank: int) -> TraceBuilder:
    report = TraceBuilder(duration_ns=10**6, lazy=False).process(pid=100 + rank)
    for step in range(4):
        at_ns = 10_000 * step
        report.nvtx("step", at_ns, at_ns + 9_000)
        for name, start_ns, duration_ns in (
            ("gemm", at_ns + 50, 900 + rank),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", at_ns + 2_000, 500),
        ):
            launch = (start_ns - 40, start_ns - 20)
            report.kernel(name, start_ns=start_ns, duration_ns=duration_ns, launch=launch)
    return report


def inject(
    name: str, recipe: str, mode: str, folder: Path, references: Path, random: Random
) -> list[str]:
    """Do one injection, and return what was wrong afterwards.

    Args:
        references: Keeps the undisturbed result of each recipe.
        random: Decides the moment and the place.
    """
    for part in ("in", "work", "tmp"):
        (folder / part).mkdir()
    for rank in range(RANKS):
        _report(rank).write_sqlite(folder / "in" / f"rank{rank}.sqlite")
    known = references / recipe
    place = Place(folder, recipe, mode, 0)
    if not known.exists():
        begun = time.monotonic()
        words = ["--output", known / "out", "--quiet", "--input", *place.inputs()]
        after = run_recipe(recipe, *words)
        if after.code:
            return [f"the reference ends with {after.code}: {after.said}"]
        (known / "seconds").write_text(str(time.monotonic() - begun))
    # Starting Python and importing takes about as long as the work.
    place.usual_s = 1.0 + 1.5 * float((known / "seconds").read_text())
    return FAULTS[name](place, known / "out", random)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--injections", type=int, default=230)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=FAULTS, help="Only this one, each time.")
    parser.add_argument("--only", type=int, help="Repeat this injection; its files stay.")
    given = parser.parse_args()
    names = [given.fault] if given.fault else list(FAULTS)
    done: Counter[str] = Counter()
    bad_n = 0
    references = Path(tempfile.mkdtemp(prefix="references-"))
    for number in range(given.injections) if given.only is None else [given.only]:
        random = Random(f"faults {given.seed} {number}")
        name = names[number % len(names)]
        recipe = random.choice(recipe_names())
        mode = random.choice(("none", "concurrent", "concurrent"))
        folder = Path(tempfile.mkdtemp(prefix="faults-"))
        problems = inject(name, recipe, mode, folder, references, random)
        if given.only is None:
            shutil.rmtree(folder, ignore_errors=True)
        done[name] += 1
        for problem in problems:
            print("bad", number, name, recipe, mode, "|", ascii(problem)[:900], flush=True)
        bad_n += bool(problems)
        if done.total() % _TOLD_EVERY == 0:
            print(f"{done.total()} injections, {bad_n} with problems", flush=True)
    shutil.rmtree(references)
    for name, times in sorted(done.items()):
        print(f"{times:5} {name}")
    print(f"{done.total()} injections, {bad_n} with problems (seed {given.seed})")
    return 1 if bad_n else 0


if __name__ == "__main__":
    sys.exit(main())
