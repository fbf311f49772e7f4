"""Measures our recipes beside NVIDIA's, as whole processes on the same input.

    python tests/benchmarks/bench.py --nsys PATH/bin/nsys

Traces are made first (see traces.py). Every line of a table comes from runs in turn, after a run of
each on a small trace; ratios are formed turn by turn: the median, the least, the most. The
tables go to standard output, and with --into FILE between the marks of that file, as
docs/performance.md has them. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from processes import Command, Run, in_turn, keep_in_memory
from traces import MIXES, PLAIN

HERE: Final = Path(__file__).parent
IMPORTS: Final = "import pandas, pyarrow.parquet, plotly.graph_objects, nbformat"
RECIPES: Final = (
    "llm_hotspots",
    "tail_stats",
    "idle_gaps",
    "nvtx_phase_attribution",
    "step_budget",
    "comm_stats",
    "serving_steps",
)
#: What runs all of those on one read.
OVERVIEW: Final = "llm_overview"
RANK_KERNELS: Final = 10_000
MARKS: Final = ("<!-- benchmark: {} -->", "<!-- end of benchmark -->")


class Match(NamedTuple):
    """A recipe of ours, and recipes of NVIDIA that together answer part of its question."""

    ours: str
    theirs: tuple[str, ...]
    goal: float
    parquet: bool = False


SUMS: Final = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
)
GAPS: Final = "gpu_gaps --gap 0 --rows -1"
RANGES: Final = "nvtx_gpu_proj_trace"
MATCHES: Final = (
    Match("llm_hotspots", SUMS, 7),
    Match("tail_stats", ("cuda_gpu_kern_sum",), 4.5),
    Match("idle_gaps", (GAPS,), 11),
    Match("nvtx_phase_attribution", (RANGES,), 16),
    Match("nvtx_phase_attribution", ("nvtx_gpu_proj_sum",), 8, parquet=True),
    Match(OVERVIEW, (*SUMS, GAPS, RANGES), 9),
)


@dataclass(frozen=True)
class Bench:
    """Where traces are, what runs, and how often."""

    folder: Path
    nsys: str | None
    nvidia_python: Path | None
    runs_n: int
    seeds_n: int
    mix: str

    def trace(self, kernels_n: int, *, parquet: bool = False, seed: int = 1) -> Path:
        """Return an export with so many kernels; made if it is not there yet."""
        stem = f"k{kernels_n}_{seed}_{self.mix}"
        path = self.folder / (f"{stem}_pqtdir" if parquet else f"{stem}.sqlite")
        if not path.exists():
            # NVIDIA's recipes take a report only, and read an export whose inode changed later.
            report = self.folder / f"{stem}.nsys-rep"
            if not report.exists():
                report.touch()
            time.sleep(0.1)
            self._make("write_trace", path, kernels_n, seed, self.mix)
        return path

    def ranks(self, ranks_n: int, kernels_n: int) -> Path:
        """Return a folder of ranks; made if it is not there yet."""
        path = self.folder / f"ranks{ranks_n}_{kernels_n}"
        if not path.exists():
            self._make("write_set", path, ranks_n, kernels_n)
        return path

    def measured(
        self, commands: dict[str, Command], *, warm_up: bool = True
    ) -> dict[str, list[Run]]:
        """Run commands in turn; those of NVIDIA's recipes with the Python given for them."""
        results = {
            name: Path(words[words.index("--output") + 1])
            for name, words in commands.items()
            if "--output" in words
        }
        environments = {name: self._environment(name) for name in commands}
        return in_turn(commands, environments, results, self.runs_n, warm_up=warm_up)

    def ours(self, recipe: str, *inputs: Path, under_nsys: bool = False) -> list[str]:
        start = [sys.executable, "-m", "nsys_llm.run.cli", recipe]
        if under_nsys and self.nsys:
            start = [self.nsys, "recipe", recipe]
        output = ["--output", str(self.folder / "ours"), "--force-overwrite", "--quiet"]
        return [*start, "--input", *map(str, inputs), *output]

    def compared(self, kernels_n: int, *, parquet: bool = False) -> list[str]:
        """Return the command that compares two traces of this size."""
        baseline, other = (self.trace(kernels_n, parquet=parquet, seed=seed) for seed in (1, 2))
        return [*self.ours("trace_diff", other), "--baseline", str(baseline)]

    def theirs(self, words: str, export: Path) -> list[str]:
        """Return the command of a recipe of NVIDIA's, on the report beside the export."""
        report = export.with_name(f"{export.stem.removesuffix('_pqtdir')}.nsys-rep")
        given = ["--input", str(report), "--output", str(self.folder / "theirs")]
        return [str(self.nsys), "recipe", *words.split(), *given, "--force-overwrite"]

    def _make(self, function: str, path: Path, *arguments: int | str) -> None:
        # In a process of its own: a child's peak memory counts that of its parent when it forks.
        call = (
            f"import traces, pathlib; traces.{function}(pathlib.Path({str(path)!r}), *{arguments})"
        )
        subprocess.run([sys.executable, "-c", call], check=True, cwd=HERE)

    def _environment(self, name: str) -> dict[str, str]:
        python = Path(sys.executable).parent
        if self.nvidia_python and any(name in match.theirs for match in MATCHES):
            python = self.nvidia_python
        path = f"{python}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "NSYS_RECIPE_PATH": str(HERE.parents[1] / "recipes")}


def beside_nvidia(bench: Bench, sizes: Sequence[int]) -> Iterator[list[str]]:
    """Yield a row for each match and size: whole processes through `nsys recipe` on both sides."""
    yield ["work", "compared with", "kernels", "ours", "theirs", "wall", "CPU", "goal"]
    for size in sizes if bench.nsys else ():
        for parquet, kind in ((False, "SQLite"), (True, "parquet")):
            matches = [match for match in MATCHES if match.parquet == parquet]
            if size == sizes[0]:
                # Modules are compiled and in memory before the first run that counts.
                small = bench.trace(RANK_KERNELS, parquet=parquet)
                replace(bench, runs_n=0).measured(_commands(bench, matches, small))
            runs = _of_all_seeds(bench, matches, size, parquet=parquet)
            for match in matches:
                yield [f"{match.ours}, {kind}", *_row(match, size, runs)]


def _of_all_seeds(
    bench: Bench, matches: Sequence[Match], size: int, *, parquet: bool
) -> dict[str, list[Run]]:
    """Run each recipe that matches name once a turn; none of a recipe that fails on a trace."""
    runs: dict[str, list[Run]] = {}
    for seed in range(1, bench.seeds_n + 1):
        export = bench.trace(size, parquet=parquet, seed=seed)
        # What all read is in memory before the first of them.
        for file in [export] if export.is_file() else export.iterdir():
            keep_in_memory(file)
        measured = bench.measured(_commands(bench, matches, export), warm_up=False)
        runs = {name: runs.get(name, []) + its for name, its in measured.items()}
    whole = bench.seeds_n * bench.runs_n
    return {name: its if len(its) == whole else [] for name, its in runs.items()}


def _commands(bench: Bench, matches: Sequence[Match], export: Path) -> dict[str, Command]:
    """Return what runs on an export, each once, by name."""
    ours = {match.ours: bench.ours(match.ours, export, under_nsys=True) for match in matches}
    theirs = {words: bench.theirs(words, export) for match in matches for words in match.theirs}
    return {**ours, **theirs}


def _row(match: Match, size: int, runs: dict[str, list[Run]]) -> list[str]:
    names = " + ".join(f"`{words}`" for words in match.theirs)
    ours, theirs = runs[match.ours], [runs[words] for words in match.theirs]
    if not ours or not all(theirs):
        return [names, f"{size:,}", *_cost(ours), *(["failed"] * 3), f"{match.goal:g}"]
    together = [
        Run(sum(wall_s), sum(cpu_s), max(peak_mb))
        for wall_s, cpu_s, peak_mb in (
            zip(*turn, strict=True) for turn in zip(*theirs, strict=True)
        )
    ]
    ratios = (_ratio(together, ours, name) for name in ("wall_s", "cpu_s"))
    return [names, f"{size:,}", *_cost(ours), *_cost(together), *ratios, f"{match.goal:g}"]


def alone(bench: Bench, sizes: Sequence[int], counts: Sequence[int]) -> Iterator[list[str]]:
    """Yield what each of our recipes takes standalone, by kernels and by number of ranks."""
    of_sizes = (f"{size:,} kernels" for size in sizes)
    yield ["recipe", *of_sizes, *(f"{count:,} ranks of {RANK_KERNELS:,}" for count in counts)]
    if sizes:
        imports = bench.measured({"imports": [sys.executable, "-c", IMPORTS]})["imports"]
        yield ["imports alone", *_cost(imports), *[""] * (len(sizes) + len(counts) - 1)]
    for recipe in (*RECIPES, OVERVIEW):
        inputs = [bench.trace(size) for size in sizes]
        inputs += [bench.ranks(count, RANK_KERNELS) for count in counts]
        yield [recipe, *(_cell(bench, recipe, bench.ours(recipe, path)) for path in inputs)]
    pairs = (_cell(bench, "trace_diff", bench.compared(size)) for size in sizes)
    yield ["trace_diff, two traces", *pairs, *[""] * len(counts)]


def _cell(bench: Bench, recipe: str, command: Command) -> str:
    return _cost(bench.measured({recipe: command}, warm_up=False)[recipe])[0]


def _cost(runs: Sequence[Run]) -> list[str]:
    """Return wall and processor seconds and peak memory, medians, in a cell."""
    if not runs:
        return ["failed"]
    wall, cpu, peak = map(median, zip(*runs, strict=True))
    return [f"{wall:.2f} s, {cpu:.2f} CPU s, {peak:,.0f} MB"]


def _ratio(more: Sequence[Run], less: Sequence[Run], name: str) -> str:
    """Return how many times as much the ones take as the others, turn by turn."""
    pairs = zip(more, less, strict=True)
    ratios = [getattr(a, name) / getattr(b, name) for a, b in pairs]
    return f"{median(ratios):.1f} x ({min(ratios):.1f}-{max(ratios):.1f})"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as Markdown, the first as the head; each is printed as it comes."""
    lines = []
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
        if len(lines) == 1:
            lines.append("|" + "---|" * len(row))
        print(lines[-1] if len(lines) > 2 else "\n".join(lines), flush=True)
    return "\n".join(lines)


def put(path: Path, name: str, text: str) -> None:
    """Replace what stands in a file between the marks of that name; a file without them stays."""
    content = path.read_text("utf-8")
    begin, end = MARKS[0].format(name), MARKS[1]
    if begin in content:
        head, _, rest = content.partition(begin)
        tail = rest.partition(end)[2]
        path.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[10_000, 1_000_000, 5_000_000])
    parser.add_argument("--ranks", type=int, nargs="*", default=[64, 1_024])
    parser.add_argument("--runs", type=int, default=3, help="turns on each trace")
    parser.add_argument("--seeds", type=int, default=1, help="traces beside NVIDIA's recipes")
    parser.add_argument("--mix", choices=MIXES, default=PLAIN, help="what traces are made of")
    parser.add_argument("--nsys", default=shutil.which("nsys"), help="a real Nsight Systems")
    parser.add_argument("--nvidia-python", type=Path, help="bin folder of a Python for its recipes")
    parser.add_argument("--folder", type=Path, help="where traces are kept for the next time")
    parser.add_argument("--into", type=Path, nargs="*", default=[], help="files with marks")
    parser.add_argument("--only", nargs="+", help="names of tables")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nsys-llm-bench-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        how_often = (given.runs, given.seeds, given.mix)
        bench = Bench(folder.resolve(), given.nsys, given.nvidia_python, *how_often)
        mix = "" if given.mix == PLAIN else f", {given.mix} mix"
        tables = {
            f"NVIDIA's recipes{mix}": lambda: beside_nvidia(bench, given.kernels),
            "alone": lambda: alone(bench, given.kernels, given.ranks),
        }
        for name, rows in tables.items():
            if given.only is None or name in given.only:
                print(f"\n## {name}\n", flush=True)
                text = table(rows())
                for path in given.into:
                    put(path, name, text)


if __name__ == "__main__":
    main()
