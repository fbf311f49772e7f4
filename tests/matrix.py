"""Runs a quick part of the tests with each combination of Python and libraries that we allow.

    python tests/matrix.py                all combinations, one after the other
    python tests/matrix.py oldest         some of them by name; an unknown one tells the names
    python tests/matrix.py oldest --short a part of these tests, as CI does

Each gets an environment of its own from venv and pip, with this checkout installed as a wheel.
Pythons are looked for as python3.10 and so on, on PATH and where pyenv has them. A combination
whose Python is not there is left out, and said to be. Exit code: 1 if a combination failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
OLDEST_VERSIONS: Final = ROOT / "tests" / "oldest.txt"
PYTHONS: Final = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: Pythons for which tests/oldest.txt has versions with wheels.
OLDEST_ON: Final = ("3.10", "3.11", "3.12", "3.13")

#: What the tests need, of the newest; and what runs notebooks again, which SHORT does not.
TOOLS: Final = (
    "hypothesis",
    "jsonschema",
    "markdown-it-py",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "setuptools",
)
NOTEBOOK_TOOLS: Final = ("ipykernel", "nbclient")

#: Each way in which a library is used, by all recipes: what every commit runs.
SHORT: Final = (
    "tests/report/test_page.py",
    "tests/run/test_remote_worker.py::test_a_separate_worker_gives_the_same_tables",
    "tests/contract/test_schema_versions.py::test_every_version_and_kind_gives_the_same_tables[llm_overview-3.30.1-parquet-range]",
    "tests/contract/test_schema_versions.py::test_runs_of_the_oldest_and_the_newest_version_compare_as_equal",
    "tests/numeric/test_distributions.py",
    "tests/report/test_outputs.py",
    "tests/profile/test_parquet_profile.py",
    "tests/profile/test_reader.py",
    "tests/profile/test_sqlite_profile.py",
    "tests/view/test_view_figures.py",
    "tests/view/test_view_tables.py",
)
#: What meets the libraries: reading, statistics, writing, figures, notebooks, Dask.
TESTS: Final = (
    *SHORT,
    "tests/report/test_notebook.py",
    "tests/contract/test_schema_versions.py::test_versions_and_kinds_mix_in_one_run",
    "tests/recipes/idle_gaps/test_idle_gaps.py",
    "tests/recipes/llm_hotspots/test_memops.py",
    "tests/recipes/trace_diff/test_trace_diff.py",
    "tests/facts/test_concurrency.py",
    "tests/run/test_worker.py",
)
NOT_WITHOUT_MORE: Final = "not nsys and not browser and not traces"


class Combination(NamedTuple):
    """Versions that are tested together.

    Attributes:
        name: On the command line.
        pythons: The first of these that is there; none: whatever runs this.
        versions: Requirements; of a library without one, pip takes the newest.
    """

    name: str
    pythons: Sequence[str]
    versions: Sequence[str]


def combinations() -> list[Combination]:
    """Return all combinations; of the middle ones, each moves what is likely to break alone."""
    oldest = pins()
    newer = ("3.12", "3.11", "3.13", "3.10")
    # pyarrow 26 needs numpy 2, and does not say so to pip. pyarrow 14 works with pandas 2.2, which
    # warns of how it is called, and here a warning is an error.
    numpy1 = ("numpy<2", "pyarrow<26")
    alone = ("dask", "plotly", "nbformat", "adbc-driver-sqlite")
    together = {"dask": ("dask", "distributed")}
    together["adbc-driver-sqlite"] = ("adbc-driver-manager", "adbc-driver-sqlite")
    listed = [Combination("oldest", OLDEST_ON, oldest)]
    listed += [Combination(f"oldest-{python}", (python,), oldest) for python in OLDEST_ON[1:]]
    listed += [Combination(f"newest-{python}", (python,), ()) for python in PYTHONS]
    listed += [
        Combination("pandas2", newer, ("pandas<3",)),
        Combination("numpy1", newer, numpy1),
        Combination("pandas2-numpy1", newer, ("pandas<3", *numpy1)),
        Combination(
            "oldest-pyarrow", newer[:2], (*only(oldest, "pyarrow"), "numpy<2", "pandas<2.2")
        ),
    ]
    listed += [
        Combination(
            f"oldest-{package}", newer[:2], only(oldest, *together.get(package, (package,)))
        )
        for package in alone
    ]
    return listed


def pins() -> list[str]:
    lines = OLDEST_VERSIONS.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def only(lines: Sequence[str], *names: str) -> list[str]:
    return [line for line in lines if line.partition("==")[0] in names]


def find_python(version: str) -> str | None:
    """Return the executable of a Python that can make environments; None if there is none."""
    name = f"python{version}"
    running = "{}.{}".format(*sys.version_info)
    commands: list[tuple[str, dict[str, str]]] = (
        [(sys.executable, {})] if version == running else []
    )
    commands.append((name, {}))
    if shutil.which("pyenv"):
        # Its own `python3.10` works for the version that is switched on only.
        whence = subprocess.run(["pyenv", "whence", name], capture_output=True, text=True)
        commands += [(name, {"PYENV_VERSION": candidate}) for candidate in whence.stdout.split()]
    tell = "import sys, venv, ensurepip; print(sys.executable)"
    for command, variables in commands:
        if shutil.which(command):
            environment = {**os.environ, **variables}
            words = [command, "-c", tell]
            answer = subprocess.run(words, capture_output=True, text=True, env=environment)
            if answer.returncode == 0:
                return answer.stdout.strip()
    return None


def build_wheel(folder: Path) -> Path:
    """Build this checkout from a copy, so that it stays as it is; return the wheel."""
    sys.path.insert(0, str(ROOT))
    sys.dont_write_bytecode = True
    import install

    source = install.copy_sources(folder / "source")
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)]
    subprocess.run([sys.executable, *words], check=True)
    return next(folder.glob("*.whl"))


def run_combination(
    case: Combination, python: str, wheel: Path, folder: Path, options: argparse.Namespace
) -> str | None:
    """Return what went wrong; None if nothing did."""
    place = folder / case.name
    if not place.is_dir():
        # To put an old pip into each takes as long as what the pip that is here does in it.
        subprocess.run([python, "-m", "venv", "--without-pip", str(place)], check=True)
    inside = str(place / "bin" / "python")
    constraints = folder / f"{case.name}.txt"
    constraints.write_text("\n".join(case.versions) + "\n", "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", inside, "--disable-pip-version-check"]
    pip += ["install", "-q", "--only-binary", ":all:", "-c", str(constraints), str(wheel), *TOOLS]
    pip += () if options.short else NOTEBOOK_TOOLS
    if subprocess.run(pip, check=False).returncode:
        return "cannot be installed"
    command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(options.jobs)]
    command += ["--dist", "loadfile", "-m", NOT_WITHOUT_MORE]
    command += SHORT if options.short else TESTS
    path = os.pathsep.join([str(place / "bin"), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path, "OTHER_LIBRARIES": case.name}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    print(done.stdout if done.returncode else done.stdout[-100:], flush=True)
    return "failed" if done.returncode else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the combinations that are asked for; return 1 if one failed, 2 if there is none such."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="combinations; none: all of them")
    parser.add_argument("--jobs", default="auto", help="processes of pytest. Default: one a core.")
    parser.add_argument("--short", action="store_true", help="the part of the tests that CI runs")
    options = parser.parse_args(arguments)
    known = {case.name: case for case in combinations()}
    if unknown := [name for name in options.names if name not in known]:
        print(f"error: no combination {unknown[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    results: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="nsys-llm-matrix-") as made:
        folder = Path(made).resolve()
        wheel = build_wheel(folder)
        for name in options.names or known:
            case = known[name]
            python = next(filter(None, map(find_python, case.pythons)), None)
            if python is None:
                print(f"{name}: left out, no Python {' or '.join(case.pythons)} here", flush=True)
                continue
            print(f"{name}: {python} ...", flush=True)
            results[name] = run_combination(case, python, wheel, folder, options)
            print(f"{name}: {results[name] or 'passed'}", flush=True)
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main())
