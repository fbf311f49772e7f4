"""Fixtures that several test files share: a real Nsight Systems, real traces, a small rank set."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nsys_llm.testing.trace_builder import TraceBuilder


@pytest.fixture(scope="session")
def nsys() -> str:
    """The real `nsys` executable, or a skip."""
    found = os.environ.get("NSYS_LLM_TEST_NSYS") or shutil.which("nsys")
    if not found or not Path(found).exists():
        pytest.skip("no Nsight Systems: set NSYS_LLM_TEST_NSYS to its nsys, or put it on PATH")
    return found


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real traces, or a skip."""
    found = os.environ.get("NSYS_LLM_TEST_TRACES")
    if not found or not Path(found).is_dir():
        pytest.skip("no real traces: set NSYS_LLM_TEST_TRACES to their folder")
    return Path(found)


@pytest.fixture
def rank_set(tmp_path: Path) -> Path:
    """Two ranks with hand-computable kernels: rank0 a=5,7 b=4 ns; rank1 a=9 ns, c=6 ns."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    first = TraceBuilder().kernel("a", start_ns=10, duration_ns=5, launch=(1, 3))
    first.kernel("a", start_ns=20, duration_ns=7, launch=(4, 6))
    first.kernel("b", start_ns=30, duration_ns=4)
    first.write_sqlite(folder / "rank0.sqlite")
    second = TraceBuilder().kernel("a", start_ns=10, duration_ns=9, launch=(1, 3))
    second.kernel("c", start_ns=25, duration_ns=6, launch=(4, 6))
    second.write_sqlite(folder / "rank1.sqlite")
    return folder
