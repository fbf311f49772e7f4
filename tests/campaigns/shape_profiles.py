"""Profiles of strange shapes: much of one thing, or all of it at one place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from trace_builder import TraceBuilder

_STEP_NS: Final = 1_000
_PROCESS: Final = 1 << 24
_ALL_REDUCE: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_EMIT_NVTX: Final = ", seq = 1"

Shape = Callable[[int, Path], None]


def _kernels(
    count: int, names: Sequence[str] = ("gemm",), *, length_ns: int = 700, **queue: object
) -> TraceBuilder:
    """Return a report of launched kernels, one each microsecond, of some names in turn."""
    at_ns = np.arange(count) * _STEP_NS
    return TraceBuilder().kernels(
        names,
        np.arange(count) % len(names),
        start_ns=at_ns + 200,
        end_ns=at_ns + 200 + length_ns,
        launch_ns=(at_ns, at_ns + 50),
        **queue,
    )


def _write(report: TraceBuilder, folder: Path, *statements: str, name: str = "rank0") -> None:
    path = report.write_sqlite(folder / f"{name}.sqlite")
    database = sqlite3.connect(path)
    with database:
        for statement in statements:
            database.execute(statement)
    database.close()


def _spread(column: str, by: str, table: str = "KERNEL") -> str:
    return f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET {column} = {by}"


def plain(rows_n: int, folder: Path) -> None:
    """Kernels and launches, in steps of a thousand with ranges: what the others are measured by."""
    steps_n = max(rows_n // 2_100, 1)
    report = _kernels(rows_n // 2, ["gemm", "softmax", "copy"])
    at_ns = np.arange(steps_n) * _STEP_NS * 1_000
    names = [f"step {number}" for number in range(steps_n)]
    report.nvtx_ranges(names, start_ns=at_ns, end_ns=at_ns + 999_000)
    _write(report, folder)


def threads(rows_n: int, folder: Path) -> None:
    """Each tenth launch has a thread of its own; the ranges of these threads overlap."""
    count = rows_n // 3
    report, at_ns = _kernels(count), np.arange(count) * _STEP_NS
    report.nvtx_ranges([f"work {n % 50}" for n in range(count)], start_ns=at_ns, end_ns=at_ns + 990)
    thread = f"globalTid - globalTid % {_PROCESS} + 1 + start / 10000"
    _write(
        report,
        folder,
        _spread("globalTid", thread, "RUNTIME"),
        f"UPDATE NVTX_EVENTS SET globalTid = {thread} WHERE eventType = 59",
    )


def calls(rows_n: int, folder: Path) -> None:
    """Waits of one thread that overlap, all ending at the same time."""
    report, at_ns = _kernels(rows_n // 4), np.arange(rows_n // 2) * _STEP_NS // 2
    name, codes = "cudaStreamSynchronize_v3020", np.zeros(at_ns.size, dtype=int)
    report.apis([name], codes, start_ns=at_ns + 60, end_ns=at_ns * 0 + int(at_ns[-1]) + 900)
    _write(report, folder)


def streams(rows_n: int, folder: Path) -> None:
    """A stream for every fifth kernel, which overlap."""
    count = rows_n // 2
    report = _kernels(count, length_ns=30_000, stream_id=np.arange(count) // 5)
    _write(report, folder)


def devices(rows_n: int, folder: Path) -> None:
    """A thousand devices, whose kernels come in turn."""
    queue = {"gpu_ids": tuple(range(1_000))}
    report = _kernels(rows_n // 2)
    report.process(pid=report._current_pid, **queue)
    _write(report, folder, _spread("deviceId", "correlationId % 1000"))


def processes(rows_n: int, folder: Path) -> None:
    """A process for every five kernels and launches."""
    own = f"+ {_PROCESS} * (correlationId / 5)"
    report = _kernels(rows_n // 2)
    _write(
        report,
        folder,
        _spread("globalPid", f"globalPid {own}"),
        _spread("globalTid", f"globalTid {own}", "RUNTIME"),
    )


def _nested(rows_n: int, folder: Path, names: Callable[[int], str]) -> None:
    count = rows_n // 2
    report, at_ns = _kernels(rows_n // 4), np.arange(count)
    last_ns = rows_n // 4 * _STEP_NS + 2 * count
    report.nvtx_ranges(
        [names(number) for number in range(count)], start_ns=at_ns, end_ns=last_ns - at_ns
    )
    _write(report, folder)


def nested(rows_n: int, folder: Path) -> None:
    """Ranges inside of each other, of few names."""
    _nested(rows_n, folder, lambda number: f"{'abcdefg'[number % 7]} block")


def nested_names(rows_n: int, folder: Path) -> None:
    """Ranges inside of each other, each of its own name."""
    _nested(rows_n, folder, _word)


def towers(rows_n: int, folder: Path) -> None:
    """Many stacks of 900 ranges inside of each other, each of its own name: paths times depth."""
    count, deep_n = rows_n // 2, 900
    report = _kernels(rows_n // 4)
    at, depth = np.divmod(np.arange(count), deep_n)
    width_ns = rows_n // 4 * _STEP_NS // (int(at[-1]) + 1)
    report.nvtx_ranges(
        [_word(number) for number in range(count)],
        start_ns=at * width_ns + depth,
        end_ns=(at + 1) * width_ns - depth,
    )
    _write(report, folder)


def equal(rows_n: int, folder: Path) -> None:
    """Ranges with the same start and end, a hundred at each of many times."""
    count = rows_n // 2
    report, at_ns = _kernels(rows_n // 4), np.arange(count) // 100 * 50 * _STEP_NS
    report.nvtx_ranges(
        [f"{'abcde'[n % 5]} part" for n in range(count)], start_ns=at_ns, end_ns=at_ns + 49_000
    )
    _write(report, folder)


def equal_all(rows_n: int, folder: Path) -> None:
    """Ranges that all have the same start and end."""
    count = rows_n // 2
    report, at_ns = _kernels(rows_n // 4), np.zeros(count, dtype=int)
    end_ns = at_ns + rows_n // 4 * _STEP_NS
    report.nvtx_ranges(
        [f"{'abcde'[n % 5]} part" for n in range(count)], start_ns=at_ns, end_ns=end_ns
    )
    _write(report, folder)


def overlapping(rows_n: int, folder: Path) -> None:
    """Ranges of one thread that overlap partly, thousands at each time."""
    count = rows_n // 2
    report, at_ns = _kernels(rows_n // 4), np.arange(count) * _STEP_NS // 2
    end_ns = at_ns + count // 10 * _STEP_NS
    report.nvtx_ranges(
        [f"{'abcde'[n % 5]} part" for n in range(count)], start_ns=at_ns, end_ns=end_ns
    )
    _write(report, folder)


def started_ended(rows_n: int, folder: Path) -> None:
    """Ranges of start and end, which need not nest, thousands at each time."""
    count = rows_n // 2
    report, at_ns = _kernels(rows_n // 4), np.arange(count) * _STEP_NS // 2
    end_ns = at_ns + count // 10 * _STEP_NS
    names = [f"request {n}" for n in range(count)]
    report.nvtx_ranges(names, start_ns=at_ns, end_ns=end_ns, kind="start_end")
    _write(report, folder)


def kernel_names(rows_n: int, folder: Path) -> None:
    """Every kernel has a name of its own."""
    count = rows_n // 2
    names = [f"void {_word(number)}_kernel<float, 4>(float*, int)" for number in range(count)]
    _write(_kernels(count, names), folder)


def range_names(rows_n: int, folder: Path) -> None:
    """Every range has a name of its own, without a number."""
    count = rows_n // 3
    report, at_ns = _kernels(count), np.arange(count) * _STEP_NS
    report.nvtx_ranges([_word(n) for n in range(count)], start_ns=at_ns, end_ns=at_ns + 990)
    _write(report, folder)


def long_names(rows_n: int, folder: Path) -> None:
    """Prompts in ranges, signatures of 60 kB, and a tail of emit_nvtx that has no end."""
    report = _kernels(rows_n // 2, [f"k{_word(n)}<{'int, ' * 12_000}>" for n in range(100)])
    at_ns = np.arange(300) * rows_n // 600 * _STEP_NS
    prompts = [f"{_word(n)} 1, 2; step[" * 4_000 for n in range(298)]
    names = ["x" + _EMIT_NVTX * 7_280 + "!", "y" + "1" * 60_000 + "z", *prompts]
    report.nvtx_ranges(names, start_ns=at_ns, end_ns=at_ns + 300 * _STEP_NS)
    _write(report, folder)


def graphs(rows_n: int, folder: Path) -> None:
    """Graphs of a hundred nodes, each launched as another graph."""
    count = rows_n - rows_n // 100
    at_ns, graph = np.arange(count) * _STEP_NS, np.arange(count) // 100
    ids = graph + 1
    report = TraceBuilder().kernels(
        ["gemm", "softmax"],
        np.arange(count) % 2,
        start_ns=at_ns + 2_000,
        end_ns=at_ns + 2_700,
        correlation_ids=ids,
        graph_node_ids=(ids << 32) + np.arange(count) % 100 + 1,
    )
    first_ns = at_ns[::100]
    report.apis(
        ["cudaGraphLaunch_v10000"],
        first_ns * 0,
        start_ns=first_ns,
        end_ns=first_ns + 900,
        correlation_ids=ids[::100],
    )
    _write(report, folder)


def steps(rows_n: int, folder: Path) -> None:
    """Steps of vLLM, each with one kernel."""
    count = rows_n // 3
    report, at_ns = _kernels(count), np.arange(count) * _STEP_NS
    names = [
        f"execute_context_{n % 3}({n % 3 * 50})_generation_{n % 61}({n % 61})" for n in range(count)
    ]
    report.nvtx_ranges(names, start_ns=at_ns, end_ns=at_ns + 990)
    _write(report, folder)


def numbered_steps(rows_n: int, folder: Path) -> None:
    """Steps of a training, each with one kernel."""
    count = rows_n // 3
    report, at_ns = _kernels(count), np.arange(count) * _STEP_NS
    report.nvtx_ranges([f"step {n}" for n in range(count)], start_ns=at_ns, end_ns=at_ns + 990)
    _write(report, folder)


def collectives(rows_n: int, folder: Path) -> None:
    """Two ranks that do nothing but collectives, on two streams."""
    count = rows_n // 4
    for rank in range(2):
        report = _kernels(count, [_ALL_REDUCE], stream_id=np.arange(count) % 2 + 7)
        _write(report, folder, name=f"rank{rank}")


def collective_streams(rows_n: int, folder: Path) -> None:
    """Two ranks whose collectives have a stream each."""
    count = rows_n // 4
    for rank in range(2):
        report = _kernels(count, [_ALL_REDUCE], stream_id=np.arange(count) // 3)
        _write(report, folder, name=f"rank{rank}")


def samples(rows_n: int, folder: Path) -> None:
    """CPU samples with deep stacks of many functions, beside kernels."""
    count, deep_n = rows_n // 20, 15
    report = _kernels(rows_n // 8)
    thread = report._thread()
    at_ns = np.arange(count) * (rows_n // 8 * _STEP_NS // count)
    identity = np.arange(count) + 1
    names = report._string_ids([f"function_{_word(n)}" for n in range(5_000)])
    events = {"id": identity, "start": at_ns, "threadState": 1, "globalTid": thread, "cpuCycles": 1}
    report._add("COMPOSITE_EVENTS", count, events)
    depth = np.tile(np.arange(deep_n), count)
    frames = {
        "id": np.repeat(identity, deep_n),
        "symbol": names[(np.repeat(identity, deep_n) * 7919 + depth * 31) % names.size],
        "module": report._string_id("/usr/lib/libapp.so"),
        "kernelMode": 0,
        "stackDepth": depth,
    }
    report._add("SAMPLING_CALLCHAINS", count * deep_n, frames)
    _write(report, folder)


def instant(rows_n: int, folder: Path) -> None:
    """Kernels that all start and end at the same time, on eight streams."""
    count = rows_n // 2
    report = _kernels(count, ["gemm", "softmax", "copy"], stream_id=np.arange(count) % 8)
    _write(report, folder, _spread("start", "5000"), _spread("end", "9000"))


def instant_names(rows_n: int, folder: Path) -> None:
    """Kernels that begin together, of a thousand names, and end one after the other."""
    count = rows_n // 2
    report = _kernels(count, [_word(number) for number in range(1_000)])
    _write(report, folder, _spread("start", "5000"), _spread("end", "9000 + correlationId"))


def empty(rows_n: int, folder: Path) -> None:
    """Kernels, launches and ranges that take no time, a thousand at each instant."""
    count = rows_n // 3
    report, at_ns = _kernels(count, ["gemm", "copy"]), np.arange(count) // 1_000 * _STEP_NS
    report.nvtx_ranges(
        [f"{'abcde'[n % 5]} part" for n in range(count)], start_ns=at_ns, end_ns=at_ns
    )
    together = "start / 1000000 * 1000000"
    changes = [f"start = {together}, end = {together} WHERE 1"]
    _write(
        report,
        folder,
        *(
            f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET {changes[0]}"
            for table in ("KERNEL", "RUNTIME")
        ),
    )


def stairs(rows_n: int, folder: Path) -> None:
    """Kernels each of which runs until the end, so that all overlap."""
    count = rows_n // 2
    report = _kernels(count, ["gemm", "softmax", "copy"], stream_id=np.arange(count) % 16)
    _write(report, folder, _spread("end", f"{count * _STEP_NS} + 9000 - correlationId"))


def copies(rows_n: int, folder: Path) -> None:
    """Copies and waits without any kernel, each of another size."""
    count = rows_n // 2
    report, at_ns = _kernels(5), np.arange(count) * _STEP_NS
    ids = report.reserve_correlation_ids(count) + np.arange(count)
    columns = {
        "start": at_ns + 200,
        "end": at_ns + 900,
        "bytes": np.arange(count) + 1,
        "copyKind": 1,
    }
    columns |= {"srcKind": 1, "dstKind": 2, "copyCount": 1, "correlationId": ids}
    report._add("CUPTI_ACTIVITY_KIND_MEMCPY", count, columns | report._place())
    name = ["cudaMemcpyAsync_v3020"]
    report.apis(name, ids * 0, start_ns=at_ns, end_ns=at_ns + 50, correlation_ids=ids)
    _write(report, folder)


SHAPES: Final[Mapping[str, Shape]] = {
    shape.__name__: shape
    for shape in (
        plain, threads, calls, streams, devices, processes, nested, nested_names, towers, equal,
        equal_all, overlapping, started_ended, kernel_names, range_names, long_names, graphs, steps,
        numbered_steps, collectives, collective_streams, samples, instant, instant_names, empty,
        stairs, copies,
    )
}  # fmt: skip


def _word(number: int) -> str:
    """Return a name of letters alone, another one for each number."""
    return "".join("bcdfghjklm"[int(digit)] for digit in f"{number:06d}")
