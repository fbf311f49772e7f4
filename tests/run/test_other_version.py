"""Workers of another version of this package: refused in one line, before they change a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dask_cluster import scheduler, worker
from results import RECIPE
from trace_builder import TraceBuilder

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.manifest import manifest as manifests
from nsys_llm.manifest.manifest import load_manifest, manifest_texts, recipe_names
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.run import code_stamp as stamps
from nsys_llm.run.cli import main
from nsys_llm.run.code_stamp import code_stamp, refuse_other_code
from nsys_llm.run.dask_errors import DaskErrors, refuse_other_versions
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.trace.outcomes import MapResult

pytestmark = pytest.mark.slow

OPTIONS = resolved_options(load_manifest(RECIPE), {})

#: What a worker does before its first task, and what the line says of it.
WORKERS = {
    "version": ("import nsys_llm; nsys_llm.__version__ = '0.0.9'", "nsys-llm-recipes 0.0.9"),
    "manifest": (
        "from nsys_llm.manifest import manifest\n"
        "manifest.manifest_texts = lambda recipe: ('others',)",
        f"nsys-llm-recipes {__version__} (",
    ),
    "before there were versions in tasks": (
        "import nsys_llm; nsys_llm.__version__ = '0.0.1'\n"
        "from nsys_llm.run import worker\n"
        "worker.map_profiles = lambda profiles, *, recipe, options, only=None: None",
        "nsys-llm-recipes 0.0.1",
    ),
    "not installed": (
        "import sys\n"
        "for name in ['nsys_llm', *filter(lambda n: n.startswith('nsys_llm.'), sys.modules)]:\n"
        "    sys.modules[name] = None",
        "nsys-llm-recipes (not installed)",
    ),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Iterator[Path]:
    with scheduler(tmp_path_factory.mktemp("cluster") / "scheduler") as file:
        yield file


@pytest.fixture
def ranks(tmp_path) -> list[Path]:
    files = [tmp_path / f"rank{rank}.sqlite" for rank in range(3)]
    for rank, path in enumerate(files):
        report = TraceBuilder().kernel("k", start_ns=5, duration_ns=rank + 1, launch=(0, 1))
        report.write_sqlite(path)
    return files


@pytest.mark.nightly("manifest", "not installed")
@pytest.mark.cluster
@pytest.mark.parametrize("case", WORKERS)
def test_a_worker_of_another_version_is_refused_in_one_line(file, ranks, case, tmp_path, capsys):
    code, said = WORKERS[case]
    preload = tmp_path / "other.py"
    preload.write_text(code)
    words = ["--mode", "dask-futures", "--scheduler-file", file, "--output", tmp_path / "out"]
    with worker(tmp_path / "worker", file, "--preload", preload):
        assert main([RECIPE, *map(str, [*words, "--input", *ranks])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert __version__ in line.split("this command is")[1]
    assert not (tmp_path / "out").exists()


def test_a_task_of_another_version_is_refused(ranks):
    profiles = [ProfileInput(str(ranks[0]), "rank0")]
    with pytest.raises(UsageError, match=r"and this command is 9\.9\.9 \(0123\)"):
        map_profiles(profiles, recipe=RECIPE, options=OPTIONS, asked_by="9.9.9 (0123)")
    result = map_profiles(profiles, recipe=RECIPE, options=OPTIONS, asked_by=code_stamp(RECIPE))
    assert result.made_by == {code_stamp(RECIPE)}


class Cluster:
    """A client of one worker, of some version, or which raises that."""

    status = "running"

    def __init__(self, version: str | Exception) -> None:
        self.version = version

    def run(self, function, package, on_error):
        if isinstance(self.version, OSError):
            raise self.version
        return {"tcp://node7:1": self.version}


def test_what_a_worker_of_another_version_raises_is_told_as_that():
    # It came after the first look, and its functions take other arguments.
    said = r"tcp://node7:1 has nsys-llm-recipes 0\.0\.1, and this"
    with pytest.raises(UsageError, match=said), DaskErrors(Cluster("0.0.1")):
        raise TypeError("map_profiles() got an unexpected keyword argument")
    with pytest.raises(TypeError, match="of our own"), DaskErrors(Cluster(__version__)):
        raise TypeError("of our own")
    with pytest.raises(UsageError, match="no such range"), DaskErrors(Cluster("0.0.1")):
        raise UsageError("no such range")
    # The cluster does not answer any more: what went wrong before is what there is to tell.
    with pytest.raises(TypeError, match="of our own"), DaskErrors(Cluster(TimeoutError("late"))):
        raise TypeError("of our own")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ModuleNotFoundError("No module named 'nsys_llm'"), r"nsys-llm-recipes \(not installed\)"),
        (
            SystemError("unknown opcode"),
            r"cannot say which .* \(SystemError\); install",
        ),
    ],
)
def test_a_worker_that_cannot_be_asked_is_not_said_to_lack_the_package(raised, said):
    with pytest.raises(UsageError, match=rf"the worker at tcp://node7:1 .*{said}"):
        refuse_other_versions(Cluster(raised))


def test_whoever_mapped_or_merged_any_of_it_is_told_in_any_order(ranks):
    ours, other = (
        map_profiles([ProfileInput(str(path), path.stem)], recipe=RECIPE, options=OPTIONS)
        for path in ranks[:2]
    )
    refuse_other_code(merge_results([ours, other], recipe=RECIPE).made_by, RECIPE)
    theirs = replace(other, made_by=frozenset({"0.0.9 (abc)"}))
    for parts in ([ours, theirs], [theirs, ours], [merge_results([theirs], recipe=RECIPE), ours]):
        merged = merge_results(parts, recipe=RECIPE)
        assert merged.made_by == {code_stamp(RECIPE), "0.0.9 (abc)"}
        with pytest.raises(UsageError, match=r"0\.0\.9 \(abc\)"):
            refuse_other_code(merged.made_by, RECIPE)
    # Nobody's result is the identity, also here.
    nothing = MapResult((), ours.partial, frozenset())
    assert merge_results([nothing, ours], recipe=RECIPE).made_by == ours.made_by


@pytest.mark.parametrize("recipe", recipe_names())
def test_the_stamp_is_of_every_manifest_that_the_recipe_is_built_from(recipe, monkeypatch):
    stamp, read = code_stamp(recipe), manifests._read_text
    parts = {"common", recipe, *load_manifest(recipe).recipes}
    assert len(parts) == 2 or recipe == "llm_overview"
    for changed in (*recipe_names(), "common"):
        monkeypatch.setattr(
            manifests,
            "_read_text",
            lambda name, changed=changed: read(name) + " " * (name == changed),
        )
        stamps.code_stamp.cache_clear()
        assert (code_stamp(recipe) != stamp) == (changed in parts)
    monkeypatch.undo()
    stamps.code_stamp.cache_clear()
    assert len(manifest_texts(recipe)) == len(parts)
