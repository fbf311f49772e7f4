"""Jobs along three axes, in any number of profiles; rings whose payloads tell what they move."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from comm_jobs import AXES, Plan, true_bubbles
from effort import nightly_but, seeds
from judgement.jobs import each_rank
from machine import simulate, write_profiles
from machine.parts import SEND_RECV
from machine.profile_writer import rank_profile, shared_profile
from nccl_payloads import add_payloads, call_blob
from quick_run import quick
from results import rows

#: Profiles of a job: one a rank, one of a process a rank, one of a process with all GPUs.
WAYS = ("profiles", "processes", "devices")
#: Parts of a window that are whole whatever is matched, and that are so much at least.
SURE = ("window_ns", "compute_ns", "copy_ns", "idle_ns", "host_ns")
LEAST = ("transfer_ns", "wait_stage_ns", "wait_own_ns")
DEVICE = "rank device_id"
#: Jobs with context-parallel rings.
RINGS = {
    "alone": {"cp": 4},
    "with data": {"cp": 2, "dp": 2},
    "in stages": {"tp": 2, "cp": 2, "pp": 2},
}


def planted(seed):
    """Return a job, all ranks of which close each step together, on one clock."""
    dice = Random(f"products {seed}")
    schedule, paces = dice.choice(("gpipe", "1f1b")), dice.choice(((), (1.0, 1.2)))
    sizes = {"tp": 2, "cp": 2, "pp": 2}
    plan = Plan(sizes, schedule, dice.choice((4, 6)), paces=paces, closing=True, seed=seed)
    program = each_rank(plan.program, lambda _: {"capture_ns": -1_000_000, "clock_error_ns": 0})
    vars(plan)["outcome"] = simulate(program)
    return plan


def written(plan, way, folder):
    """Write a job, and return the rank of each of its GPUs."""
    folder.mkdir()
    if way == "profiles":
        write_profiles(plan.outcome, folder)
    else:
        profile = shared_profile(plan.outcome, one_process=way == "devices")
        profile.write_sqlite(folder / "job.sqlite")
    ranks = range(plan.ranks_n)
    return {(0, rank) if way == "devices" else (rank, 0): rank for rank in ranks}


@pytest.mark.slow
@pytest.mark.parametrize("way", nightly_but(WAYS, ["processes", "devices"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_a_job_of_three_axes_is_the_same_in_any_profiles(seed, way, tmp_path):
    plan = planted(seed)
    rank_of = written(plan, way, tmp_path / "in")
    tables = quick("comm_stats", tmp_path / "in")
    for rank, device, stage, pp in rows(tables["stages"], f"{DEVICE} stage pp"):
        assert stage == pp == plan.places(rank_of[rank, device])["pp"]
    groups = plan.groups()
    shown = {members(text, rank_of): axis for axis, text in rows(tables["groups"], "axis ranks")}
    for group, axis in shown.items():
        # By time alone tensor-parallel pairs of a stage are in lockstep: none of them has an axis.
        assert axis is None or axis in groups[group]
    assert sum(axis == "pp" for axis in shown.values()) == 4
    truth = true_bubbles(plan)
    frame = tables["bubbles"]
    assert len(frame) == plan.ranks_n * plan.steps_n
    for rank, device, step, unknown_ns, *times in rows(
        frame, f"{DEVICE} step not_matched_ns {' '.join(SURE + LEAST)}"
    ):
        true = vars(truth[rank_of[rank, device], step])
        assert times[: len(SURE)] == [true[name] for name in SURE]
        for name, ns in zip(LEAST, times[len(SURE) :], strict=True):
            assert ns <= true[name] <= ns + unknown_ns


@pytest.mark.slow
@pytest.mark.parametrize("way", nightly_but(WAYS, ["devices"]))
def test_a_layout_names_the_places_of_all_gpus(way, tmp_path):
    plan = planted(1)
    rank_of = written(plan, way, tmp_path / "in")
    tables = quick("comm_stats", tmp_path / "in", "--layout", "tp=2,cp=2,pp=2")
    for rank, device, *shown in rows(tables["stages"], f"{DEVICE} {' '.join(AXES)}"):
        assert shown == list(plan.places(rank_of[rank, device]).values())
    for axis, text in rows(tables["groups"], "axis ranks"):
        assert axis in plan.groups().get(members(text, rank_of), {"other"})


def members(text, rank_of):
    ranks = []
    for part in text.split(", "):
        low, _, high = part.partition("-")
        if "/" in part:
            ranks.append(rank_of[tuple(map(int, part.split("/")))])
        else:
            ranks += range(int(low), int(high or low) + 1)
    return tuple(ranks)


def with_payloads(plan, folder):
    """Write a job whose calls say what they move.

    Returns:
        By group and operation: bytes, and bytes moved.
    """
    folder.mkdir()
    truth = defaultdict(list)
    for rank in range(plan.ranks_n):
        trace, payloads = rank_profile(plan.outcome, rank), {}
        ahead_ns = -plan.outcome.program.ranks[rank].capture_ns
        for op in filter(lambda op: op.members, plan.outcome.operations[rank]):
            calls, moved = _calls(plan, op, rank)
            at, until = op.call.start + ahead_ns, op.call.end + ahead_ns - 20
            tid = {"tid": 5001 + rank + op.call.thread}
            spans = [(at, until)]
            if len(calls) > 1:
                spans = [(start, start + 1) for start in range(at - 3 * len(calls), at, 3)]
                trace.nvtx("ncclGroupStart", spans[0][0] - 2, spans[0][0] - 1, domain="NCCL", **tid)
                trace.nvtx("ncclGroupEnd", at, until, domain="NCCL", **tid)
            for span, (name, *values) in zip(spans, calls, strict=True):
                trace.nvtx(name, *span, domain="NCCL", **tid)
                payloads[name, span[0]] = call_blob(name, *values)
            if op is op.last_member:
                truth[tuple(sorted(op.work.group)), op.work.name].append(moved)
        add_payloads(trace.write_sqlite(folder / f"rank{rank}.sqlite"), payloads)
    return truth


def _calls(plan, op, rank):
    """Return the calls of an operation with their payloads; and bytes, and what is moved."""
    last, group = op.last_member, op.work.group
    dice = Random(f"{plan.seed} {last.rank} {last.start}")
    sizes = {member: dice.randrange(1 << 10, 1 << 13) for member in sorted(group)}
    comm = Random(f"{sorted(group)} {op.work.name}").randrange(1 << 63)
    if op.work.name != SEND_RECV:
        every = min(sizes.values())
        return [("ncclAllReduce", comm, every, 0)], (every, every)
    if group != plan.group("cp", rank):
        every, name = sizes[group[0]], "ncclSend" if rank == group[0] else "ncclRecv"
        return [(name, comm, every, group.index(rank) ^ 1)], (every, every)
    ring = len(group)
    at = group.index(rank)
    before, behind = group[at - 1], group[(at + 1) % ring]
    calls = [
        ("ncclSend", comm, sizes[rank], group.index(behind)),
        ("ncclRecv", comm, sizes[before], group.index(before)),
    ]
    both = [(sizes[some], sizes[group[place - 1]]) for place, some in enumerate(group)]
    return calls, (max(map(sum, both)), max(map(max, both)))


@pytest.mark.slow
@pytest.mark.parametrize("ring", nightly_but(RINGS, ["alone"]))
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_a_ring_with_payloads_is_told_with_what_it_moves(seed, ring, tmp_path):
    plan = Plan(RINGS[ring], microbatches_n=4, steps_n=4, seed=seed)
    truth = with_payloads(plan, tmp_path / "in")
    tables = quick("comm_stats", tmp_path / "in")
    names = {group: members(text, {}) for group, text in rows(tables["groups"], "group ranks")}
    axes = dict(rows(tables["groups"], "group axis"))
    rings = {plan.group("cp", rank) for rank in range(plan.ranks_n)}
    assert rings == {names[group] for group, axis in axes.items() if axis == "cp"}
    shown = tables["transfers"].groupby("group")[["bytes", "size_bytes"]]
    for group in (group for group, axis in axes.items() if axis == "cp"):
        moved, wanted = shown.get_group(group), truth[names[group], SEND_RECV]
        assert sorted(map(tuple, moved.to_numpy().tolist())) == sorted(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6, 1))
def test_ids_tell_the_messages_of_rings_from_those_of_stages(seed, tmp_path):
    dice = Random(f"ids {seed}")
    sizes, schedule = {"cp": 2, "pp": 2}, ("1f1b", "gpipe")[seed % 2]
    plan = Plan(sizes, schedule, dice.choice((4, 6)), one_stream=True, steps_n=4, seed=seed)
    truth = with_payloads(plan, tmp_path / "in")
    tables = quick("comm_stats", tmp_path / "in")
    names = {group: members(text, {}) for group, text in rows(tables["groups"], "group ranks")}
    sent = tables["transfers"].query("operation == 'send_recv'").groupby("group").size()
    assert {names[group]: n for group, n in sent.items()} == {
        group: len(every) for (group, name), every in truth.items() if name == SEND_RECV
    }
    assert set(rows(tables["bubbles"], "microbatches_n kind")) == {(plan.microbatches_n, schedule)}
