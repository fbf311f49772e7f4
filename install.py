#!/usr/bin/env python3
"""Installs nsys-llm-recipes, with nothing but Python's own library.

python3 install.py --venv .venv --demo   sets up, and analyses a made-up rank set
python3 install.py --venv .venv --test   sets up, and runs all checks of the project

Exit codes: 0 done, 1 a step failed, 2 bad usage or nowhere to install to, 130 interrupted.

The file is valid Python 3.6, so that an old Python gets one line and no SyntaxError: annotations
that it could not evaluate are quoted, and everything newer runs after the check in `main`.
"""

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, NoReturn

OLDEST_PYTHON = (3, 10)
ROOT = Path(__file__).resolve().parent

#: What the package is built from. A copy of it is built, so that the checkout stays as it is and
#: what an earlier build left there goes into no wheel.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "shared", "recipes", "manifests")
NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "build", ".*")

#: The checks of --test: a name, and the module with its arguments. mypy reads the installed copy;
#: pytest comes last, so that its closing line ends the output.
CHECKS = (
    ("ruff check", ("ruff", "check", ".")),
    ("ruff format", ("ruff", "format", "--check", ".")),
    ("mypy", ("mypy", "-p", "nsys_llm", "-m", "install")),
    ("derived files", ("nsys_llm.derive", "--check")),
    ("pytest", ("pytest", "-n", "auto")),
)

DEMO = Path("nsys-llm-demo")
#: Lists the traces that --demo made, the only files of the folder that it may replace.
DEMO_RECORD = ".made-by-install"
MAKE_DEMO = "import pathlib, sys, nsys_llm.demo as d; d.write_demo(pathlib.Path(sys.argv[1]))"
FIND_RECIPES = "import nsys_llm.recipes; print(*nsys_llm.recipes.__path__)"

#: A text in pip's output, and what we say about it. The first that fits counts.
PIP_ADVICE = (
    ("externally-managed-environment", "{} takes no packages itself (PEP 668); use --venv DIR"),
    ("No module named pip", "{} has no pip; use --venv DIR, or: apt install python3-pip"),
    ("Permission denied", "no permission to write for {}; use --venv DIR, a folder of yours"),
    ("connection broken", "no network, it seems; check it, or name a mirror in PIP_INDEX_URL"),
    ("No matching distribution", "the package index lacks something, or there is no network"),
    ("", "could not install into {}"),
)


class InstallError(Exception):
    """Ends the installation; its text is what the user reads."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Target(NamedTuple):
    """A Python to install into.

    Attributes:
        python: Its executable, absolute.
        commands: What stands before our command to run it, such as `.venv/bin/`.
        quiet: Show errors only.
    """

    python: str
    commands: str
    quiet: bool

    def say(self, text: str) -> None:
        """Print a line of progress."""
        if not self.quiet:
            print(text, flush=True)

    def run(self, module: "tuple[str, ...]", folder: Path) -> int:
        """Run `python -m MODULE ARGUMENTS` as in an activated environment; return its exit code.

        With --quiet its output is shown only if it fails.
        """
        code, output = _run([self.python, "-m", *module], folder, show=not self.quiet)
        if code and self.quiet:
            print(output, flush=True)
        return code


def main(arguments: "list[str] | None" = None) -> int:
    """Do what the command line asks, and return the exit code."""
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(map(str, sys.version_info[:3]))
        return _failed(f"Python 3.10 or newer is needed; this is {version} ({sys.executable})", 2)
    options = _parse(arguments)
    try:
        return _install(options)
    except InstallError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        return _failed(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(f"{message}; try: python3 install.py --venv .venv --demo, or --help", 2))


def _parse(arguments: "list[str] | None") -> argparse.Namespace:
    parser = _Parser(prog="install.py", description="Install nsys-llm-recipes.", allow_abbrev=False)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--current", action="store_true", help="install into the Python run here")
    where.add_argument("--venv", metavar="DIR", help="install into this environment; make it first")
    parser.add_argument("--test", action="store_true", help="then run all checks of the project")
    parser.add_argument(
        "--demo", action="store_true", help=f"then analyse a made-up rank set, in ./{DEMO}"
    )
    parser.add_argument("--quiet", action="store_true", help="show errors only")
    options = parser.parse_args(arguments)
    if options.venv == "":
        parser.error("--venv: the folder's name is empty")
    return options


def _install(options: argparse.Namespace) -> int:
    target = _venv(options) if options.venv else Target(sys.executable, "", options.quiet)
    _install_package(target, extra="[test]" if options.test else "")
    _say_usage(target)
    if options.demo:
        _run_demo(target)
    if options.test:
        _run_checks(target)
    return 0


def _venv(options: argparse.Namespace) -> Target:
    """Return the Python of an environment, which is made unless it is there and has pip."""
    folder = Path(options.venv).expanduser()
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    # Not resolved: the executable is a link, and what it points to is another Python.
    python = os.path.abspath(str(commands / "python"))
    target = Target(python, f"{commands}{os.sep}", options.quiet)
    free = not os.path.lexists(str(folder)) or (folder.is_dir() and not any(folder.iterdir()))
    if not free and not (folder / "pyvenv.cfg").is_file():
        raise InstallError(f"{folder} is no virtual environment; name another folder", 2)
    if shutil.which(python) and _run([python, "-m", "pip", "--version"])[0] == 0:
        return target
    if not all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")):
        raise InstallError(
            "this Python cannot make virtual environments; "
            "try: apt install python3-venv, or use --current",
            2,
        )
    target.say(f"making the environment {folder} ...")
    code, output = _run([sys.executable, "-m", "venv", str(folder)])
    if code:
        raise InstallError(f"cannot make {folder}: {_last_line(output)}", 2)
    return target


def _install_package(target: Target, extra: str) -> None:
    target.say("installing nsys-llm-recipes and what it needs (the first time, some minutes) ...")
    with tempfile.TemporaryDirectory(prefix="nsys-llm-") as folder:
        source = Path(folder, "source")
        source.mkdir()
        copy_sources(source)
        pip = [target.python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        # With its own temporary files here, pip leaves none behind when it is interrupted.
        code, output = _run([*pip, "install", "-q", f"{source}{extra}"], TMPDIR=folder)
    if code:
        advice = next(advice for sign, advice in PIP_ADVICE if sign in output)
        raise InstallError(f"{advice.format(target.python)} (pip: {_last_line(output)})")


def copy_sources(destination: Path) -> None:
    """Copy what the package is built from into an existing folder.

    Raises:
        InstallError: This file does not lie in a checkout.
    """
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(str(source), str(destination / name), ignore=NOT_SOURCES)
        elif source.is_file():
            shutil.copyfile(str(source), str(destination / name))
        elif name == "README.md":
            (destination / name).touch()
        else:
            raise InstallError(f"{source} is missing: run install.py where it was cloned to", 2)


def _say_usage(target: Target) -> None:
    code, output = _run([target.python, "-c", FIND_RECIPES])
    if code:
        raise InstallError(f"installed, but it does not import: {_last_line(output)}")
    target.say(f"installed: {target.commands}nsys-llm --help")
    activate = f"source {shlex.quote(target.commands + 'activate')}; " if target.commands else ""
    recipes = shlex.quote(output.strip())
    target.say(f"for `nsys recipe`: {activate}export NSYS_RECIPE_PATH={recipes}")


def _run_demo(target: Target) -> None:
    target.say(f"demo: writing two runs of a made-up server with 4 GPUs to {DEMO} ...")
    with tempfile.TemporaryDirectory(prefix=f".{DEMO}-", dir=os.getcwd()) as folder:
        code, output = _run([target.python, "-c", MAKE_DEMO, folder])
        if code:
            raise InstallError(f"failed: demo: {_last_line(output)}")
        _move_files(Path(folder), DEMO)
    results = DEMO / "llm_hotspots"
    arguments = ("llm_hotspots", "--input", str(DEMO / "baseline"), "--output", str(results))
    target.say(f"demo: {target.commands}nsys-llm {' '.join(arguments)}")
    # A result of ours is replaced, another folder of that name refused by the command itself.
    if target.run(("nsys_llm.cli", *arguments, "--force-overwrite"), Path.cwd()):
        raise InstallError("failed: demo: nsys-llm llm_hotspots")
    report = results / "report.md"
    target.say(f"demo: the results are in {results}" + f"; read {report}" * report.is_file())


def _move_files(source: Path, destination: Path) -> None:
    """Move all files of a folder into another, over those that an earlier call moved there."""
    record = destination / DEMO_RECORD
    ours = record.read_text("utf-8").splitlines() if record.is_file() else []
    new = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    for name in new:
        if name not in ours and os.path.lexists(str(destination / name)):
            raise InstallError(f"{destination / name} was not made by --demo; move it away", 2)
    destination.mkdir(exist_ok=True)
    record.write_text("\n".join(new), "utf-8")
    for name in new:
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(str(source / name), str(destination / name))


def _run_checks(target: Target) -> None:
    failed = []
    for name, module in CHECKS:
        target.say(f"check: {name} ...")
        if target.run(module, ROOT):
            failed.append(name)
    if failed:
        raise InstallError(f"failed: {', '.join(failed)}")


def _run(
    command: "list[str]", folder: "Path | None" = None, *, show: bool = False, **variables: str
) -> "tuple[int, str]":
    """Run a command as in an activated environment; return its exit code and what it printed.

    With `show` it prints to our own output, and nothing is returned of that. The variables are
    added to its environment.
    """
    path = os.pathsep.join([os.path.dirname(command[0]), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        cwd=None if folder is None else str(folder),
        env=dict(os.environ, PATH=path, **variables),
        stdin=subprocess.DEVNULL,
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
    )
    return done.returncode, (done.stdout or b"").decode("utf-8", "replace").strip()


def _last_line(output: str) -> str:
    """Return the last line that tells of an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error: ")]
    # Says only that another program, whose words stand above, has failed.
    errors = [line for line in errors if not line.endswith("subprocess-exited-with-error")]
    return (errors or lines or ["no message"])[-1]


def _failed(message: str, exit_code: int) -> int:
    print(f"install.py: {message}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
