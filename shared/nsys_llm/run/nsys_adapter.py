"""The bridge to `nsys recipe`. The only module that imports `nsys_recipe`.

`RankRecipe` is what NVIDIA's loader finds in a recipe's script. It needs the base class
and nothing else of the framework; never its `data_service`, which is what ties Nsight
Systems 2023.4 to Python 3.11. Releases differ in what their base parser and context offer, so
presence is tested, not assumed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, ClassVar, Final

from nsys_llm.core.needed import missing

if lacks := missing():
    raise ImportError(lacks)

import nsys_recipe
from nsys_recipe.lib import recipe

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.limits import keep_freed
from nsys_llm.manifest.manifest import Manifest, load_manifest
from nsys_llm.manifest.options import add_options, resolved_options
from nsys_llm.run.dask_cluster import mute_dask
from nsys_llm.run.executors import WORKERS, DaskFutures, Executor, Inline, Threads
from nsys_llm.run.guard import RunOutcome, run_guarded
from nsys_llm.run.publish import ANALYSIS_SUFFIX
from nsys_llm.run.runner import run_recipe

#: Of linux/prctl.h: a signal to get when the parent ends.
_PR_SET_PDEATHSIG: Final = 1


class RankRecipe(recipe.Recipe):  # type: ignore[misc]
    """Base of the classes that NVIDIA's loader picks.

    A recipe's script holds one subclass and states the version that it was written for:

        class LlmHotspots(RankRecipe, recipe="llm_hotspots", version="1.0.0"): ...

    Raises:
        ImportError: The script belongs to another version of this package than the one imported.
    """

    manifest: ClassVar[Manifest]
    _output_is_plain: ClassVar[bool] = False
    _output_dir: str | None

    def __init_subclass__(cls, *, recipe: str, version: str) -> None:
        super().__init_subclass__()
        if version != __version__:
            raise ImportError(
                f"the recipe's script belongs to nsys-llm-recipes {version}, but {__version__} is "
                f"installed in {Path(__file__).parent}; remove one of the two, or install again."
            )
        cls.manifest = load_manifest(recipe)
        # The framework would otherwise cache the first class's name for all of them.
        cls.recipe_name = recipe

    @classmethod
    def get_argument_parser(cls) -> ArgumentParser:
        """Return NVIDIA's parser with our options, each only where it is not there already."""
        parser: ArgumentParser = super().get_argument_parser()
        # Where the framework has the option itself, it has replaced the patterns already.
        cls._output_is_plain = "--output" in parser._option_string_actions
        add_options(parser, cls.manifest)
        return parser

    def run(self, context: Any) -> None:
        """Run the recipe in one of NVIDIA's contexts.

        Raises:
            SystemExit: The run ended with something other than 0; nsys turns it into 1.
        """
        super().run(context)
        _end_with_launcher()
        console = Console(quiet=bool(self.get_parsed_arg("quiet")))

        def run() -> RunOutcome:
            keep_freed()
            names = [option.name for option in self.manifest.options]
            given = {name: self.get_parsed_arg(name) for name in names}
            if self._output_is_plain and given["output"]:
                given["output"] = given["output"].replace("%", "%%")
            # The `nsys` beside the framework that runs us.
            own = Path(nsys_recipe.__file__).resolve().parents[3] / "nsys"
            return run_recipe(
                self.manifest.name,
                resolved_options(self.manifest, given),
                _executor(context),
                console,
                nsys=str(own) if own.is_file() else None,
                analysis_record=self._analysis_dict,
            )

        outcome = run_guarded(console, run)
        if outcome.folder is not None:
            console.show(*outcome.summary, *outcome.next_line, "")
            # The launcher prints this on success.
            self._output_dir = os.path.relpath(outcome.folder)
            record = outcome.folder / f"{outcome.folder.name}{ANALYSIS_SUFFIX}"
            # Should the framework write the file again, it must say the same.
            self._analysis_dict = json.loads(record.read_text("utf-8"))
        if outcome.exit_code:
            if outcome.folder is not None:
                console.show("Generated:", f"    {self._output_dir}")
            raise SystemExit(int(outcome.exit_code))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Keep what was published: the framework would delete it on any exit but a clean one."""
        if kind is not None:
            self._output_dir = None
        super().__exit__(kind, error, trace)


def _executor(context: Any) -> Executor:
    """Return the executor for one of NVIDIA's contexts; modes go by name, never by value.

    Threads take the place of its pool of processes, which starts none until it is given work.
    """
    name = context.mode.name.replace("_", "-").lower()
    if name == "none":
        return Inline()
    if name == "dask-futures":
        from distributed import default_client

        mute_dask()
        # The context has made its client the default one, and set up its workers.
        return DaskFutures(default_client())
    return Threads(os.environ.get(WORKERS))


def _end_with_launcher() -> None:
    """Have this process terminated when `nsys` is, which does not hand on signals."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return
    launcher = os.getppid()

    def look(_: int, __: object) -> None:
        # Of a thread of the launcher that ended, the system speaks too.
        if os.getppid() != launcher:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGUSR1, look)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
