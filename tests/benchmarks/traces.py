"""Writes traces like those of an LLM server, of any size.

    python traces.py PATH KERNELS [SEED [plain|hard]]

A path that ends in .sqlite becomes an SQLite export, any other a folder of parquet files.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray

sys.path.append(str(Path(__file__).parents[1]))

from trace_builder import TraceBuilder


@dataclass(frozen=True)
class Mix:
    """What a trace is made of: names of kernels, grids, and ranges around each layer."""

    names_n: int
    grids_n: int
    nested_n: int


#: The mix that is measured unless another is asked for.
PLAIN: Final = "plain"
#: By name; compiled graphs and many batch sizes make a hard one.
MIXES: Final = {PLAIN: Mix(200, 2, 0), "hard": Mix(3_000, 195, 8)}
#: Kernels of an operator, a layer and a step: a range for every three or four kernels.
OPERATOR, LAYER, STEP = 4, 24, 768
#: Every so many operators the host does something else for 30 us; else it is ahead of the GPU.
PAUSE_EVERY, PAUSE_NS = 4, 30_000
#: Of eight steps one is a prefill and two are replayed as CUDA graphs.
PHASES = ("prefill", "decode", "decode", "decode", "decode", "decode", "replay", "replay")
#: Every layer ends with a collective on a stream of its own, which a second thread waits for.
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FILES_OF_A_SET = 8
MOST_AT_ONCE = 1_000_000
REPEATED = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")


def write_trace(path: Path, kernels_n: int, seed: int = 1, mix_name: str = PLAIN) -> None:
    """Write one rank: two threads, two streams, graphs, nested NVTX ranges, one call a launch.

    An SQLite export of many millions is one of fewer, over and over: that takes a tenth of the
    time and of the memory.
    """
    mix = MIXES[mix_name]
    names = [f"void kernel_{i}<int, float>(int, float *)" for i in range(mix.names_n)]
    times = max(kernels_n // MOST_AT_ONCE, 1) if path.suffix else 1
    kernels_n //= times
    random = np.random.default_rng(seed)
    duration_ns = random.integers(40, 300, kernels_n) * 32
    gap_ns = random.integers(0, 50, kernels_n) * 32
    gap_ns[:: OPERATOR * PAUSE_EVERY] += PAUSE_NS
    start_ns = np.cumsum(duration_ns + gap_ns) - duration_ns + 40_000
    # A thread is in one call at a time: a launch returns before the next begins, and ranges that
    # begin or end between the two stay properly nested.
    call_ns = start_ns - 9_000
    returned_ns = call_ns + random.integers(1_000, 1_170, kernels_n)
    period_ns = int(start_ns[-1]) + 100_000
    builder = TraceBuilder(schema="3.7.2", lazy=False, duration_ns=times * period_ns)
    row = np.arange(kernels_n)
    replayed = np.array([phase == "replay" for phase in PHASES])[row // STEP % len(PHASES)]
    launch = np.where(replayed, row - row % STEP, row)
    collective = row % LAYER == LAYER - 1
    # A collective runs on beside the kernels that follow it.
    end_ns = start_ns + np.where(collective, 3 * duration_ns, duration_ns)
    builder.kernels(
        [*names, COLLECTIVE],
        np.where(collective, len(names), random.integers(0, len(names), kernels_n)),
        start_ns=start_ns,
        end_ns=end_ns,
        correlation_ids=launch + 1,
        graph_node_ids=np.where(replayed, (7 << 32) + row % STEP + 1, 0),
        grid=np.column_stack(
            [132 * random.integers(1, mix.grids_n + 1, kernels_n), row * 0 + 1, row * 0 + 1]
        ),
        tid=101,
        stream_id=np.where(collective, 20, 7),
    )
    called = np.flatnonzero(launch == row)
    builder.apis(
        ["cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"],
        replayed[called].astype(np.int64),
        start_ns=call_ns[called],
        end_ns=returned_ns[called],
        correlation_ids=launch[called] + 1,
        tid=101,
    )
    asked_ns = start_ns[::LAYER]
    builder.apis(
        ["cudaEventQuery_v3020"],
        np.zeros(asked_ns.size, dtype=np.int64),
        start_ns=asked_ns,
        end_ns=asked_ns + 700,
        tid=102,
    )
    _add_ranges(builder, call_ns, returned_ns, mix.nested_n)
    for nth in range(3):
        builder.memcpy("HtoD", start_ns=1_000 + 5_000 * nth, duration_ns=2_000, size_bytes=4_096)
    builder.write_sqlite(path) if path.suffix else builder.write_parquet(path)
    if times > 1:
        _repeat(path, times, {"start": period_ns, "end": period_ns, "correlationId": 2 * kernels_n})


def _repeat(path: Path, times: int, steps: Mapping[str, int]) -> None:
    """Append the events of an export until they are there so many times, each columns in steps."""
    with closing(sqlite3.connect(path)) as database:
        for table in REPEATED:
            columns = [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
            (last,) = database.execute(f"SELECT max(rowid) FROM {table}").fetchone()
            for nth in range(1, times):
                values = (
                    f'"{column}" + {nth * steps[column]}' if column in steps else f'"{column}"'
                    for column in columns
                )
                rows = f"SELECT {', '.join(values)} FROM {table} WHERE rowid <= {last}"
                database.execute(f"INSERT INTO {table} {rows}")
        database.commit()


def write_set(folder: Path, ranks_n: int, kernels_n: int) -> None:
    """Write ranks, of which some share a file under several names."""
    folder.mkdir(parents=True)
    for rank in range(ranks_n):
        path = folder / f"rank{rank}.sqlite"
        if rank < FILES_OF_A_SET:
            write_trace(path, kernels_n, seed=rank + 1)
        else:
            path.hardlink_to(folder / f"rank{rank % FILES_OF_A_SET}.sqlite")


def _add_ranges(
    builder: TraceBuilder, call_ns: IntArray, returned_ns: IntArray, nested_n: int
) -> None:
    """Add a range around the launches of every operator, layer, phase and step."""
    nested = [(LAYER, 40 - 3 * nth, [f"module_{nth}"]) for nth in range(1, nested_n + 1)]
    for length, margin_ns, texts in (
        (OPERATOR, 10, [f"aten::op_{i}" for i in range(40)]),
        (LAYER, 40, [f"layer_{i}" for i in range(32)]),
        (STEP, 45, PHASES),
        (STEP, 50, ["step"]),
        *nested,
    ):
        first = np.arange(0, call_ns.size, length)
        last = np.minimum(first + length, call_ns.size) - 1
        builder.nvtx_ranges(
            [texts[i % len(texts)] for i in range(first.size)],
            start_ns=call_ns[first] - margin_ns,
            end_ns=returned_ns[last] + margin_ns,
            tid=101,
        )


if __name__ == "__main__":
    target, size, *given = sys.argv[1:]
    write_trace(Path(target), int(size), *map(int, given[:1]), *given[1:])
