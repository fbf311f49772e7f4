"""The command `nsys-llm`: the recipes without Nsight Systems' own launcher."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.manifest.options import add_options, resolved_options
from nsys_llm.run.executors import MODES, open_executor
from nsys_llm.run.guard import RunOutcome, run_guarded


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `nsys-llm`, one subcommand a recipe, derived from the manifests."""
    parser = argparse.ArgumentParser(
        prog="nsys-llm",
        description="Explain LLM traces of NVIDIA Nsight Systems, over all ranks at once.",
        epilog="Exit codes: 0 done, 1 a gate failed, 2 bad usage or nothing readable, "
        "3 incomplete or not comparable, 4 our fault.",
    )
    parser.add_argument("--version", action="version", version=f"nsys-llm-recipes {__version__}")
    commands = parser.add_subparsers(dest="recipe", metavar="RECIPE", required=True)
    for name in recipe_names():
        manifest = load_manifest(name)
        command = commands.add_parser(name, help=manifest.title, description=manifest.description)
        add_options(command, manifest)
        context = command.add_argument_group("Context")
        context.add_argument(
            "--mode",
            choices=MODES,
            default=MODES[0],
            help="concurrent: threads of this process; none: one report after the other; "
            f"dask-futures: a Dask cluster. Default: {MODES[0]}.",
        )
        context.add_argument(
            "--scheduler-file",
            metavar="FILE",
            help="Where a Dask scheduler wrote how to reach it, for --mode dask-futures.",
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `nsys_llm.core.errors.ExitCode`."""
    given = vars(build_parser().parse_args(arguments))
    console = Console(quiet=bool(given["quiet"]))

    def run() -> RunOutcome:
        # After the options are found right: it brings pandas and pyarrow, 0.3 s.
        from nsys_llm.run.runner import run_recipe

        options = resolved_options(load_manifest(given["recipe"]), given)
        with open_executor(given["mode"], given["scheduler_file"]) as executor:
            return run_recipe(given["recipe"], options, executor, console)

    outcome = run_guarded(console, run)
    if outcome.folder is not None:
        console.show(*outcome.summary, "", "Generated:", f"    {outcome.folder}")
    return int(outcome.exit_code)


if __name__ == "__main__":
    sys.exit(main())
