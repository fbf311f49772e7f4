"""The command `nsys-llm`: the recipes without Nsight Systems' own launcher."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, OutputError, UsageError
from nsys_llm.manifest.manifest import load_manifest, recipe_names, recipe_question
from nsys_llm.manifest.options import add_options, resolved_options
from nsys_llm.run.executors import MODES, open_executor
from nsys_llm.run.guard import RunOutcome, run_guarded

#: The short command, and the recipe that it runs.
_OVERVIEW: Final = "overview"
_OVERVIEW_RECIPE: Final = "llm_overview"
_LAST_N: Final = 5
_SHOWN_ROWS_N: Final = 20
#: New objects after which Python looks for cycles: rows are many, and have none.
_OBJECTS_N: Final = 100_000


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the thirty options that are right."""

    def error(self, message: str) -> NoReturn:
        shown = message.rstrip(".")
        Console().error(f"{shown} ({self.prog} --help lists the options).")
        sys.exit(ExitCode.BAD_INPUT)

    def _print_message(self, message: str, file: Any = None) -> None:
        # Help and version; argparse itself drops what standard output does not take.
        try:
            Console().show(message.removesuffix("\n"))
        except OutputError as error:
            Console().error(error.message)
            sys.exit(ExitCode.BAD_INPUT)


def build_parser(asked: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of `nsys-llm`, one subcommand a recipe, derived from the manifests.

    Args:
        asked: The subcommand that will be parsed, made alone where there is one of that name; else
            all are there, without their options. None: all of them whole.
    """
    parser = _Parser(
        prog="nsys-llm",
        description="Explain LLM traces from NVIDIA Nsight Systems, across all ranks at once.",
        epilog="Exit codes: 0 done, 1 a gate failed, 2 bad usage or nothing readable, "
        "3 incomplete or not comparable, 4 internal error.",
    )
    parser.add_argument("--version", action="version", version=f"nsys-llm-recipes {__version__}")
    commands = parser.add_subparsers(dest="recipe", metavar="COMMAND", required=True)
    recipes = {_OVERVIEW: _OVERVIEW_RECIPE, **{name: name for name in recipe_names()}}
    names = [*recipes, *_OTHERS]
    for name in [asked] if asked in names else names:
        if name in _OTHERS:
            shown, add = _OTHERS[name]
            add(commands.add_parser(name, help=shown, description=shown))
            continue
        recipe = recipes[name]
        short = recipe_question(recipe) + (f" Short for {recipe}." if name != recipe else "")
        command = commands.add_parser(name, help=short)
        if asked in (None, name):
            command.description = short if name != recipe else load_manifest(recipe).description
            command.epilog = f"{command.prog} PATH... is short for {command.prog} --input PATH..."
            _add_recipe(command, recipe)
    return parser


def _add_recipe(command: argparse.ArgumentParser, recipe: str) -> None:
    add_options(command, load_manifest(recipe))
    context = command.add_argument_group("Context")
    context.add_argument(
        "--mode",
        choices=MODES,
        default=MODES[0],
        help="concurrent: threads of this process; none: one profile at a time; "
        f"dask-futures: a running Dask cluster. Default: {MODES[0]}.",
    )
    context.add_argument(
        "--scheduler-file",
        metavar="FILE",
        help="Scheduler file of that cluster. Default: DASK_SCHEDULER_ADDRESS.",
    )


def _add_show(command: argparse.ArgumentParser) -> None:
    command.add_argument("result", metavar="RESULT", help="Output folder of a run.")
    command.add_argument(
        "what",
        nargs="?",
        metavar="FINDING|TABLE",
        help="A finding's number, or a table. In an overview also a recipe's table, as "
        "RECIPE/TABLE if the name is ambiguous. Default: the answer and the findings.",
    )
    command.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="Only rows that match: 'rank = 2', 'gain_pct >= 3', 'name ~ TEXT' (a part of the name "
        "in any case, or re:EXPRESSION). Repeatable.",
    )
    command.add_argument(
        "--columns", metavar="NAMES", help="Only these columns, comma separated, in this order."
    )
    command.add_argument(
        "--sort",
        metavar="COLUMN",
        help="Rows by this column, the largest first; COLUMN:up has the smallest first.",
    )
    command.add_argument(
        "--top",
        "--rows",
        type=int,
        default=_SHOWN_ROWS_N,
        metavar="N",
        help=f"Rows. Default: {_SHOWN_ROWS_N}.",
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="JSON, for programs.")
    form.add_argument("--csv", action="store_true", help="Rows of a table as CSV.")


def _add_trend(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="Results of llm_overview, oldest first, or folders of results, sorted by name. "
        "report.json and ranks.parquet of each are enough.",
    )
    command.add_argument(
        "--last",
        type=int,
        default=_LAST_N,
        metavar="N",
        help=f"Number of runs before the newest for the noise band. Default: {_LAST_N}.",
    )
    command.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="METRIC:+LIMIT",
        help="Fail (exit 1) if the newest run is worse than their mean by more than this and by "
        "more than their noise: step:+3%%, idle:+1ms. Repeatable; @FILE reads a file.",
    )
    command.add_argument(
        "--gate-if",
        choices=("sure", "probably"),
        default="sure",
        help="Certainty that a failed gate needs for exit 1. With fewer than 3 runs before the "
        "newest, the result is fail (probably). Default: sure.",
    )
    command.add_argument(
        "--output", metavar="DIR", help="New folder for trend.parquet, trend.html and verdict.json."
    )


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("paths", nargs="+", metavar="PATH", help="Profiles or their folders.")
    command.add_argument(
        "--export-dir",
        metavar="DIR",
        help="Folder for the exports of .nsys-rep and .qdrep files. Default: beside the profile.",
    )


def _add_mcp(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="Folders that the tools may read; new results are written to the first.",
    )


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder",
        nargs="?",
        default="nsys-llm-demo",
        metavar="FOLDER",
        help="For the profiles and the result. Default: nsys-llm-demo.",
    )
    # What stands before the command: install.py does not put it on the PATH.
    command.add_argument("--commands", default="", help=argparse.SUPPRESS)


#: Commands that are no recipe, with what they do and their arguments.
_OTHERS: Final = {
    "show": ("Show a result: its findings, one of them, or rows of a table.", _add_show),
    "trend": ("Compare the newest run with earlier ones: one table and a verdict.", _add_trend),
    "check": (
        "Show what captures contain and lack, and how to record the rest next time.",
        _add_check,
    ),
    "mcp": ("Serve five tools to agents over the Model Context Protocol (stdin).", _add_mcp),
    "demo": ("Write profiles of a synthetic server with 4 GPUs, and analyze them.", _add_demo),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `nsys_llm.core.errors.ExitCode`."""
    _fill_closed()
    given = vars(_parsed(arguments))
    if given["recipe"] == "demo":
        from nsys_llm.run.demo import demo

        return demo(Path(given["folder"]), given["commands"])
    console = Console(quiet=bool(given.get("quiet")))
    outcome = run_guarded(console, lambda: _run(given, console))
    if outcome.folder is not None:
        results = ("", "Generated:", f"    {outcome.folder}")
        console.show(*outcome.summary, *results, *outcome.next_line)
    return int(outcome.exit_code)


def _fill_closed() -> None:
    """Put /dev/null where a standard stream is closed: else the next file takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    words = list(sys.argv[1:] if arguments is None else arguments)
    named = words[:1] in [[name] for name in (_OVERVIEW, *recipe_names())]
    if named and "--input" not in words and len(words) > 1 and not words[1].startswith("-"):
        # Paths directly after a recipe's name are its input; its parser asks for the option.
        words.insert(1, "--input")
    return build_parser(words[0] if words else "").parse_args(words)


def _run(given: Mapping[str, Any], console: Console) -> RunOutcome:
    # After the options are found right: these bring pandas and pyarrow, 0.3 s.
    if given["recipe"] in ("show", "check", "trend"):
        command = getattr(import_module(f"nsys_llm.run.{given['recipe']}"), given["recipe"])
        outcome: RunOutcome = command(given, console)
        return outcome
    if given["recipe"] == "mcp":
        try:
            from nsys_llm.run.agent_server import serve
        except ImportError as error:
            raise UsageError(
                "nsys-llm mcp needs the Python SDK: pip install 'mcp>=2,<3'."
            ) from error
        return serve(given)
    from nsys_llm.core.limits import keep_freed
    from nsys_llm.run.runner import run_recipe

    keep_freed()
    gc.set_threshold(_OBJECTS_N, 50, 100)
    recipe = _OVERVIEW_RECIPE if given["recipe"] == _OVERVIEW else given["recipe"]
    options = resolved_options(load_manifest(recipe), given)
    with open_executor(given["mode"], given["scheduler_file"]) as executor:
        return run_recipe(recipe, options, executor, console)


if __name__ == "__main__":
    sys.exit(main())
