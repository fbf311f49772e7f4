"""Stand-ins for other releases of NVIDIA's framework run the recipes.

Written from what is documented of them, not from their code: names of the base class and of the
parser, the modes, the order in which recipes are searched, who writes which key.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import results
from effort import nightly_but
from results import RECIPES_FOLDER, analyse, assert_same, only_tables, run

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.testing.trace_schema import frameworks

pytestmark = pytest.mark.slow

#: `lib/args.py`: what the base parser has is the difference between the releases.
ARGS = """
import argparse

class ArgumentParser(argparse.ArgumentParser):
    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.recipe_group = self.add_argument_group("Recipe")
        for option in BASE_OPTIONS:
            flag = option == "--force-overwrite"
            # The real ones replace the patterns of --output while parsing; %% is one of them.
            plain = lambda text: text.replace("%%", "%")
            extra = {"action": "store_true"} if flag else {"type": plain}
            self.add_recipe_argument(option, help="NVIDIA's " + option, **extra)

    def add_recipe_argument(self, option, *words, **keywords):
        self.add_argument_to_group(self.recipe_group, option, *words, **keywords)

    def add_argument_to_group(self, group, option, *words, **keywords):
        group.add_argument(option, *words, **keywords)

    def add_context_arguments(self):
        from nsys_recipe.lib.recipe import Mode
        names = [mode.name.replace("_", "-").lower() for mode in Mode]
        group = self.add_argument_group("Context")
        group.add_argument("--mode", choices=names, default=DEFAULT_MODE)
"""

#: `lib/recipe.py`: modes have other values than in 2023.4, and `launch` gives a future.
RECIPE = """
import inspect, json, os, shutil
from concurrent.futures import ProcessPoolExecutor
from enum import Enum
from nsys_recipe.lib import args

Mode = Enum("Mode", MODES)

class Context:
    mode = None
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
    @classmethod
    def create_context(cls, name):
        mode = Mode[name.replace("-", "_").upper()]
        inline = mode.name == "NONE" or (mode.name == "UNSET" and not POOL_FOR_UNSET)
        context = ContextNone() if inline else ContextConcurrent()
        if mode.name == "DASK_FUTURES":
            context = ContextDaskFutures()
        context.mode = mode
        return context

class ContextNone(Context):
    def launch(self, function, *words, **keywords):
        return function(*words, **keywords)
    def map(self, function, *iterables, **keywords):
        return [function(*words, **keywords) for words in zip(*iterables)]
    def wait(self, waitable):
        return waitable

class ContextConcurrent(Context):
    def __init__(self):
        self._pool = ProcessPoolExecutor(2)
    def __exit__(self, *_):
        self._pool.shutdown()
    def launch(self, function, *words, **keywords):
        return self._pool.submit(function, *words, **keywords)
    def map(self, function, *iterables, **keywords):
        return [self.launch(function, *words, **keywords) for words in zip(*iterables)]
    def wait(self, waitable):
        return [one.result() for one in waitable] if isinstance(waitable, list) else (
            waitable.result())

class ContextDaskFutures(Context):
    def __init__(self):
        import distributed
        cluster = distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=None)
        self._client = distributed.Client(cluster)
    def __exit__(self, *_):
        self._client.shutdown()
    def launch(self, function, *words, **keywords):
        return self._client.submit(function, *words, **keywords)
    def map(self, function, *iterables, **keywords):
        return self._client.map(function, *iterables, **keywords)
    def wait(self, waitable):
        return self._client.gather(waitable)

class Recipe:
    recipe_dir = recipe_name = metadata_dict = None

    def __init__(self, parsed_args):
        self._parsed_args = parsed_args
        self._output_dir, self._output_files, self._analysis_dict = None, {}, {}
    def __enter__(self):
        return self
    def __exit__(self, kind, error, trace):
        if self.output_dir is not None and kind is not None:
            shutil.rmtree(self._output_dir)
    @property
    def output_dir(self):
        return self._output_dir
    def get_parsed_arg(self, name, default=None):
        return getattr(self._parsed_args, name, default)
    def run(self, context):
        self._analysis_dict = {"RecipeName": self.get_recipe_name(), **FRAMEWORK_KEYS}
        self._analysis_dict["DisplayName"] = self.get_metadata("display_name")
        self._analysis_dict["Mode"] = context.mode.name.lower().replace("_", "-")
    @classmethod
    def get_recipe_name(cls):
        return cls.recipe_name
    @classmethod
    def get_metadata(cls, key):
        if cls.metadata_dict is None:
            folder = os.path.dirname(inspect.getmodule(cls).__file__)
            with open(os.path.join(folder, "metadata.json")) as file:
                cls.metadata_dict = json.load(file)
        return cls.metadata_dict[key]
    @classmethod
    def get_argument_parser(cls):
        description = cls.get_metadata("description")
        return args.ArgumentParser(prog=cls.get_recipe_name(), description=description)
"""

#: `__main__.py`: the search order differs, and who fills in the mode.
MAIN = """
import importlib, json, os, sys
from nsys_recipe.lib import recipe

def find(name):
    own = [os.path.join(os.path.dirname(__file__), "recipes")]
    custom = os.environ.get("NSYS_RECIPE_PATH", "").split(os.pathsep)
    for folder in [*custom, "", *own] if CUSTOM_FIRST else [*own, "", *custom]:
        path = os.path.join(folder, name, "metadata.json")
        if os.path.exists(path):
            with open(path) as file:
                metadata = json.load(file)
            sys.path.insert(0, folder)
            module = importlib.import_module(name + "." + metadata["module_name"])
            return getattr(module, metadata["class_name"])
    sys.exit("Unknown recipe.")

recipe_class = find(sys.argv[1])
parser = recipe_class.get_argument_parser()
parser.add_context_arguments()
parsed = parser.parse_args(sys.argv[2:])
with recipe.Context.create_context(parsed.mode) as context:
    with recipe_class(parsed) as made:
        made.run(context)
print("Generated:", made.output_dir)
"""

OLDER = {
    "BASE_OPTIONS": [],
    "DEFAULT_MODE": "concurrent",
    "MODES": ["NONE", "CONCURRENT", "DASK_FUTURES"],
    "POOL_FOR_UNSET": False,
    "CUSTOM_FIRST": False,
    "FRAMEWORK_KEYS": {"RecipeJsonVersion": "1.2.0", "StartTime": "now"},
}
NEWER = {
    "BASE_OPTIONS": ["--output", "--force-overwrite", "--export-dir"],
    "DEFAULT_MODE": "unset",
    "MODES": ["UNSET", "DASK_FUTURES", "CONCURRENT", "NONE"],
    "POOL_FOR_UNSET": True,
    "CUSTOM_FIRST": True,
    "FRAMEWORK_KEYS": {"RecipeVersion": "9.9", "Options": {"mode": "unset"}, "StartTime": "now"},
}
RELEASES = {
    "2023.4": OLDER,
    # The helpers moved to other modules, the base parser did not change yet.
    "2024.3": {**OLDER, "MODES": ["CONCURRENT", "NONE", "DASK_FUTURES"]},
    "2024.6": {**NEWER, "BASE_OPTIONS": ["--output", "--force-overwrite"]},
    # What both ends have, mixed: the parser of 2024.6, and the modes and the order of 2023.4.
    "2025": {**OLDER, "BASE_OPTIONS": ["--output", "--force-overwrite"], "CUSTOM_FIRST": True},
    "2026": NEWER,
    "2026, unset in line": {**NEWER, "POOL_FOR_UNSET": False},
}
CASES = [
    ("llm_hotspots", release, mode)
    for release in RELEASES
    for mode in ("none", "concurrent", "unset", None)
    if mode is None or mode.upper() in RELEASES[release]["MODES"]
]
CASES += [("llm_hotspots", "2026", "dask-futures")]
# The other recipes on each release, each with another mode; what they share is tested above.
MODES = ("none", "concurrent", None)
OTHERS = [name for name in recipe_names() if name != "llm_hotspots"]
CASES += [
    (recipe, framework.release, MODES[(place + number) % len(MODES)])
    for number, recipe in enumerate(OTHERS)
    for place, framework in enumerate(frameworks())
]
# For every commit the newest, in two ways, and two sides; releases differ in their parsers only.
IN_CI = [
    ("llm_hotspots", "2026", "dask-futures"),
    ("llm_hotspots", "2026, unset in line", "unset"),
    next(case for case in CASES if case[:2] == ("trace_diff", "2024.3")),
]
#: The parser of Nsight Systems 2023.4 declares nothing of its own, that of 2026 the most; what the
#: real 2023.4.4 does is tested beside.
ENDS = nightly_but(RELEASES, ["2026"])


def install(folder: Path, release: str) -> Path:
    """Write the stand-in of a release as Nsight Systems has it, and return its packages folder."""
    packages = folder / "target-linux-x64" / "python" / "packages"
    package = packages / "nsys_recipe"
    (package / "lib").mkdir(parents=True)
    settings = "".join(f"{name} = {value!r}\n" for name, value in RELEASES[release].items())
    files = {
        "__init__.py": "",
        "__main__.py": settings + MAIN,
        "lib/__init__.py": "",
        "lib/args.py": settings + ARGS,
        "lib/recipe.py": settings + RECIPE,
        # It cannot be imported everywhere in 2023.4, and differs most between the releases.
        "data_service.py": "raise SystemExit('data_service was imported')",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    return packages


def under(
    packages: Path, cwd: Path, *words: str | Path, recipe: str = "llm_hotspots", **changes: str
):
    """Run a recipe under a stand-in, from a folder of its own."""
    paths = os.pathsep.join([*results.paths_of_children, str(packages)])
    places = {"PYTHONPATH": paths, "NSYS_RECIPE_PATH": str(RECIPES_FOLDER), **changes}
    return run([sys.executable, "-m", "nsys_recipe", recipe, *words], cwd, **places)


def test_a_stand_in_is_there_for_each_release_that_is_said_to_be_tested():
    assert {framework.release for framework in frameworks()} <= RELEASES.keys()


@pytest.mark.nightly("llm_hotspots-2026-dask-futures", "trace_diff-2024.3-none")
@pytest.mark.parametrize(("recipe", "release", "mode"), nightly_but(CASES, IN_CI))
def test_the_recipe_gives_the_same_tables(recipe, release, mode, rank_set, tmp_path):
    packages = install(tmp_path / "nsight", release)
    inputs = [rank_set, rank_set] if load_manifest(recipe).sided else [rank_set]
    words = ["--input", *inputs, "--output", "out", *(["--mode", mode] if mode else [])]
    done = under(packages, tmp_path, *words, recipe=recipe)
    assert done.returncode == 0, done.stdout
    assert done.stdout.split()[-2:] == ["Generated:", "out"]
    # Tables of a second look at the profiles are those of whole runs only.
    alone = analyse if load_manifest(recipe).recipes else only_tables
    assert_same(tmp_path / "out", alone(tmp_path / "alone", *inputs, recipe=recipe), recipe=recipe)
    record = json.loads((tmp_path / "out" / "out.nsys-analysis").read_text())
    assert record["Mode"] == (mode or RELEASES[release]["DEFAULT_MODE"])
    # What the framework says stays, and so does what it takes us to name our results.
    kept = {**RELEASES[release]["FRAMEWORK_KEYS"], "RecipeName": recipe}
    kept.pop("RecipeVersion", None)
    assert {name: record[name] for name in kept} == kept
    assert "coverage.parquet" in record["Outputs"]


@pytest.mark.nightly("2023.4")
@pytest.mark.parametrize("release", nightly_but(RELEASES, ["2023.4", "2026"]))
def test_no_option_is_declared_twice_and_none_is_missing(release, tmp_path):
    done = under(install(tmp_path / "nsight", release), tmp_path, "--help")
    assert done.returncode == 0, done.stdout
    # Below the usage, where a required option may begin a line as well.
    explained = done.stdout.partition("\noptions:\n")[2]
    listed = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", explained, re.MULTILINE)
    declared = [option.flag for option in load_manifest("llm_hotspots").options]
    assert sorted(listed) == sorted([*declared, "--help", "--mode"])
    theirs = re.findall(r"NVIDIA's +(--[a-z-]+)", done.stdout)
    assert theirs == RELEASES[release]["BASE_OPTIONS"]


@pytest.mark.parametrize("release", ENDS)
def test_a_pattern_of_the_output_is_replaced_once(release, rank_set, tmp_path):
    packages = install(tmp_path / "nsight", release)
    done = under(packages, tmp_path, "--input", rank_set, "--output", "out-%%p")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out-%p" / "kernels.parquet").exists()
