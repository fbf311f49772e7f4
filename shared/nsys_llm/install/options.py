"""The command line of install.py.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn


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
    where.add_argument("--tar", action="store_true", help="write all wheels to an archive here")
    where.add_argument("--uninstall", action="store_true", help="remove what the next one placed")
    where.add_argument(
        "--check", action="store_true", help="list what is installed and what is missing"
    )
    add("--nsys", metavar="DIR", nargs="?", const="", help="add the recipes to Nsight Systems")
    add("--untar", metavar="FILE", help="install from what --tar wrote, without a network")
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
    if empty := [name for name in ("venv", "untar") if getattr(options, name) == ""]:
        return f"--{empty[0]}: the name is empty"
    needs_package = given & {"untar", "test", "demo", "jupyter"} or not (
        given & {"nsys", "tar", "check", "uninstall"}
    )
    if needs_package and not given & {"current", "venv"}:
        return "one of --current --venv is required"
    if given >= {"tar", "nsys"}:
        return "not allowed with --tar"
    for name in ("test", "jupyter"):
        if given >= {"untar", name}:
            return f"--{name}: what it needs is not in the archive of --untar"
    return None
