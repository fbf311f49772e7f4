#!/usr/bin/env python3
"""Installs nsys-llm-recipes, with nothing but Python's own library.

python3 install.py --venv .venv --demo   sets up, and analyzes a synthetic rank set
python3 install.py --venv .venv --test   sets up, and runs all checks of the project
python3 install.py --nsys                adds the recipes to Nsight Systems; --uninstall undoes it
python3 install.py --check               says what `nsys recipe` would run, and what is missing

Exit codes: 0 done, 1 a step failed, 2 bad usage or nowhere to install to, 130 interrupted.

The file is valid Python 3.6, so that an old Python gets one line and no SyntaxError: annotations
that it could not evaluate are quoted, and everything newer runs after the check in `main`.
"""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, NamedTuple

OLDEST_PYTHON = (3, 10)
ROOT = Path(__file__).resolve().parent

#: What the package is built from. A copy of it is built, so that the checkout stays as it is and
#: what an earlier build left there goes into no wheel.
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "shared", "recipes", "manifests")
MISPLACED = "run install.py where it was cloned to"
NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.egg-info", "build", ".*")

#: A file's tests stay together, files with marks begin.
TESTS = "-n auto --dist loadfile --no-loadscope-reorder --hypothesis-profile ci --durations 20"
#: The checks of --test: a name, and the module with its arguments.
#: pytest comes last, so that its closing line ends the output.
CHECKS = (
    ("ruff check", ("ruff", "check", ".")),
    ("ruff format", ("ruff", "format", "--check", ".")),
    ("import contracts", ("tests.import_contracts",)),
    ("mypy", ("mypy", "shared/nsys_llm", "recipes", "install.py")),
    ("derived files", ("nsys_llm.install.derive", "--check")),
    ("pytest", ("pytest", *TESTS.split())),
)

DEMO = Path("nsys-llm-demo")
FIND_RECIPES = "import nsys_llm.recipes; print(*nsys_llm.recipes.__path__)"


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

    def say(self, *lines: str) -> None:
        """Print lines of progress."""
        if not self.quiet:
            print(*lines, sep="\n", flush=True)

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
    try:
        return _install(_ours("install.steps", "parse", arguments, DEMO))
    except InstallError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        return _failed(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)


def _install(options: Any) -> int:
    if options.uninstall or options.check:
        return _look_or_remove(options)
    target = _venv(options) if options.venv else Target(sys.executable, "", options.quiet)
    if options.current or options.venv:
        extras = [name for name in ("jupyter", "test") if getattr(options, name)]
        # An environment of ours has versions that NVIDIA's recipes run with too.
        extras += ["nsys"] if options.venv and options.nsys is not None else []
        _install_package(target, f"[{','.join(extras)}]" if extras else "", options.find_links)
        _say_usage(target, options.nsys is not None)
    if options.nsys is not None:
        _place(target, options)
    if options.demo:
        _run_demo(target)
    if options.test:
        _run_checks(target)
    return 0


def _place(target: Target, options: Any) -> None:
    wheel = (target.python, options.find_links, copy_sources, _run)
    with _ours("install.steps", "built_library", *wheel) as library:
        given = (ROOT, options.nsys or None, library)
        lines, python = _ours("install.steps", "place_beside_nsys", *given)
    target.say(*lines)
    if python:
        _install_package(Target(python, "", target.quiet), "", options.find_links)
    if target.commands:
        # As after `activate`, which the usage names.
        os.environ["PATH"] = os.path.dirname(target.python) + os.pathsep + os.environ["PATH"]
    target.say(*_ours("install.check", "after_placing", ROOT, options.nsys or None))


def _look_or_remove(options: Any) -> int:
    if options.check:
        lines, works = _ours("install.check", "check", ROOT, options.nsys or None)
        print("\n".join(lines))
        return 0 if works else 1
    lines, kept = _ours("install.steps", "uninstall", options.nsys)
    Target("", "", options.quiet).say(*lines)
    if kept:
        raise InstallError(f"kept, because install.py did not write it: {', '.join(kept)}")
    return 0


def _ours(module: str, function: str, *arguments: object) -> Any:
    """Call a function of the package in this checkout, whatever is installed."""
    sys.dont_write_bytecode = True
    if not (ROOT / "pyproject.toml").is_file():
        raise InstallError(f"{ROOT / 'pyproject.toml'} is missing: {MISPLACED}", 2)
    if "nsys_llm" not in sys.modules:
        package = sys.modules["nsys_llm"] = types.ModuleType("nsys_llm")
        package.__path__ = [str(ROOT / "shared" / "nsys_llm")]
    errors = importlib.import_module("nsys_llm.core.errors")
    try:
        return getattr(importlib.import_module(f"nsys_llm.{module}"), function)(*arguments)
    except errors.NsysLlmError as error:
        raise InstallError(str(error), int(error.exit_code)) from None


def _venv(options: Any) -> Target:
    """Return the Python of an environment, which is made unless it is there and has pip."""
    folder = Path(options.venv).expanduser()
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    # Not resolved: the executable is a link, and what it points to is another Python.
    python = os.path.abspath(str(commands / "python"))
    target = Target(python, f"{commands}{os.sep}", options.quiet)
    free = not os.path.lexists(str(folder)) or (folder.is_dir() and not any(folder.iterdir()))
    if not free and not (folder / "pyvenv.cfg").is_file():
        raise InstallError(f"{folder} is not a virtual environment; name another folder", 2)
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


def _install_package(target: Target, extra: str, wheels: "str | None") -> None:
    target.say("installing nsys-llm-recipes and what it needs (the first time, some minutes) ...")
    with tempfile.TemporaryDirectory(prefix="nsys-llm-") as folder:
        if wheels:
            words = ["--no-index", "--find-links", os.path.expanduser(wheels), "nsys-llm-recipes"]
        else:
            words = [f"{copy_sources(Path(folder, 'source'))}{extra}"]
        _pip(target, folder, "install", "-q", *words)


def _pip(target: Target, folder: str, *words: str) -> None:
    pip = [target.python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # With its own temporary files here, pip leaves none behind when it is interrupted.
    code, output = _run([*pip, *words], TMPDIR=folder)
    if code:
        advice = _ours("install.steps", "pip_advice", output).format(target.python)
        raise InstallError(f"{advice} (pip: {_last_line(output)})")


def copy_sources(destination: Path) -> Path:
    """Copy what the package is built from into a folder, made if need be; return that."""
    destination.mkdir(exist_ok=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(str(source), str(destination / name), ignore=NOT_SOURCES)
        elif source.is_file():
            shutil.copyfile(str(source), str(destination / name))
        elif name == "README.md":
            (destination / name).touch()
        else:
            raise InstallError(f"{source} is missing: {MISPLACED}", 2)
    return destination


def _say_usage(target: Target, beside: bool) -> None:
    code, output = _run([target.python, "-c", FIND_RECIPES])
    if code:
        raise InstallError(f"installed, but it does not import: {_last_line(output)}")
    target.say(f"installed: {target.commands}nsys-llm --help")
    steps = [f"source {shlex.quote(target.commands + 'activate')}"] if target.commands else []
    # What is placed beside nsys needs no path.
    steps += [] if beside else [f"export NSYS_RECIPE_PATH={shlex.quote(output.strip())}"]
    target.say(*([f"for `nsys recipe`: {'; '.join(steps)}"] if steps else []))


def _run_demo(target: Target) -> None:
    # Prints what it does, and where to read on.
    words = ("nsys_llm.run.cli", "demo", str(DEMO), "--commands", target.commands)
    code = target.run(words, Path.cwd())
    if code:
        raise InstallError("failed: demo", code)


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
    return str(_ours("install.steps", "last_line", output))


def _failed(message: str, exit_code: int) -> int:
    print(f"install.py: {message}", file=sys.stderr)
    return exit_code


def _terminated(number: int, _: object) -> None:
    """Take back what was begun, as on Ctrl-C; a second signal must not interrupt that."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main())
