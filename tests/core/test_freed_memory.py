"""Memory that was freed serves the next array, where the C library can be told so."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from nsys_llm.core.freed_memory import keep_freed

#: Fills an array of 40 MB, frees it, fills another; prints the page faults of the second.
_FAULTS = """
import resource, threading
import numpy as np
from nsys_llm.core.freed_memory import keep_freed
def filled():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(5_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
{setting}
filled()
faults = [filled()]
thread = threading.Thread(target=lambda: faults.append(filled()))
thread.start()
thread.join()
print(*faults)
"""


def faults_of(setting):
    # Pages of 4 kB, so that each array has 10,000 of them.
    environment = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}
    script = _FAULTS.format(setting=setting)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=True
    )
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_the_next_array_finds_its_pages_also_in_another_thread():
    assert all(faults > 5_000 for faults in faults_of("pass"))
    assert all(faults < 500 for faults in faults_of("assert keep_freed()"))


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed()
