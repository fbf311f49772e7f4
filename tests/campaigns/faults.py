"""Does to running commands what machines and people do, and looks at what is left afterwards.

    python tests/campaigns/faults.py --injections 200 --seed 1
    python tests/campaigns/faults.py --injections 200 --seed 1 --fault killed
    python tests/campaigns/faults.py --injections 40 --nsys /opt/nvidia/.../bin/nsys

Each injection starts a command on reports of its own, hurts it at a random moment, and then checks:
inputs unchanged, the earlier result whole, no temporary file left, one line and the exit code of
the contract, and a next run that is clean and gives the same tables.
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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

from campaigns.outcomes import run_recipe  # noqa: E402
from results import RECIPES_FOLDER, differences, read_results  # noqa: E402

from nsys_llm.manifest.manifest import recipe_names  # noqa: E402
from nsys_llm.testing.trace_builder import TraceBuilder  # noqa: E402

RANKS = 4
_LIMIT_SECONDS = 150
_TOLD_EVERY = 10
#: The command's own start, where Python itself would still tell of an interrupt.
_START_SECONDS = 0.15
_FAKE_NSYS = """#!{python}
import pathlib, sys, time
words = sys.argv[1:]
made, report = pathlib.Path(words[words.index("--output") + 1]), pathlib.Path(words[-1])
time.sleep(float({seconds}))
if {fails}:
    sys.exit("cannot open " + str(report))
import shutil
# As new as an export is: not older than its report.
shutil.copytree(report.read_text(), made, copy_function=shutil.copyfile)
"""


@dataclass
class Place:
    """Where one injection happens.

    Attributes:
        folder: Holds `in`, `work` (outputs), `tmp`, and `exports`.
        recipe: The recipe that runs.
        mode: As `--mode` takes it.
        nsys: The real one that runs the recipe; None: the command by itself.
        usual_s: How long a run that nothing happens to takes.
    """

    folder: Path
    recipe: str
    mode: str
    nsys: str | None
    usual_s: float
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        return self.folder / "work" / "out"

    def words(self) -> list[str]:
        inputs = [str(self.folder / "in")]
        if self.recipe == "trace_diff":
            inputs *= 2
        start = [sys.executable, "-m", "nsys_llm.run.command"]
        if self.nsys is not None:
            start = [self.nsys, "recipe"]
        words = [self.recipe, "--mode", self.mode, "--output", str(self.output)]
        return [*start, *words, *self.extra, "--input", *inputs]

    def start(self, limits: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """Start the command in a session of its own."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DASK_")},
            "TMPDIR": str(self.folder / "tmp"),
            "DASK_TEMPORARY_DIRECTORY": str(self.folder / "tmp"),
            "NSYS_RECIPE_PATH": str(RECIPES_FOLDER),
            "NSYS_CONCURRENT_MAX_WORKERS": "2",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            **self.environment,
        }
        return subprocess.Popen(
            self.words(),
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
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
    """Return the children of a command, and theirs: nsys starts Python, and that starts workers."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def gone(processes: list[psutil.Process], *, kill: bool) -> None:
    """Wait until processes have ended, or end them, as the machine's end would."""
    for process in processes:
        if kill and process.is_running():
            process.kill()
    psutil.wait_procs(processes, timeout=_LIMIT_SECONDS)


def hashes(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(place: Place) -> list[str]:
    """Return what is there and should not be, once a command has ended by itself."""
    hidden = [str(path) for path in place.folder.rglob(".*") if path.name != ".done"]
    temporary = [str(path) for path in (place.folder / "tmp").iterdir()]
    allowed = ("dask-scratch-space",)
    return [name for name in hidden + temporary if not name.endswith(allowed)]


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


#: What parquet exports do not tell: which events were traced.
_OF_EXPORTS = ("baseline", "input", "status", "meaning")


def same_as(output: Path, reference: Path, but: Collection[str] = ()) -> list[str]:
    """Return whether a result is whole, and equal to another but for some columns."""
    if not output.is_dir():
        return ["there is no result"]
    return differences(read_results(output), read_results(reference), but)[:2]


def next_run(place: Place, reference: Path, but: Collection[str] = ()) -> list[str]:
    """Run once more, with nothing happening: it must be clean, and give the same."""
    inputs: list[object] = [place.folder / "in"]
    inputs *= 2 if place.recipe == "trace_diff" else 1
    tempfile.tempdir = str(place.folder / "tmp")
    try:
        words = ["--output", place.output, "--force-overwrite", *place.extra, "--quiet"]
        after = run_recipe(place.recipe, *words, "--input", *inputs)
    finally:
        tempfile.tempdir = None
    problems = [f"the next run ends with {after.code}: {after.said}"] if after.code else []
    return problems + same_as(place.output, reference, but) + leftovers(place)


def moment(place: Place, random: Random) -> None:
    """Wait for a random moment of the run."""
    time.sleep(_START_SECONDS + random.random() * place.usual_s)


Fault = Callable[[Place, Path, Random], list[str]]


def _signalled(number: signal.Signals, group: bool) -> Fault:
    def fault(place: Place, reference: Path, random: Random) -> list[str]:
        place.extra = ("--force-overwrite",)
        shutil.copytree(reference, place.output)
        before = hashes(place.folder / "in")
        process = place.start()
        moment(place, random)
        children = descendants(process)
        if process.poll() is None:
            (os.killpg if group else os.kill)(process.pid, number)
        after = ended(process)
        gone(children, kill=number == signal.SIGKILL)
        codes = {"SIGINT": (0, 130), "SIGTERM": (0, 143, -15), "SIGKILL": (0, -9)}[number.name]
        if place.nsys is not None:
            codes = (*codes, 1, -2, -15, 2)
        problems = [] if number == signal.SIGKILL else told_well(after, codes)
        if number != signal.SIGKILL and place.nsys is None:
            problems += [f"left: {name}" for name in leftovers(place)]
        if hashes(place.folder / "in") != before:
            problems.append("inputs changed")
        problems += next_run(place, reference)
        return problems

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
        inputs = [place.folder / "in"] * (2 if place.recipe == "trace_diff" else 1)
        run_recipe(place.recipe, "--output", place.output, "--force-overwrite", "--input", *inputs)
        os._exit(0)
    os.waitpid(child, 0)
    if place.output.exists():
        return ["the kill came at another time"]
    return next_run(place, reference)


def _killed_in_mid_run(place: Place, reference: Path, random: Random) -> list[str]:
    """Kill a run in a fork of this process, which has imported all: no moment is lost on that."""
    shutil.copytree(reference, place.output)
    before = hashes(place.folder / "in")
    inputs = [place.folder / "in"] * (2 if place.recipe == "trace_diff" else 1)
    killed, within_s = False, place.usual_s - 1
    while not killed:
        if (child := os.fork()) == 0:
            tempfile.tempdir = str(place.folder / "tmp")
            words = ["--output", place.output, "--force-overwrite", "--input", *inputs]
            run_recipe(place.recipe, *words)
            os._exit(0)
        time.sleep(random.random() * within_s)
        os.kill(child, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        # It may have ended before.
        within_s *= 0.7
    problems = [] if hashes(place.folder / "in") == before else ["inputs changed"]
    if place.output.exists():
        problems += same_as(place.output, reference)
    return problems + next_run(place, reference)


def _limited(what: int, low: int, high: int) -> Fault:
    def fault(place: Place, reference: Path, random: Random) -> list[str]:
        limit = random.randrange(low, high)
        if place.mode == "dask-futures":
            place.mode = "concurrent"  # Dask's own processes tell of limits in their own words
        place.extra = ("--force-overwrite",)
        shutil.copytree(reference, place.output)
        process = place.start(lambda: resource.setrlimit(what, (limit, limit)))
        after = ended(process)
        problems = told_well(after, (0, 2), most_lines=2 * RANKS + 4)
        problems += [f"left: {name}" for name in leftovers(place)]
        return problems + same_as(place.output, reference) + next_run(place, reference)

    return fault


def _input_hurt(kind: str) -> Fault:
    def fault(place: Place, reference: Path, random: Random) -> list[str]:
        process = place.start()
        moment(place, random)
        path = random.choice(sorted((place.folder / "in").glob("*.sqlite")))
        raw = path.read_bytes()
        if kind == "gone":
            path.unlink()
        elif kind == "shorter":
            os.truncate(path, random.randrange(len(raw)))
        elif kind == "longer":
            with path.open("ab") as file:
                file.write(raw[: 4096 * 3])
        elif kind == "other":
            at = random.randrange(len(raw))
            with path.open("r+b") as file:
                file.seek(at)
                file.write(random.randbytes(5_000))
        else:
            shutil.move(place.folder / "in", place.folder / "elsewhere")
        after = ended(process)
        problems = told_well(after, (0, 2, 3), most_lines=2 * RANKS + 4)
        problems += [f"left: {name}" for name in leftovers(place)]
        if after.code == 2 and place.output.exists():
            problems.append("exit 2 with a result")
        return problems

    return fault


def _output_gone(place: Place, reference: Path, random: Random) -> list[str]:
    process = place.start()
    moment(place, random)
    shutil.rmtree(place.folder / "work", ignore_errors=True)
    after = ended(process)
    (place.folder / "work").mkdir(exist_ok=True)
    problems = told_well(after, (0, 2))
    return problems + next_run(place, reference)


def _temporary_gone(place: Place, reference: Path, random: Random) -> list[str]:
    process = place.start()
    moment(place, random)
    shutil.rmtree(place.folder / "tmp", ignore_errors=True)
    after = ended(process)
    (place.folder / "tmp").mkdir(exist_ok=True)
    return told_well(after, (0, 2)) + next_run(place, reference)


def _two_at_once(place: Place, reference: Path, random: Random) -> list[str]:
    """Two runs into one output: one of them wins, or both in turn; the result is whole."""
    place.extra = ("--force-overwrite",)
    if random.random() < 0.5:
        shutil.copytree(reference, place.output)
    processes = [place.start()]
    time.sleep(random.random() * 0.4)
    processes.append(place.start())
    problems = []
    for process in processes:
        problems += told_well(ended(process), (0, 2))
    problems += [f"left: {name}" for name in leftovers(place)]
    return problems + same_as(place.output, reference)


def _fake_nsys(place: Place, *, seconds: float = 0.0, fails: bool = False) -> None:
    """Turn the inputs into reports that a stand-in of nsys exports."""
    (place.folder / "bin").mkdir()
    program = place.folder / "bin" / "nsys"
    text = _FAKE_NSYS.format(python=sys.executable, seconds=seconds, fails=fails)
    program.write_text(text)
    program.chmod(0o755)
    for path in sorted((place.folder / "in").glob("*.sqlite")):
        exported = place.folder / "parquet" / path.stem
        _report(int(path.stem[4:])).write_parquet(exported)
        path.with_suffix(".nsys-rep").write_text(str(exported))
        path.unlink()
    os.environ["NSYS_DIR"] = str(place.folder / "bin")
    place.environment = {"NSYS_DIR": str(place.folder / "bin")}


def _export(kind: str) -> Fault:
    def fault(place: Place, reference: Path, random: Random) -> list[str]:
        before_nsys = os.environ.get("NSYS_DIR")
        try:
            return hurt(place, reference, random)
        finally:
            os.environ.pop("NSYS_DIR")
            if before_nsys is not None:
                os.environ["NSYS_DIR"] = before_nsys

    def hurt(place: Place, reference: Path, random: Random) -> list[str]:
        _fake_nsys(place, seconds=random.random() * 0.3, fails=kind == "fails")
        if random.random() < 0.5:
            (place.folder / "exports").mkdir()
            place.extra = ("--export-dir", str(place.folder / "exports"))
        if kind == "fails":
            after = ended(place.start())
            problems = told_well(after, (2,), most_lines=2 * RANKS + 2)
            return problems + [f"left: {name}" for name in leftovers(place)]
        if kind == "twice":
            other = Place(place.folder, place.recipe, place.mode, None, 0, place.extra)
            other.environment = place.environment
            processes = [place.start()]
            time.sleep(random.random() * 0.3)
            words = place.extra
            place.extra = (*words, "--output", str(place.folder / "work" / "second"))
            processes.append(place.start())
            place.extra = words
            problems = [
                problem for process in processes for problem in told_well(ended(process), (0,))
            ]
            problems += [f"left: {name}" for name in leftovers(place)]
            return problems + [
                problem
                for name in ("out", "second")
                for problem in same_as(place.folder / "work" / name, reference, _OF_EXPORTS)
            ]
        process = place.start()
        moment(place, random)
        number = signal.SIGKILL if kind == "killed" else signal.SIGINT
        if process.poll() is None:
            (os.killpg if kind == "killed" else os.kill)(process.pid, number)
        after = ended(process)
        problems = [] if kind == "killed" else told_well(after, (0, 130))
        if kind != "killed":
            problems += [f"left: {name}" for name in leftovers(place)]
        return problems + next_run(place, reference, _OF_EXPORTS)

    return fault


def _clock(place: Place, reference: Path, random: Random) -> list[str]:
    """Reports from the future or from long ago, exports older or newer than they are."""
    try:
        _fake_nsys(place)
        problems = []
        for _ in range(2):
            then = random.choice((0, 1, time.time() + 10**8, time.time() - 10**8, 2**31 + 5))
            for path in (place.folder / "in").iterdir():
                os.utime(path, (then, then))
            problems += told_well(ended(place.start()), (0,))
            problems += same_as(place.output, reference, _OF_EXPORTS)
            shutil.rmtree(place.output, ignore_errors=True)
        return problems + [f"left: {name}" for name in leftovers(place)]
    finally:
        os.environ.pop("NSYS_DIR", None)


def _worker_killed(place: Place, reference: Path, random: Random) -> list[str]:
    """Kill one worker of a local Dask cluster; what it had done is done again.

    A cluster whose worker is killed while it starts cannot be used, and says so.
    """
    place.mode = "dask-futures"
    process = place.start()
    time.sleep(_START_SECONDS + random.random() * 3 * place.usual_s)
    with contextlib.suppress(psutil.Error):
        workers = [child for child in descendants(process) if "spawn_main" in str(child.cmdline())]
        if workers:
            random.choice(workers).kill()
    after = ended(process)
    problems = told_well(after, (0, 2))
    return problems + (same_as(place.output, reference) if after.code == 0 else [])


FAULTS: Mapping[str, Fault] = {
    "interrupted": _signalled(signal.SIGINT, group=False),
    "interrupted with all children": _signalled(signal.SIGINT, group=True),
    "terminated": _signalled(signal.SIGTERM, group=False),
    "killed": _signalled(signal.SIGKILL, group=True),
    "killed in mid-run": _killed_in_mid_run,
    "killed between renames": _killed_at_the_exchange,
    "files may not grow": _limited(resource.RLIMIT_FSIZE, 1, 60_000),
    "too few files may be open": _limited(resource.RLIMIT_NOFILE, 12, 120),
    "an input gone": _input_hurt("gone"),
    "an input cut": _input_hurt("shorter"),
    "an input grown": _input_hurt("longer"),
    "an input overwritten": _input_hurt("other"),
    "all inputs gone": _input_hurt("moved"),
    "output folder gone": _output_gone,
    "temporary folder gone": _temporary_gone,
    "two runs into one output": _two_at_once,
    "export fails": _export("fails"),
    "export by two runs": _export("twice"),
    "export killed": _export("killed"),
    "export interrupted": _export("interrupted"),
    "clocks jump": _clock,
    "a worker killed": _worker_killed,
}
#: Those that a run under the real nsys is exposed to as well.
_UNDER_NSYS = ("interrupted", "interrupted with all children", "terminated", "killed")


def _report(rank: int) -> TraceBuilder:
    report = TraceBuilder(duration_ns=10**6, lazy=False).process(pid=100 + rank)
    for step in range(4):
        at_ns = 10_000 * step
        report.nvtx("step", at_ns, at_ns + 9_000)
        report.kernel(
            "gemm", start_ns=at_ns + 50, duration_ns=900 + rank, launch=(at_ns + 1, at_ns + 9)
        )
        report.kernel(
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
            start_ns=at_ns + 2_000,
            duration_ns=500,
            launch=(at_ns + 10, at_ns + 20),
        )
    return report


def write_ranks(folder: Path) -> None:
    """Write the ranks that the commands read."""
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        _report(rank).write_sqlite(folder / f"rank{rank}.sqlite")


def inject(
    name: str,
    recipe: str,
    mode: str,
    folder: Path,
    references: Path,
    random: Random,
    nsys: str | None = None,
) -> list[str]:
    """Do one injection, and return what was wrong afterwards.

    Args:
        name: One of `FAULTS`.
        recipe: The recipe that runs.
        mode: As `--mode` takes it.
        folder: An empty one.
        references: Keeps the undisturbed result of each recipe.
        random: Decides the moment and the place.
        nsys: The real one to run under; None: the command by itself.
    """
    write_ranks(folder / "in")
    (folder / "work").mkdir()
    (folder / "tmp").mkdir()
    inputs = [folder / "in"] * (2 if recipe == "trace_diff" else 1)
    known = references / recipe
    if not known.exists():
        begun = time.monotonic()
        after = run_recipe(recipe, "--output", known / "out", "--quiet", "--input", *inputs)
        if after.code:
            return [f"the reference ends with {after.code}: {after.said}"]
        (known / "seconds").write_text(str(time.monotonic() - begun))
    reference = known / "out"
    # Starting Python and importing takes about as long as the work.
    usual_s = 1.0 + 1.5 * float((known / "seconds").read_text())
    if mode == "dask-futures" or nsys is not None:
        usual_s *= 2.5
    return FAULTS[name](Place(folder, recipe, mode, nsys, usual_s), reference, random)


def main() -> int:
    """Run a campaign and report it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--injections", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=FAULTS, help="Only this one, each time.")
    parser.add_argument("--nsys", help="Run the recipes under this nsys.")
    parser.add_argument("--only", type=int, help="Repeat this injection; its files stay.")
    given = parser.parse_args()
    names = [given.fault] if given.fault else list(_UNDER_NSYS if given.nsys else FAULTS)
    done: Counter[str] = Counter()
    bad_n = 0
    references = Path(tempfile.mkdtemp(prefix="references-"))
    numbers = range(given.injections) if given.only is None else [given.only]
    for number in numbers:
        random = Random(f"faults {given.seed} {number}")
        name = names[number % len(names)]
        recipe = random.choice(recipe_names())
        mode = random.choice(("none", "concurrent", "concurrent", "dask-futures"))
        folder = Path(tempfile.mkdtemp(prefix="faults-"))
        problems = inject(name, recipe, mode, folder, references, random, given.nsys)
        tempfile.tempdir = None
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
