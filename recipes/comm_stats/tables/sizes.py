"""How many bytes each matched collective moves, and how fast, by what its calls say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nccl.payloads import CONFLICT, OK
from nsys_llm.facts.nccl.sizes import RankCalls
from nsys_llm.job.collectives.matched import Sequenced
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.communication import SEND_RECV

from . import links
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


def sized(job: CommJob, number: int, link_gb_s: float | None) -> Sized:
    """Return what is known of the collectives of a sequence; see `links.most_gb_s`."""
    sequence = job.collectives.sequences[number]
    members = [_member(job, sequence, place) for place in range(len(sequence.owners))]
    bytes_ = np.stack([some.column("size_bytes") for some in members])
    at = np.arange(len(sequence))
    # That member speaks which tells most; where none does, the first one says why.
    best = np.argmax(bytes_, axis=0)
    least = np.where(bytes_ == NULL_INT, np.iinfo(np.int64).max, bytes_).min(axis=0)
    most = bytes_[best, at]

    def told(name: str) -> Any:
        return np.stack([some.column(name) for some in members])[best, at]

    comm = _alike(np.stack([some.column("comm") for some in members]))
    known = {item: _ranks_n(members, item) for item in np.unique(comm).tolist()}
    ranks_n = np.array([known[item] for item in comm.tolist()], dtype=np.int64)
    operations = told("operation")
    plain = operations == None  # noqa: E711 - element by element
    operations = np.where(plain, sequence.operation, operations)
    reasons = np.where(most == NULL_INT, told("reason"), OK)
    differ = np.isin(operations, _ALIKE) & (most // _MOST_TIMES > least)
    most[differ], reasons[differ] = NULL_INT, CONFLICT
    result = Sized(
        operation=operations,
        bytes=most,
        size_bytes=np.full(at.size, NULL_INT),
        factor=np.full(at.size, np.nan),
        comm=comm,
        channels_n=np.stack([some.channels_n for some in members]).max(axis=0),
        reason=reasons,
    )
    most_gb_s = links.most_gb_s(job, sequence.owners, link_gb_s)
    return _judged(_moved(result, members, ranks_n), sequence, ranks_n, most_gb_s)


def _member(job: CommJob, sequence: Sequenced, place: int) -> _Member:
    calls, sizes = job.calls(sequence.owners[place])
    start_ns = sequence.start_ns[place] + sequence.ahead_ns[place]
    rows = sizes.places(sequence.own_end_ns(place), start_ns)
    return _Member(calls, sizes.carried[rows], sizes.channels_n[rows])


def _alike(comms: IntArray) -> IntArray:
    """Return the one id that all members tell that tell any; NULL_INT where there is none."""
    known = comms != NULL_INT
    most = comms.max(axis=0)
    least = np.where(known, comms, np.iinfo(np.int64).max).min(axis=0)
    return np.where(known.any(axis=0) & (most == least), most, NULL_INT)


def _ranks_n(members: list[_Member], comm: int) -> int:
    """Return the ranks of a communicator: its members, if its making is not recorded.

    1, which none has, where what is recorded cannot be.
    """
    sizes = {n for some in members for made, n, _ in some.calls.members if made == comm}
    ranks_n = sizes.pop() if sizes else len(members)
    return 1 if sizes or ranks_n < len(members) else ranks_n


def _moved(known: Sized, members: list[_Member], ranks_n: IntArray) -> Sized:
    """Return them with what is moved, and the factor of the bus bandwidth."""
    there = known.bytes != NULL_INT
    size_bytes, factor = known.size_bytes.copy(), known.factor.copy()
    shares = there & np.isin(known.operation, _SHARES)
    buffers = there & np.isin(known.operation, _BUFFERS)
    messages = there & (known.operation == SEND_RECV)
    size_bytes[shares] = (known.bytes * ranks_n)[shares]
    size_bytes[buffers] = known.bytes[buffers]
    factor[shares] = ((ranks_n - 1) / ranks_n)[shares]
    factor[buffers] = 1.0
    reduced = buffers & (known.operation == "all_reduce")
    factor[reduced] = (2 * (ranks_n - 1) / ranks_n)[reduced]
    if messages.any():
        larger = np.stack([some.column("larger_bytes") for some in members])
        size_bytes[messages] = larger.max(axis=0)[messages]
        for at in np.flatnonzero(messages).tolist():
            most = members[int(larger[:, at].argmax())]
            factor[at] = _apart(most, int(most.rows[at]), known.comm[at], int(size_bytes[at]))
    return replace(known, size_bytes=size_bytes, factor=factor)


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


def _judged(known: Sized, sequence: Sequenced, ranks_n: IntArray, most_gb_s: float) -> Sized:
    """Return them with the reasons why there is no bandwidth, the first that holds."""
    waits, reason = sequence.waits, known.reason.copy()
    doubt_ns = sequence.residual_ns
    # A switch that reduces spares a link some of the bus bandwidth, never of what is moved.
    carried = known.size_bytes * np.fmin(known.factor, 1.0)
    for name, chosen in (
        (IMPLAUSIBLE_SIZE, carried > most_gb_s * waits.transfer_ns),
        (CLOCK, doubt_ns > _DOUBT * waits.transfer_ns),
        (NO_TRANSFER, waits.transfer_ns == 0),
        (NOT_TRACED, ranks_n > len(sequence.owners)),
        (NOT_MATCHED, ~waits.met),
        (NO_FACTOR, known.size_bytes == NULL_INT),
        (CONFLICT, ranks_n < len(sequence.owners)),
    ):
        reason[np.asarray(chosen) & (known.bytes != NULL_INT)] = name
    return replace(known, reason=reason)


def all_sized(job: CommJob, link_gb_s: float | None) -> Mapping[int, Sized]:
    """Return the sequences that have collectives, by their numbers; see `sized`."""
    return {
        number: sized(job, number, link_gb_s)
        for number, sequence in enumerate(job.collectives.sequences)
        if len(sequence)
    }
