"""Sizes, bandwidths and reasons by NCCL's payloads, against profiles of which all is planted."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from random import Random

import pandas as pd
import pytest
from effort import nightly_but, seeds
from nccl_payloads import BYTES, COMM, SCHEMAS, TWICE, add_payloads, blob, call_blob, structure
from quick_run import quick
from results import rows
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.facts.nccl import payloads
from nsys_llm.facts.nccl import sizes as per_rank_sizes
from nsys_llm.recipes.comm_stats.findings import answer as answer_texts
from nsys_llm.recipes.comm_stats.tables import sizes
from nsys_llm.run.worker import load_analysis

_KERNEL = "ncclDevKernel_{}_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
#: By call: kernel, further values of its payload, and factors of what is moved and of the bus.
OPERATIONS = {
    "ncclAllReduce": ("AllReduce_Sum_bf16", (0,), lambda n: 1, lambda n: 2 * (n - 1) / n),
    "ncclAllGather": ("AllGather", (), lambda n: n, lambda n: (n - 1) / n),
    "ncclReduceScatter": ("ReduceScatter_Sum", (4,), lambda n: n, lambda n: (n - 1) / n),
    "ncclBroadcast": ("Broadcast", (1,), lambda n: 1, lambda n: 1),
    "ncclReduce": ("Reduce_Sum", (1, 2), lambda n: 1, lambda n: 1),
}
FAULTS = ("no_payload", "no_schema", "bad_header", "short", "implausible", "conflict")
STEP_NS = 100_000
#: Numbers of the types of integers.
TYPES = (6, 16, 8, 10, 18, 22, 5, 15, 7, 9, 17)


@dataclass
class Set:
    """Profiles of ranks that have collectives together, and what is true of each."""

    seed: int
    ranks_n: int = 2
    calls_n: int = 24
    faults: tuple[str, ...] = ()
    ids_differ: bool = False
    expected: list[tuple] = field(default_factory=list)
    reasons: list[Counter] = field(default_factory=list)

    def write(self, folder, **how):
        dice = Random(self.seed)
        comm = dice.randrange(1 << 64)
        traces = [TraceBuilder(hostname="node") for _ in range(self.ranks_n)]
        payloads = [{} for _ in traces]
        self.reasons = [Counter() for _ in traces]
        for at in range(self.calls_n * len(OPERATIONS)):
            name = list(OPERATIONS)[at % len(OPERATIONS)]
            kernel, more, moved, bus = OPERATIONS[name]
            size = dice.choice((dice.randrange(1, 5000), dice.randrange(1 << 20, 1 << 25)))
            begin = 1_000_000 + at * STEP_NS
            starts = [begin + dice.randrange(20_000) for _ in traces]
            end = max(starts) + dice.randrange(5_000, 40_000)
            ends = [end + dice.randrange(300) for _ in traces]
            told = []
            for rank, trace in enumerate(traces):
                launch = begin - 30_000, begin - 28_000
                trace.nvtx(name, begin - 31_000, begin - 27_000, domain="NCCL")
                trace.kernel(
                    _KERNEL.format(kernel),
                    start_ns=starts[rank],
                    end_ns=ends[rank],
                    launch=launch,
                    stream_id=9,
                )
                reason = dice.choice(self.faults) if dice.random() < 0.3 and self.faults else "ok"
                # Who has more to say is right.
                share = size - dice.randrange(1 + (rank > 0 and size > 9) * 3)
                key = name, begin - 31_000
                told_comm = dice.randrange(1 << 64) if self.ids_differ else comm
                self._plant(reason, key, (told_comm, share, *more), payloads[rank])
                self.reasons[rank][reason] += 1
                told.append((reason, share))
            known = [share for reason, share in told if reason == "ok"]
            transfer_ns = min(ends) - max(starts)
            reason = "ok" if known else told[0][0]
            speed = max(known) * moved(self.ranks_n) / transfer_ns if known else None
            # More than NVLink of an H100 carries.
            if speed and speed * min(bus(self.ranks_n), 1) > 1.05 * 450:
                speed, reason = None, "implausible_size"
            self.expected.append(
                (
                    max(starts),
                    max(known) if known else None,
                    speed,
                    speed and speed * bus(self.ranks_n),
                    reason,
                )
            )
        folder.mkdir(exist_ok=True)
        for rank, trace in enumerate(traces):
            path = trace.write_sqlite(folder / f"rank{rank}.sqlite")
            add_payloads(path, payloads[rank], **how)
        return folder

    def _plant(self, reason, key, values, payloads):
        raw = call_blob(key[0], *values)
        if reason == "ok":
            payloads[key] = raw
        elif reason == "no_schema":
            payloads[key] = raw[:8] + b"\1" + raw[9:]
        elif reason == "bad_header":
            payloads[key] = raw[:24] + b"\5" + raw[25:]
        elif reason == "short":
            payloads[key] = raw[:-3]
        elif reason == "implausible":
            payloads[key] = call_blob(key[0], values[0], 1 << 60, *values[2:])
        elif reason == "conflict":
            payloads[key] = blob(TWICE, raw[32:])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_each_collective_has_the_size_that_was_planted(seed, tmp_path):
    dice = Random(seed)
    planted = Set(seed, ranks_n=dice.choice((2, 3, 4)), faults=FAULTS[: dice.randrange(7)])
    how = {
        "offsets": dice.random() < 0.5,
        "processes_n": dice.choice((1, 3)),
        "as_text": dice.random() < 0.5,
    }
    tables = quick("comm_stats", planted.write(tmp_path / "in", **how))
    collectives = quick("tail_stats", tmp_path / "in")["collectives"]
    at = {tuple(key): last for *key, last in rows(collectives, "sequence_id ordinal last_start_ns")}
    shown = {
        at[sequence, ordinal]: (size, algbw, busbw, reason)
        for sequence, ordinal, size, algbw, busbw, reason in rows(
            tables["transfers"], "sequence_id ordinal bytes algbw_gb_s busbw_gb_s reason"
        )
    }
    assert len(shown) == len(planted.expected)
    for start_ns, size, algbw, busbw, reason in planted.expected:
        assert shown[start_ns][::3] == (size, reason)
        if algbw is None:
            assert shown[start_ns][1:3] == (None, None)
        else:
            assert shown[start_ns][1:3] == pytest.approx((algbw, busbw), rel=1e-12)
    counts = tables["payloads"].set_index(["rank", "reason"])
    for rank, reasons in enumerate(planted.reasons):
        assert counts.loc[rank, "calls_n"].to_dict() == dict(reasons)
        assert counts.loc[rank, "kernels_n"].to_dict() == dict(reasons)
    sizes = tables["message_sizes"]
    assert int(sizes["bytes"].sum()) == int(tables["transfers"]["bytes"].sum())
    assert int(sizes["size_bytes"].sum()) == int(tables["transfers"]["size_bytes"].sum())
    for size, moved, transfer_ns, sized_n, algbw in rows(
        sizes, "collectives_n size_bytes transfer_ns sized_n algbw_gb_s"
    ):
        if sized_n == size:
            assert algbw == pytest.approx(moved / transfer_ns, rel=1e-12)


@pytest.mark.slow
@pytest.mark.nightly("False")
@pytest.mark.parametrize("ids_differ", [False, True])
def test_payloads_change_no_waiting(ids_differ, tmp_path):
    Set(3, ranks_n=3, faults=FAULTS, ids_differ=ids_differ).write(tmp_path)
    comm, tail = quick("comm_stats", tmp_path), quick("tail_stats", tmp_path)
    assert (comm["groups"]["comm_id"].nunique() > 1) == ids_differ
    assert comm["transfers"]["bytes"].notna().any()
    for path in tmp_path.iterdir():
        with closing(sqlite3.connect(path)) as base, base:
            base.execute("UPDATE NVTX_EVENTS SET binaryData = NULL")
    comm_without, tail_without = quick("comm_stats", tmp_path), quick("tail_stats", tmp_path)
    assert comm_without["transfers"]["bytes"].isna().all()
    assert comm_without["groups"]["comm_id"].isna().all()
    for name in ("wall", "rank_verdicts"):
        pd.testing.assert_frame_equal(comm[name], comm_without[name], check_exact=True)
    for name in ("communicators", "collectives", "stragglers", "rank_clocks"):
        pd.testing.assert_frame_equal(tail[name], tail_without[name], check_exact=True)
    sums = [
        some["message_sizes"][["collectives_n", "transfer_ns", "wait_ns"]].sum()
        for some in (comm, comm_without)
    ]
    assert sums[0].equals(sums[1])


def one_call(folder, raw=None, launch=(200, 300), **how):
    """Return the tables of an all-reduce, the payload of its call if there is one, its launch."""
    trace = TraceBuilder()
    trace.nvtx("ncclAllReduce", 100, 500, domain="NCCL")
    trace.kernel(_KERNEL.format("AllReduce"), start_ns=900, end_ns=2_000, launch=launch)
    path = trace.write_sqlite(folder / "rank0.sqlite")
    add_payloads(path, {} if raw is None else {("ncclAllReduce", 100): raw}, **how)
    return quick("comm_stats", path)


@pytest.mark.parametrize("kind", nightly_but(zip(TYPES, strict=True), [(6,), (17,)]))
def test_all_types_of_integers_are_read(kind, tmp_path):
    schemas = {5: ((18, COMM), (kind, BYTES))}
    tables = one_call(tmp_path, blob(5, structure(schemas[5], (3, 123_456))), schemas=schemas)
    assert rows(tables["payloads"], "reason calls_n kernels_n") == [("ok", 1, 1)]


def grouped(tmp_path, calls, kernels):
    trace, payloads = TraceBuilder(), {}
    trace.nvtx("ncclGroupStart", 100, 150, domain="NCCL")
    for at, (name, *values) in enumerate(calls):
        trace.nvtx(name, 200 + 50 * at, 240 + 50 * at, domain="NCCL")
        payloads[name, 200 + 50 * at] = call_blob(name, *values)
    trace.nvtx("ncclGroupEnd", 1_000, 2_000, domain="NCCL")
    for at, kernel in enumerate(kernels):
        launch = 1_100 + 50 * at, 1_140 + 50 * at
        trace.kernel(_KERNEL.format(kernel), start_ns=5_000 + at, end_ns=9_000, launch=launch)
    path = trace.write_sqlite(tmp_path / "rank0.sqlite")
    add_payloads(path, payloads, schemas=SCHEMAS)
    return rows(quick("comm_stats", path)["payloads"], "reason calls_n kernels_n")


@pytest.mark.parametrize(
    ("calls", "kernels", "shown"),
    [
        # All calls of a group are of its kernel.
        ([("ncclSend", 5, 100, 1), ("ncclRecv", 5, 70, 1)], ["SendRecv"], [("ok", 2, 1)]),
        # Kernels are told apart by their operation, or not at all.
        (
            [("ncclAllReduce", 5, 100, 0), ("ncclAllGather", 5, 70)],
            ["AllReduce_Sum", "AllGather"],
            [("ok", 2, 2)],
        ),
        (
            [("ncclSend", 5, 100, 1), ("ncclRecv", 6, 70, 1)],
            ["SendRecv", "SendRecv"],
            [("ok", 2, 0), ("shared", 0, 2)],
        ),
    ],
)
def test_what_kernels_of_a_group_carry(calls, kernels, shown, tmp_path):
    assert grouped(tmp_path, calls, kernels) == shown


def test_calls_between_groups_are_of_none(tmp_path):
    sizes = (100, 7, 20, 3_000)
    for rank in range(2):
        trace, payloads = TraceBuilder(hostname="node"), {}
        for place, size in enumerate(sizes):
            at, in_group = 10_000 * (place + 1), place in (0, 3)
            trace.nvtx("ncclAllGather", at + 100, at + 900, domain="NCCL")
            payloads["ncclAllGather", at + 100] = call_blob("ncclAllGather", 5, size)
            if in_group:
                trace.nvtx("ncclGroupStart", at, at + 50, domain="NCCL")
                trace.nvtx("ncclGroupEnd", at + 1_000, at + 1_900, domain="NCCL")
            launch = (at + 1_100, at + 1_800) if in_group else (at + 200, at + 800)
            times = {"start_ns": at + 3_000 + rank, "end_ns": at + 6_000, "stream_id": 9}
            trace.kernel(_KERNEL.format("AllGather"), **times, launch=launch)
        add_payloads(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"), payloads)
    shown = rows(quick("comm_stats", tmp_path)["transfers"], "bytes")
    assert shown == [(size,) for size in sizes]


@pytest.mark.parametrize(
    ("made", "sizes", "expected"),
    [
        ((2, 2), (70, 70), (70, "ok")),
        ((4, 4), (70, 70), (70, "not_traced")),
        ((2, 4), (70, 70), (70, "conflict")),
        ((1, 1), (70, 70), (70, "conflict")),
        ((-3, -3), (70, 70), (70, "conflict")),
        ((2, 2), (70, 9_000), (None, "conflict")),
    ],
)
def test_members_that_contradict_each_other_have_no_bandwidth(made, sizes, expected, tmp_path):
    for rank in range(2):
        write_gather(tmp_path, rank, 5, sizes[rank], made=(made[rank], rank, rank))
    ((*shown, algbw, busbw),) = rows(
        quick("comm_stats", tmp_path)["transfers"], "bytes reason algbw_gb_s busbw_gb_s"
    )
    assert tuple(shown) == expected
    assert (algbw is None, busbw is None) == (expected[1] != "ok",) * 2


def write_gather(folder, rank, comm, size, at=0, made=None):
    """Write a rank with an all-gather in a communicator, and its making if that is recorded."""
    trace = TraceBuilder(hostname="node")
    name, init = "ncclAllGather", "ncclCommInitRank"
    trace.nvtx(init, 100, 200, domain="NCCL")
    trace.nvtx(name, at + 1_000, at + 1_900, domain="NCCL")
    times = {"start_ns": at + 3_000 + rank, "end_ns": at + 6_000, "stream_id": 9}
    trace.kernel(_KERNEL.format("AllGather"), **times, launch=(at + 1_100, at + 1_800))
    payloads = {(name, at + 1_000): call_blob(name, comm, size)}
    if made is not None:
        payloads[init, 100] = call_blob(init, comm, *made)
    add_payloads(trace.write_sqlite(folder / f"rank{rank}.sqlite"), payloads)


@pytest.mark.parametrize(
    ("layout", "is_refused"), [("tp=4", True), ("tp=2,dp=2", False), ("dp=4", False)]
)
def test_a_layout_that_communicators_contradict_is_refused(layout, is_refused, tmp_path):
    for rank in range(4):
        write_gather(tmp_path, rank, 5 + rank // 2, 70, at=50_000 * (rank // 2))
    if is_refused:
        with pytest.raises(UsageError, match="ranks 0, 1 are a communicator"):
            quick("comm_stats", tmp_path, "--layout", layout)
    else:
        groups = quick("comm_stats", tmp_path, "--layout", layout)["groups"]
        assert set(groups["ranks"]) == {"0-1", "2-3"}


def test_each_reason_without_a_speed_has_words():
    reasons = {
        value
        for module in (payloads, per_rank_sizes, sizes)
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }
    assert reasons - {"ok", "send_recv", "conflict", *FAULTS} == set(answer_texts._WHY) - {
        "no_payload"
    }


@pytest.mark.parametrize("has_blobs", [False, True])
def test_the_export_command_is_there_where_blobs_are_missing(has_blobs, tmp_path):
    tables = one_call(tmp_path, call_blob("ncclAllReduce", 9, 100, 0) if has_blobs else None)
    notes = load_analysis("comm_stats").caveats(tables)
    assert any("--include-blobs=true" in note for note in notes) != has_blobs


def test_a_kernel_that_no_call_launched_has_none(tmp_path):
    shown = one_call(tmp_path, launch=(600, 700))["payloads"]
    assert rows(shown, "reason calls_n kernels_n") == [("no_blob", 1, 0), ("no_call", 0, 1)]
