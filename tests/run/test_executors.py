"""Every executor is used in the same way, and merges the same."""

from __future__ import annotations

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from results import run

from nsys_llm.core.errors import UsageError
from nsys_llm.run import executors
from nsys_llm.run.executors import (
    WORKERS,
    Executor,
    Inline,
    Threads,
    chunked,
    open_executor,
)


class Backwards(Executor):
    """Merges what ended last first, as a cluster may."""

    mode = "backwards"

    @property
    def workers_n(self):
        return 3

    def reduce(self, function, chunks, merge, done):
        with ThreadPoolExecutor(3) as threads:
            parts = list(threads.map(function, reversed(chunks)))
        for chunk in chunks:
            done(len(chunk))
        return merge([merge(parts[:1]), merge(parts[1:])])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("executor", [Inline(), Threads(), Backwards()])
def test_each_maps_every_chunk_once_and_counts_it(executor, seed):
    rng = random.Random(seed)
    items = [rng.randrange(1_000) for _ in range(rng.randint(1, 40))]
    chunks = chunked(items, rng.randint(1, 6))
    seen, counted, lock = [], [], threading.Lock()

    def function(chunk):
        with lock:
            seen.extend(chunk)
        return sum(chunk)

    assert executor.reduce(function, chunks, sum, counted.append) == sum(items)
    assert sorted(seen) == sorted(items)
    assert sorted(counted) == sorted(map(len, chunks))
    assert executor.workers_n >= 1


def test_threads_are_as_many_as_the_launcher_is_told_to_use(monkeypatch):
    assert Threads("3").workers_n == 3
    assert Threads("").workers_n == Threads(None).workers_n
    for text in ("abc", "0", "-1", "1.5"):
        with pytest.raises(UsageError, match=rf"^{WORKERS}: '{text}' is not a number above 0\.$"):
            Threads(text)
    # It speaks of the launcher's workers: the command has its own words for that.
    monkeypatch.setenv(WORKERS, "abc")
    assert Threads().workers_n >= 1


def test_without_dask_its_mode_says_what_to_install(monkeypatch):
    monkeypatch.setattr(executors, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="pip install dask distributed"):
        open_executor("dask-futures", None).__enter__()


def test_threads_need_nothing_of_a_cluster(tmp_path):
    # To import it takes longer than to read two small reports.
    code = "import sys; from nsys_llm.run.executors import Threads\n"
    code += "assert Threads().reduce(sum, [[1], [2], [3]], sum, print) == 6\n"
    code += "assert 'dask' not in sys.modules and 'distributed' not in sys.modules"
    done = run([sys.executable, "-c", code], tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n1\n1\n"), done.stdout


@pytest.mark.parametrize("workers_n", [1, 2, 7])
@pytest.mark.parametrize("items_n", [0, 1, 5, 28, 29, 300])
def test_chunks_are_as_even_as_can_be_and_hold_everything_in_order(items_n, workers_n):
    chunks = chunked(range(items_n), workers_n)
    assert [item for chunk in chunks for item in chunk] == list(range(items_n))
    assert len(chunks) == min(items_n, 4 * workers_n)
    sizes = [len(chunk) for chunk in chunks]
    assert all(abs(size - other) <= 1 for size, other in pairwise(sizes))
    assert 0 not in sizes
