"""Pipelines: stages that send to and receive from their neighbors, and the bubble of the schedule.

A stage waits for its neighbors by schedule: while the pipeline fills, while it drains, and for what
is computed on its behalf elsewhere. Such waiting is nobody's fault, so pairs of stages are no
communicators of equals, and whoever comes last there is not late. Reads finished tables only.

Recognized by facts that stand together. Ranks send and receive in pairs, and the pairs form a
chain, or a ring where stages are interleaved. Warm-up and cool-down: down a chain of three stages
or more each pair begins later and ends earlier. Two stages compute in turn; two ranks that exchange
data and launch the same kernels between two transfers are equals, however long either takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from nsys_llm.report.records import Tables, records
from nsys_llm.taxonomy.communication import SEND_RECV

#: Rank and device.
Stage = tuple[int, int]

LEAST_STAGES: Final = 3
#: Two ranks are stages if so much of their kernels is launched in turn, in percent; with 16
#: microbatches a step it is 8; ours.
_TURNS_PCT: Final = 4.0
#: A pair begins later and ends earlier than the one before by this part of the mean time between
#: its transfers, at least; ours. A stage takes as long as a computation, so a third and more.
_STAGGER: Final = 0.1


@dataclass(frozen=True)
class Pipeline:
    """One pipeline.

    Attributes:
        stages: Rank and device of each stage, in the order of the chain.
        pairs: Names of its communicators.
        transfers_n: Matched sends with their receives.
        window_ns: The longest window of its devices.
        compute_ns: Of each stage, kernels but communication.
        bubbles_ns: Of each stage, what of the window is neither that nor other communication nor
            transfer. Of kernels that send or receive while the stage computes, transfer and
            waiting are taken to be hidden alike.
        idle_ns: Of each stage, time in which its GPU ran nothing at all.
        turns_pct: Of two stages, kernels that they launch in turn; None for more stages.
    """

    stages: tuple[Stage, ...]
    pairs: frozenset[str]
    transfers_n: int
    window_ns: int
    compute_ns: tuple[int, ...]
    bubbles_ns: tuple[int, ...]
    idle_ns: tuple[int, ...]
    turns_pct: float | None = None

    @property
    def bubble_pct(self) -> float:
        """Share of the stages' windows, 0 to 100."""
        return 100.0 * sum(self.bubbles_ns) / max(self.window_ns * len(self.stages), 1)

    @property
    def ranks(self) -> str:
        """Its ranks in the order of the chain, for sentences."""
        return ", ".join(str(rank) for rank, _ in self.stages)


def stage_pairs(tables: Tables, pipelines: Sequence[Pipeline]) -> frozenset[str]:
    """Return the communicators in which coming last blames nobody.

    Those of all pipelines, and of chains that a capture without warm-up and cool-down shows.
    """
    pairs = _pairs(tables)
    chains = [stages for stages, closed in _chains(pairs) if not closed]
    inside = {stage for stages in chains for stage in stages}
    open_pairs = {name for name, ends in pairs.items() if inside.issuperset(ends)}
    return frozenset(open_pairs).union(*(pipeline.pairs for pipeline in pipelines))


def find_pipelines(tables: Tables) -> list[Pipeline]:
    """Return all pipelines, in the order of their first ranks."""
    pairs = _pairs(tables)
    pipelines = []
    for stages, _ in _chains(pairs):
        names = {frozenset(ends): name for name, ends in pairs.items()}
        along = [names[frozenset(two)] for two in pairwise(stages)]
        if _is_staggered(along, tables):
            chain_names = frozenset(
                name for name, ends in pairs.items() if set(ends) <= set(stages)
            )
            ends = {name: pairs[name] for name in chain_names}
            pipelines.append(_pipeline(stages, ends, tables))
    return sorted([*pipelines, *_couples(tables)], key=lambda pipeline: pipeline.stages)


def _couples(tables: Tables) -> list[Pipeline]:
    """Return the pipelines of two stages: devices that exchange data with each other only."""
    sequences = tables["communicators"]
    selected = sequences[(sequences["operation"] == SEND_RECV) & (sequences["ranks_n"] == 2)]
    turns = selected.groupby("communicator", sort=True)["turns_pct"].max()
    pairs = _ends(set(selected["communicator"]), tables)
    times = Counter(stage for two in pairs.values() for stage in two)
    return [
        _pipeline(two, {name: two}, tables, turns_pct=float(turns[name]))
        for name, two in pairs.items()
        if turns[name] >= _TURNS_PCT and max(times[stage] for stage in two) == 1
    ]


def _pairs(tables: Tables) -> dict[str, tuple[Stage, Stage]]:
    """Return the communicators of two devices that do nothing but send and receive."""
    sequences = tables["communicators"]
    selected = sequences[(sequences["ranks_n"] == 2) & (sequences["collectives_n"] > 0)]
    others = set(selected.loc[selected["operation"] != SEND_RECV, "communicator"])
    return _ends(set(selected["communicator"]) - others, tables)


def _ends(names: set[str], tables: Tables) -> dict[str, tuple[Stage, Stage]]:
    """Return the two devices of each communicator."""
    members = tables["stragglers"][["communicator", "rank", "device_id"]]
    stages: dict[str, list[Stage]] = {name: [] for name in sorted(names)}
    for row in records(members[members["communicator"].isin(names)]):
        stages[row["communicator"]].append((row["rank"], row["device_id"]))
    return {name: (min(two), max(two)) for name, two in stages.items() if len(set(two)) == 2}


def _chains(
    pairs: Mapping[str, tuple[Stage, Stage]],
) -> list[tuple[tuple[Stage, ...], bool]]:
    """Return sets of stages of which each has two neighbors at most, in order, and if closed."""
    near: dict[Stage, set[Stage]] = {}
    for stage, other in pairs.values():
        near.setdefault(stage, set()).add(other)
        near.setdefault(other, set()).add(stage)
    left, chains = set(near), []
    while left:
        ends = [stage for stage in left if len(near[stage]) == 1]
        walk, ahead = [], [min(_joined(min(ends or left), near) & set(ends or left))]
        while ahead:
            walk.append(ahead[0])
            ahead = sorted(near[walk[-1]] - set(walk))
        every = _joined(walk[0], near)
        left -= every
        if len(walk) == len(every) >= LEAST_STAGES and all(len(near[s]) <= 2 for s in every):
            chains.append((tuple(walk), walk[0] in near[walk[-1]]))
    return sorted(chains)


def _joined(stage: Stage, near: Mapping[Stage, set[Stage]]) -> set[Stage]:
    """Return all stages that are linked with one."""
    joined, ahead = {stage}, [stage]
    while ahead:
        new = near[ahead.pop()] - joined
        joined |= new
        ahead += new
    return joined


def _is_staggered(along: Sequence[str], tables: Tables) -> bool:
    """Return whether each pair begins later and ends earlier than the one before, or after."""
    collectives = tables["collectives"]
    end_ns = collectives[collectives["operation"] == SEND_RECV].groupby("communicator")[
        "last_end_ns"
    ]
    first, last, n = (end_ns.agg(how).reindex(along) for how in ("min", "max", "count"))
    least_ns = _STAGGER * float(((last - first) / n).median())
    begins, ends = first.diff().iloc[1:], last.diff().iloc[1:]
    down = bool((begins >= least_ns).all() and (ends <= -least_ns).all())
    return down or bool((begins <= -least_ns).all() and (ends >= least_ns).all())


def _pipeline(
    stages: tuple[Stage, ...],
    pairs: Mapping[str, tuple[Stage, Stage]],
    tables: Tables,
    turns_pct: float | None = None,
) -> Pipeline:
    devices = {(row["rank"], row["device_id"]): row for row in records(tables["tail_ranks"])}
    window_ns = max(devices[stage]["window_ns"] for stage in stages)
    compute_ns = tuple(int(devices[stage]["total_ns"]) for stage in stages)
    idle_ns = tuple(int(devices[stage]["idle_ns"]) for stage in stages)
    transfer_ns, transfers_n = _transfers(pairs, tables)
    other_ns, p2p_ns = _communication(tables)
    bubbles_ns = []
    for stage, own_ns in zip(stages, compute_ns, strict=True):
        left_ns = max(int(window_ns) - own_ns - other_ns.get(stage, 0), 0)
        # Where kernels that wait run beside computation, as much of the transfers does.
        exposed_ns = transfer_ns[stage] * min(left_ns, p2p_ns[stage]) // max(p2p_ns[stage], 1)
        bubbles_ns.append(max(left_ns - exposed_ns, 0))
    return Pipeline(
        stages,
        frozenset(pairs),
        transfers_n,
        int(window_ns),
        compute_ns,
        tuple(bubbles_ns),
        idle_ns,
        turns_pct,
    )


def _communication(tables: Tables) -> tuple[dict[Stage, int], dict[Stage, int]]:
    """Return the time of each device in collectives, and in sends and receives."""
    other_ns: dict[Stage, int] = {}
    p2p_ns: dict[Stage, int] = {}
    for row in records(tables["collective_coverage"]):
        own_ns = p2p_ns if row["operation"] == SEND_RECV else other_ns
        stage = row["rank"], row["device_id"]
        own_ns[stage] = own_ns.get(stage, 0) + int(row["total_ns"])
    return other_ns, p2p_ns


def _transfers(
    pairs: Mapping[str, tuple[Stage, Stage]], tables: Tables
) -> tuple[dict[Stage, int], int]:
    """Return how long each stage transfers, and how many transfers there are."""
    sequences = tables["communicators"]
    sequences = sequences[sequences["operation"] == SEND_RECV]
    transfer_ns: dict[Stage, int] = {}
    transfers_n = 0
    for name, ends in pairs.items():
        selected = sequences[sequences["communicator"] == name]
        transfers_n += int(selected["collectives_n"].sum())
        for stage in ends:
            before = transfer_ns.get(stage, 0)
            transfer_ns[stage] = before + int(selected["transfer_ns"].sum())
    return transfer_ns, transfers_n
