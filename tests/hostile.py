"""Ranks in which every name that a trace can bring is hostile, for every recipe."""

from __future__ import annotations

from pathlib import Path

from rendered import HOSTILE_NAMES
from trace_builder import TraceBuilder

#: Labels of ranks follow from names of files; no slash and no null can be in one.
_FILES = ("rank0 <b>`$x$|[a](b)&amp;", 'rank1 "&#60;i&#62; =1+1 %{x}')
_BROKEN = "rank2 `<img src=x>|$y$ www.evil.example\n\n# head\u202e\x1b[31m.sqlite"
_STEP_NS = 8_000


def write_hostile(folder: Path, *, longest: bool = True) -> Path:
    """Write two ranks, with or without their longest kernels, and a file that is no report."""
    folder.mkdir()
    for rank, name in enumerate(_FILES):
        builder = TraceBuilder(
            hostname=f"host<b>`|${rank}$<script>alert(1)</script>",
            gpu_name="GPU <b>`|[a](b)$x$\n# h",
        )
        builder.process(pid=100 + rank, name="<b>`python`<img src=x onerror=alert(1)>")
        builder.thread(100 + rank, "</script><script>alert(1)</script>")
        stack = builder.call_stack([*HOSTILE_NAMES[:3], "0x12"], module="<b>lib</b>.so")
        for index, kernel in enumerate(HOSTILE_NAMES):
            if longest or index != rank:
                _add_kernel(builder, rank, index, kernel)
            builder.osrt(kernel, start_ns=_STEP_NS * index, duration_ns=40)
        # The GPU waits for the host in a range, before a kernel, with a call stack; all hostile.
        begin_ns = _STEP_NS * len(HOSTILE_NAMES)
        end_ns = begin_ns + 20_000_000
        builder.nvtx(HOSTILE_NAMES[2], begin_ns, end_ns + 100)
        builder.api(
            "cudaDeviceSynchronize_v3020", start_ns=begin_ns, end_ns=end_ns, callchain_id=stack
        )
        launch = (end_ns + 10, end_ns + 20)
        builder.kernel(HOSTILE_NAMES[0], start_ns=end_ns + 30, duration_ns=50, launch=launch)
        builder.write_sqlite(folder / f"{name}.sqlite")
    (folder / _BROKEN).write_bytes(b"no database")
    return folder


def hostile_inputs(ranks: Path, recipe: str) -> list[Path]:
    """Return what a recipe reads: hostile ranks, and for a comparison others before them."""
    if recipe != "trace_diff":
        return [ranks]
    return [write_hostile(ranks.with_name("shorter"), longest=False), ranks]


def _add_kernel(builder: TraceBuilder, rank: int, index: int, name: str) -> None:
    """Add three launches in an NVTX range of the same name; the last takes thrice as long.

    The kernel whose number is the rank's takes 5,000 ns, each of the others 100.
    """
    begin_ns = _STEP_NS * index
    long_ns = 1_000 if index == rank else 20
    builder.nvtx(name, begin_ns, begin_ns + 7_000, domain=name)
    builder.nvtx("step", begin_ns, begin_ns + 7_500)
    for launch, times in enumerate((1, 1, 3)):
        at_ns = begin_ns + 10 + 1_500 * launch
        length_ns = times * long_ns
        span = (at_ns, at_ns + 5)
        builder.kernel(name, start_ns=at_ns + 20, duration_ns=length_ns, launch=span)
