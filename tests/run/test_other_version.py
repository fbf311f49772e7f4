"""Workers of another version of this package: refused in one line, before they change a number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dask_cluster import scheduler, worker
from results import RECIPE
from trace_builder import TraceBuilder

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.run.cli import main
from nsys_llm.run.dask_cluster import DaskErrors, refuse_other_versions

pytestmark = pytest.mark.slow

#: What a worker does before its first task, and what the line says of it.
WORKERS = {
    "version": ("import nsys_llm; nsys_llm.__version__ = '0.0.9'", "nsys-llm-recipes 0.0.9"),
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


@pytest.mark.nightly("not installed")
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
    said = r"tcp://node7:1 has nsys-llm-recipes 0\.0\.1, but this"
    with pytest.raises(UsageError, match=said), DaskErrors(Cluster("0.0.1")):
        raise TypeError("map_profiles() got an unexpected keyword argument")
    with pytest.raises(TypeError, match="of our own"), DaskErrors(Cluster(__version__)):
        raise TypeError("of our own")
    with pytest.raises(UsageError, match="no such range"), DaskErrors(Cluster("0.0.1")):
        raise UsageError("no such range")
    # The cluster does not answer any more: what went wrong before is what there is to tell.
    with pytest.raises(TypeError, match="of our own"), DaskErrors(Cluster(TimeoutError("late"))):
        raise TypeError("of our own")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ModuleNotFoundError("No module named 'nsys_llm'"), r"nsys-llm-recipes \(not installed\)"),
        (SystemError("unknown opcode"), r"cannot say which .* \(SystemError\); install"),
    ],
)
def test_a_worker_that_cannot_be_asked_is_not_said_to_lack_the_package(raised, said):
    with pytest.raises(UsageError, match=rf"the worker at tcp://node7:1 .*{said}"):
        refuse_other_versions(Cluster(raised))
