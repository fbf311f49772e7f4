"""What install.py does: recipes beside nsys and away again, the library of a wheel, what stops pip.

Steps return the lines to tell the user. Standard library only, as all that install.py loads.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NoReturn

from nsys_llm.core.errors import OutputError, UsageError
from nsys_llm.install.nsight import OWN_VENV, NsightSystems, find_all, locate
from nsys_llm.install.placement import RECORD, NotWritableError, place, read_record, remove

#: Where our package lies below NVIDIA's packages folder, and its recipes.
PACKAGE = "nsys_llm"
RECIPES = "nsys_recipe/recipes"
#: See `nsys_llm.profile.sqlite.pages`; a platform and `.so` follow.
_LIBRARY = "profile/sqlite/_leaf"


def checkout_version(root: Path) -> str:
    """Return the version of this package, as it stands in a checkout.

    Raises:
        UsageError: It does not say one.
    """
    match = re.search(
        r'__version__.*= "(.+)"', (root / "shared" / "nsys_llm" / "__init__.py").read_text("utf-8")
    )
    if not match:
        raise UsageError(f"{root / 'shared'} does not say its version")
    return match[1]


def place_beside_nsys(
    root: Path, given: str | None, library: Path | None
) -> tuple[list[str], str | None]:
    """Place the package and its recipes in Nsight Systems.

    Args:
        given: See `nsys_llm.install.nsight.locate`.
        library: Out of a wheel that was built for this platform, if it has one.

    Returns:
        Lines to tell, and the Python that the requirements have to go to, if that is a given one.

    Raises:
        UsageError: There is no Nsight Systems, or something is in the way.
        OutputError: There is no permission.
    """
    nsight = locate(given)
    own_lines, python = _own_python(nsight) if nsight.has_own_python else ([], None)
    version = checkout_version(root)
    ours = {f"{_LIBRARY}-{platform.machine()}.so": library} if library else {}
    folders = {PACKAGE: _package_sources(root) | ours}
    folders |= {f"{RECIPES}/{name}": files for name, files in recipe_sources(root).items()}
    try:
        before = place(nsight.packages, folders, version)
    except NotWritableError as error:
        raise NotWritableError(
            f"{error}; without it: python3 install.py --venv .venv, which says how to set "
            "NSYS_RECIPE_PATH"
        ) from None
    instead_of = f", in place of {before}," if before else ""
    lines = [f"placed nsys-llm-recipes {version}{instead_of} in {nsight.packages}"]
    names = " ".join(recipe_sources(root))
    lines.append(f"now `nsys recipe` has: {names}")
    return [*lines, *own_lines], python


def uninstall(nsys: str | None) -> tuple[list[str], list[str]]:
    """Remove what was placed.

    Args:
        nsys: From this Nsight Systems, empty for the one that is found; None: from all of them.

    Returns:
        Lines to tell, and the files that were kept because somebody added them.

    Raises:
        UsageError: There is no Nsight Systems, or a record is damaged.
        OutputError: There is no permission.
    """
    if nsys is None:
        roots = [nsight.packages for nsight in find_all() if read_record(nsight.packages)]
        if not roots:
            return ["found nothing to remove; name it: --nsys DIR"], []
    else:
        roots = [locate(nsys).packages]
    lines, kept = [], []
    for root in roots:
        left = remove(root)
        lines.append(
            f"nothing to remove in {root}: it has no {RECORD}"
            if left is None
            else f"removed nsys-llm-recipes from {root}"
        )
        kept += [str(root / name) for name in left or ()]
    return lines, kept


def recipe_sources(root: Path) -> dict[str, dict[str, Path]]:
    """Return the files that NVIDIA's loader needs of each recipe, by its name.

    `__init__.py` is among them: a folder of the same name, such as a result, may lie in the current
    directory, and counts for less than a package that has one.
    """
    return {
        metadata.parent.name: {
            name: metadata.parent / name
            for name in ("__init__.py", f"{metadata.parent.name}.py", "metadata.json")
        }
        for metadata in sorted((root / "recipes").glob("*/metadata.json"))
    }


def _package_sources(root: Path) -> dict[str, Path]:
    """Return the files of the package by the path that they are imported by."""
    if not (root / "pyproject.toml").is_file():
        raise UsageError(
            f"{root / 'pyproject.toml'} is missing: run install.py where it was cloned"
        )
    parts = {
        "": root / "shared" / "nsys_llm",
        "recipes/": root / "recipes",
        "manifests/": root / "manifests",
    }
    return {
        f"{prefix}{path.relative_to(folder).as_posix()}": path
        for prefix, folder in parts.items()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _is_source(path.relative_to(folder))
    }


def _is_source(path: Path) -> bool:
    """Tell our files from what Python, builds and editors leave beside them."""
    hidden = any(part.startswith(".") or part in ("__pycache__", "build") for part in path.parts)
    return not hidden and path.suffix in (".py", ".json", ".typed", ".css", ".js")


def _own_python(nsight: NsightSystems) -> tuple[list[str], str | None]:
    given = os.environ.get("NSYSPYTHONEXE")
    python, how = nsight.python()
    lines = [f"{nsight.name} runs recipes in {python or OWN_VENV} ({how}), not in PATH's python3"]
    if given and not python:
        raise OutputError(f"NSYSPYTHONEXE={given} cannot be run; nothing was placed")
    if given:
        return lines, python
    first = "" if python else "run `nsys recipe --help` once, which makes it; then "
    lines.append(f"to install there: {first}NSYSPYTHONEXE={OWN_VENV} python3 install.py --nsys")
    return lines, None


_IN_WHEEL: Final = "nsys_llm/profile/sqlite/_leaf.so"
#: A text in pip's output, and what we say about it. The first that fits counts.
_ADVICE: Final = (
    ("externally-managed-environment", "{} takes no packages itself (PEP 668); use --venv DIR"),
    ("No module named pip", "{} has no pip; use --venv DIR, or: apt install python3-pip"),
    ("Permission denied", "no permission to write for {}; use --venv DIR, a folder of yours"),
    ("connection broken", "no network, it seems; check it, or name a mirror in PIP_INDEX_URL"),
    (
        "No matching distribution",
        "the package index or --find-links lacks something, or there is no network",
    ),
    ("", "could not install into {}"),
)


@contextmanager
def built_library(
    python: str,
    wheels: str | None,
    copy_sources: Callable[[Path], Path],
    run: Callable[..., object],
) -> Iterator[Path | None]:
    """Have the compiled library of a wheel of this run within the block; None where it has none.

    Args:
        python: The one whose pip builds it.
        wheels: A folder of wheels to take it from instead.
        run: Runs a command, with variables added to its environment.
    """
    if os.environ.get("NSYS_LLM_NATIVE", "").lower() in ("0", "false", "no", "off"):
        yield None
        return
    with TemporaryDirectory(prefix="nsys-llm-") as temporary:
        folder = Path(temporary)
        built = Path(wheels).expanduser() if wheels else folder / "wheels"
        if not wheels:
            source = str(copy_sources(folder / "source"))
            # Without pip or a network it goes without: nobody waits for what is optional.
            words = ("--no-deps", "--retries", "0", "--timeout", "5", "-w", str(built), source)
            with suppress(OSError):
                run([python, "-m", "pip", "wheel", "-q", *words], TMPDIR=str(folder))
        yield _library(built, folder)


def _library(wheels: Path, folder: Path) -> Path | None:
    for wheel in wheels.glob("nsys_llm_recipes-*.whl"):
        with zipfile.ZipFile(wheel) as file:
            if _IN_WHEEL in file.namelist():
                return Path(file.extract(_IN_WHEEL, folder))
    return None


def pip_advice(output: str) -> str:
    """Return what to do about a failure of pip; `{}` stands for the Python."""
    return next(advice for sign, advice in _ADVICE if sign in output)


def last_line(output: str) -> str:
    """Return the last line that reports an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error: ")]
    # Says only that another program, whose words stand above, has failed.
    errors = [line for line in errors if not line.endswith("subprocess-exited-with-error")]
    return (errors or lines or ["no message"])[-1]


class _InstallParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        example = "python3 install.py --venv .venv --demo, or --help"
        print(f"install.py: {message}; try: {example}", file=sys.stderr)
        sys.exit(2)


def parse(arguments: list[str] | None, demo: Path) -> argparse.Namespace:
    """Read the command line; a mistake ends the process with one line."""
    parser = _InstallParser(
        prog="install.py", description="Install nsys-llm-recipes.", allow_abbrev=False
    )
    where, add = parser.add_mutually_exclusive_group(), parser.add_argument
    where.add_argument("--current", action="store_true", help="install into the Python run here")
    where.add_argument("--venv", metavar="DIR", help="install into this environment; make it first")
    where.add_argument("--uninstall", action="store_true", help="remove what the next one placed")
    where.add_argument(
        "--check", action="store_true", help="list what is installed and what is missing"
    )
    add("--nsys", metavar="DIR", nargs="?", const="", help="add the recipes to Nsight Systems")
    add("--find-links", metavar="DIR", help="install from this folder of wheels, without a network")
    add("--jupyter", action="store_true", help="install JupyterLab too, to open notebooks")
    add("--test", action="store_true", help="then run all checks of the project")
    add("--demo", action="store_true", help=f"then analyze a synthetic rank set, in ./{demo}")
    add("--quiet", action="store_true", help="show errors only")
    options = parser.parse_args(arguments)
    if mistake := _mistake(options):
        parser.error(mistake)
    return options


def _mistake(options: argparse.Namespace) -> str | None:
    given = {name for name, value in vars(options).items() if value not in (None, False)}
    if empty := [name for name in ("venv", "find_links") if getattr(options, name) == ""]:
        return f"--{empty[0].replace('_', '-')}: the name is empty"
    needs_package = given & {"find_links", "test", "demo", "jupyter"} or not (
        given & {"nsys", "check", "uninstall"}
    )
    if needs_package and not given & {"current", "venv"}:
        return "one of --current --venv is required"
    for name in ("test", "jupyter"):
        if given >= {"find_links", name}:
            return f"--{name}: what it needs is not among the wheels of --find-links"
    return None
