"""Which tests run when, and the fixtures that several files share.

CONTRIBUTING.md has the loop: `make quick`, `make check`, `make nightly`.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import quick_run
import results
from effort import LONGEST_S, MOST_CPU_S, PROFILES, SLOW, SLOW_FOLDERS, is_nightly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_ranks import write_small_ranks
from title_claims import Rows, check_title
from undrawn.sitecustomize import write_empty

from nsys_llm.report import drawing, run_findings
from nsys_llm.report.findings import Finding, finding_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared_runs import SharedRuns

    from nsys_llm.report.records import Tables

HERE = Path(__file__).parent
UNDRAWN = HERE / "undrawn"
#: Files there are in memory, on Linux.
MEMORY = Path("/dev/shm")
LEAST_BYTES = 8 << 30

# Before a test imports it by itself, with a grammar that takes longer than all of our modules.
drawing.nbformat()
_priced = run_findings.priced


def _checked(findings: Iterable[Finding], tables: Tables) -> list[Finding]:
    """Return findings with their prices, if the numbers that they say first are their subjects'.

    So that no world of any test has a title that is false.
    """
    every, rows = _priced(findings, tables), Rows(tables)
    for finding in every:
        check_title(finding_record(finding), rows)
    return every


run_findings.priced = _checked
# What is collected stays; see `pytest_collection_finish`.
gc.disable()

for _name, _examples_n in PROFILES.items():
    # Other work on the machine makes slow what is not.
    _slow = [HealthCheck.too_slow]
    settings.register_profile(
        _name, max_examples=_examples_n, deadline=None, suppress_health_check=_slow
    )
settings.load_profile("dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare --nightly and --shard."""
    parser.addoption(
        "--nightly", action="store_true", help="run what only `make nightly` runs, too"
    )
    parser.addoption("--shard", default="1/1", help="run a part of the files, such as 3/4")


def pytest_configure(config: pytest.Config) -> None:
    """Have temporary files, those of child processes too, in memory where there is room for them.

    On a disk that keeps a journal they take a third of the time. At night all findings are made.
    """
    quick_run.findings_at_once = config.getoption("--nightly")
    # A shell has what it starts in the background, and all that this starts, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def _has_room(folder: Path) -> bool:
    """Return whether files can be written and run there, as many as a run of all tests makes."""
    if not os.access(folder, os.W_OK):
        return False
    system = os.statvfs(folder)
    return not system.f_flag & os.ST_NOEXEC and system.f_bavail * system.f_frsize > LEAST_BYTES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by folder, leave out what is nightly, and begin with what takes longest."""
    at_night = config.getoption("--nightly")
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS:
            item.add_marker("slow")
        if at_night or any(map(item.get_closest_marker, SLOW)):
            item.add_marker(pytest.mark.timeout(LONGEST_S))
    part, parts_n = map(int, config.getoption("--shard").split("/"))
    kept = set(items if at_night else filterfalse(is_nightly, items))
    paths = set(sorted({item.path for item in items})[part - 1 :: parts_n])
    kept = {item for item in kept if item.path in paths}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: not any(map(item.get_closest_marker, SLOW)))


_NO_LIMIT = {"TESTED_COPY", "OTHER_LIBRARIES"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that takes long and has no mark that says so.

    CPU time, of its processes too: that of a test on a busy machine is hardly more.
    """
    began = os.times()
    result = yield
    took_s = sum(os.times()[:4]) - sum(began[:4])
    # Nor in a copy with a planted bug, which a busy machine would seem to notice, or with other
    # libraries, which the first tests compile.
    known = item.config.getoption("--nightly") or _NO_LIMIT & os.environ.keys()
    known = known or any(map(item.get_closest_marker, SLOW))
    if took_s > MOST_CPU_S and not known:
        pytest.fail(
            f"{took_s:.1f} s of CPU time: make it cheaper, or mark it `slow`", pytrace=False
        )
    return result


@settings(max_examples=1, database=None)
@given(st.tuples(st.integers(), st.text()))
def _draw(_: object) -> None:
    """Draw once: in a new place hypothesis begins with seconds of reading modules and Unicode."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Do once what no test shall be charged for.

    And take thousands of tests out of what the garbage collector looks through again and again.
    """
    if any(item.get_closest_marker("hypothesis") for item in session.items):
        _draw()
    gc.freeze()
    # Data frames are many objects and few cycles: with Python's 700 it takes a tenth of a run.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _undrawn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have the runs of files without the mark, here and in processes, write an empty notebook.

    Tests there look at tables, report.json, verdicts and messages, and to draw takes half of the
    time of a run over a few kernels, a third of that of a process.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("drawn"):
            from nsys_llm.report import report_files

            patch.setattr(report_files, "write_notebook", write_empty)
            patch.setattr(results, "paths_of_children", (str(UNDRAWN),))
        yield


@pytest.fixture(scope="session")
def nsys() -> str:
    """The real `nsys` executable, or a skip."""
    executable = os.environ.get("NSYS_LLM_TEST_NSYS") or shutil.which("nsys")
    if not executable or not Path(executable).exists():
        pytest.skip("no Nsight Systems: set NSYS_LLM_TEST_NSYS to its nsys, or put it on PATH")
    return executable


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces, or a skip."""
    folder = os.environ.get("NSYS_LLM_TEST_TRACES")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no real traces: set NSYS_LLM_TEST_TRACES to their folder")
    return Path(folder)


@pytest.fixture
def rank_set(tmp_path: Path) -> Path:
    """Two ranks with hand-computable kernels: rank0 a=5,7 b=4 ns; rank1 a=9 ns, c=6 ns."""
    return write_small_ranks(tmp_path / "ranks")


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> SharedRuns:
    """Runs that several files look at; see `tests/shared_runs.py`."""
    from shared_runs import SharedRuns

    base = tmp_path_factory.getbasetemp()
    # Each process of pytest-xdist has a folder of its own in that of the session.
    return SharedRuns((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared")
