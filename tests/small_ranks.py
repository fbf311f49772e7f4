"""The set of ranks that most tests of whole runs read: small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

from trace_builder import TraceBuilder


def write_small_ranks(folder: Path) -> Path:
    """Write two ranks: rank0 has kernels a=5,7 b=4 ns, rank1 a=9 ns, c=6 ns; return the folder."""
    folder.mkdir(parents=True)
    first = TraceBuilder().kernel("a", start_ns=10, duration_ns=5, launch=(1, 3))
    first.kernel("a", start_ns=20, duration_ns=7, launch=(4, 6))
    first.kernel("b", start_ns=30, duration_ns=4)
    first.write_sqlite(folder / "rank0.sqlite")
    second = TraceBuilder().kernel("a", start_ns=10, duration_ns=9, launch=(1, 3))
    second.kernel("c", start_ns=25, duration_ns=6, launch=(4, 6))
    second.write_sqlite(folder / "rank1.sqlite")
    return folder
