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
