"""How many bytes each matched collective moves, and how fast, by what its calls say.

And what links of GPUs carry in one direction, by the names of the GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nccl.payloads import CONFLICT, OK
from nsys_llm.facts.nccl.sizes import RankCalls
from nsys_llm.job.collectives.matched import Sequenced
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from .job import CommJob

FloatArray = npt.NDArray[np.float64]

#: Why a collective has no bandwidth, beside the reasons of its calls.
NOT_MATCHED: Final = "not_matched"
NOT_TRACED: Final = "not_traced"
NO_TRANSFER: Final = "no_transfer"
CLOCK: Final = "clock"
NO_FACTOR: Final = "no_factor"
IMPLAUSIBLE_SIZE: Final = "implausible_size"

#: Of the transfer, what the clocks may be wrong by.
_DOUBT: Final = 0.1
#: Operations of which every rank gives a share of what is moved, and those of one buffer.
_SHARES: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_BUFFERS: Final = ("all_reduce", "broadcast", "reduce")
#: Of these every member has as much. So many times as much as another one is damage.
_ALIKE: Final = (*_BUFFERS, "all_gather", "reduce_scatter")
_MOST_TIMES: Final = 2
#: More than a link can carry, in percent: switches reduce on the way.
MOST_PCT: Final = 105.0
#: NVLink of one direction, GB/s, by the names of GPUs: NVIDIA's data sheets. Cards on PCIe have
#: other names; GH200 and GB200 may have no NVLink to others.
_LINKS_GB_S: Final = (
    (re.compile(r"V100-SXM"), 150),
    (re.compile(r"A100-SXM"), 300),
    (re.compile(r"A800-SXM|H800(?! PCIe)"), 200),
    (re.compile(r"H100 80GB HBM3|H100-SXM|\bH200(?! NVL)"), 450),
    (re.compile(r"\bB200\b"), 900),
)
#: Without switches a GPU shares its links among the others: V100 in machines of 8, later ones in
#: machines of 4. So many members use all links whatever the machine.
_WITHOUT_SWITCH: Final = re.compile(r"V100")
_SWITCHED_N: Final = 8
_ALL_LINKS_N: Final = 4
#: No link of any GPU carries as much.
_NONE_GB_S: Final = 2000.0


@dataclass(frozen=True)
class Sized:
    """The collectives of one sequence; arrays of shape (collectives,).

    Attributes:
        operation: Names, of the calls where these are known.
        bytes: Of a member's message, the largest that any tells; NULL_INT where not known.
        size_bytes: What is moved, see docs/comm_stats.md; NULL_INT likewise.
        factor: Of the bus bandwidth; NaN where it is not known.
        comm: Ids of communicators; NULL_INT where not known, or where members differ.
        channels_n: Blocks of the member with most; NULL_INT where not known.
        reason: `ok`, or why there is no bandwidth.
    """

    operation: npt.NDArray[Any]
    bytes: IntArray
    size_bytes: IntArray
    factor: FloatArray
    comm: IntArray
    channels_n: IntArray
    reason: npt.NDArray[Any]


@dataclass(frozen=True)
class _Member:
    """What one member's kernels in a sequence are known to carry."""

    calls: RankCalls
    rows: IntArray
    channels_n: IntArray

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return an attribute of `Carried`, of each kernel."""
        values = [getattr(some, name) for some in self.calls.carried]
        is_number = all(isinstance(value, int) for value in values)
        return np.array(values, dtype=np.int64 if is_number else object)[self.rows]


def all_sized(job: CommJob, link_gb_s: float | None) -> Mapping[int, Sized]:
    """Return the sequences that have collectives, by their numbers; see `most_gb_s`."""
    return {
        number: _sized(job, sequence, link_gb_s)
        for number, sequence in enumerate(job.collectives.sequences)
        if len(sequence)
    }


def _sized(job: CommJob, sequence: Sequenced, link_gb_s: float | None) -> Sized:
    members = []
    for place, owner in enumerate(sequence.owners):
        calls, sizes = job.calls(owner)
        start_ns = sequence.start_ns[place] + sequence.ahead_ns[place]
        rows = sizes.places(sequence.own_end_ns(place), start_ns)
        members.append(_Member(calls, sizes.carried[rows], sizes.channels_n[rows]))

    def column(name: str) -> npt.NDArray[Any]:
        return np.stack([some.column(name) for some in members])

    bytes_, comms, at = column("size_bytes"), column("comm"), np.arange(len(sequence))
    # That member speaks which tells most; where none does, the first one says why.
    best = np.argmax(bytes_, axis=0)
    most, operations = bytes_[best, at], column("operation")[best, at]
    plain = operations == None  # noqa: E711 - element by element
    operations = np.where(plain, sequence.operation, operations)
    # The one id of all members that tell any.
    comm = np.where(comms.max(axis=0) == _least(comms), comms.max(axis=0), NULL_INT)
    known = {item: _ranks_n(members, item) for item in np.unique(comm).tolist()}
    ranks_n = np.array([known[item] for item in comm.tolist()], dtype=np.int64)
    reasons = np.where(most == NULL_INT, column("reason")[best, at], OK)
    differ = np.isin(operations, _ALIKE) & (most // _MOST_TIMES > _least(bytes_))
    most[differ], reasons[differ] = NULL_INT, CONFLICT
    size_bytes, factor = _moved(operations, most, comm, members, ranks_n)
    # A switch that reduces spares a link some of the bus bandwidth, never of what is moved.
    carried, waits = size_bytes * np.fmin(factor, 1.0), sequence.waits
    limit_gb_s = most_gb_s(job, sequence.owners, link_gb_s)
    # The first reason that holds is the last one here.
    for name, chosen in (
        (IMPLAUSIBLE_SIZE, carried > limit_gb_s * waits.transfer_ns),
        (CLOCK, sequence.residual_ns > _DOUBT * waits.transfer_ns),
        (NO_TRANSFER, waits.transfer_ns == 0),
        (NOT_TRACED, ranks_n > len(members)),
        (NOT_MATCHED, ~waits.met),
        (NO_FACTOR, size_bytes == NULL_INT),
        (CONFLICT, ranks_n < len(members)),
    ):
        reasons[np.asarray(chosen) & (most != NULL_INT)] = name
    channels_n = np.stack([some.channels_n for some in members]).max(axis=0)
    return Sized(operations, most, size_bytes, factor, comm, channels_n, reasons)


def _least(values: IntArray) -> IntArray:
    """Return the smallest of each column, nulls left out."""
    return np.asarray(np.where(values == NULL_INT, np.iinfo(np.int64).max, values).min(axis=0))


def _ranks_n(members: list[_Member], comm: int) -> int:
    """Return the ranks of a communicator: its members, if its making is not recorded.

    1, which none has, where what is recorded cannot be.
    """
    sizes = {n for some in members for made, n, _ in some.calls.members if made == comm}
    ranks_n = sizes.pop() if sizes else len(members)
    return 1 if sizes or ranks_n < len(members) else ranks_n


def _moved(
    operations: npt.NDArray[Any],
    most: IntArray,
    comm: IntArray,
    members: list[_Member],
    ranks_n: IntArray,
) -> tuple[IntArray, FloatArray]:
    """Return what is moved, and the factor of the bus bandwidth; NULL_INT and NaN: not known."""
    size_bytes, factor = np.full(most.size, NULL_INT), np.full(most.size, np.nan)
    there = most != NULL_INT
    shares, buffers = there & np.isin(operations, _SHARES), there & np.isin(operations, _BUFFERS)
    size_bytes[shares] = (most * ranks_n)[shares]
    size_bytes[buffers] = most[buffers]
    factor[shares] = ((ranks_n - 1) / ranks_n)[shares]
    factor[buffers] = 1.0
    reduced = buffers & (operations == "all_reduce")
    factor[reduced] = (2 * (ranks_n - 1) / ranks_n)[reduced]
    messages = there & (operations == SEND_RECV)
    if messages.any():
        larger = np.stack([some.column("larger_bytes") for some in members])
        size_bytes[messages] = larger.max(axis=0)[messages]
        for at in np.flatnonzero(messages).tolist():
            member = members[int(larger[:, at].argmax())]
            factor[at] = _apart(member, int(member.rows[at]), comm[at], int(size_bytes[at]))
    return size_bytes, factor


def _apart(member: _Member, row: int, comm: int, size_bytes: int) -> float:
    """Return the share of a member's messages that are not to itself; NaN where not known."""
    peers = member.calls.carried[row].peers
    own = {rank for made, _, rank in member.calls.members if made == comm}
    if not size_bytes or len(own) > 1:
        return np.nan
    if not own:  # who sends to one other, or to fewer than all, sends nothing to itself
        return 1.0 if len(peers) == 1 else np.nan
    rank = own.pop()
    itself = sum(max(sent, received) for peer, sent, received in peers if peer == rank)
    return 1.0 - itself / size_bytes


def of_group_gb_s(
    job: CommJob, owners: Sequence[int], hosts: Collection[str | None]
) -> float | None:
    """Return what a link of a group's GPUs carries in one direction; None where not known."""
    gpus = _gpus(job, owners)
    names = {name for some in gpus for name in some}
    if len(hosts) > 1 or None in hosts or len(names) != 1:
        return None
    name, machine_n = names.pop(), min(map(len, gpus))
    is_v100 = _WITHOUT_SWITCH.search(name) is not None
    has_switch = machine_n >= _SWITCHED_N and not is_v100
    if not has_switch and len(owners) < (_SWITCHED_N if is_v100 else _ALL_LINKS_N):
        return None
    return _of_gpu_gb_s(name)


def most_gb_s(job: CommJob, owners: Sequence[int], link_gb_s: float | None) -> float:
    """Return more than any link of some devices carries, whatever the machine."""
    peaks = [_of_gpu_gb_s(name) for some in _gpus(job, owners) for name in some] or [None]
    limits = [_NONE_GB_S if peak is None else peak * MOST_PCT / 100 for peak in peaks]
    return max(*limits, (link_gb_s or 0.0) * MOST_PCT / 100)


def _gpus(job: CommJob, owners: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the GPUs that the reports of some devices tell of."""
    facts = (job.collectives.devices[owner].rank.facts for owner in owners)
    return [some.gpus for some in facts if some]


def _of_gpu_gb_s(name: str) -> float | None:
    return next((speed for pattern, speed in _LINKS_GB_S if pattern.search(name)), None)
