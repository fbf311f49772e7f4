"""When steps take longer: levels, growth and events of each GPU, and how ranks share them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.path import classes
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.when import EVENTS, Course, FloatArray, courses
from nsys_llm.numeric.when_shared import Shared, shared

from .job_tables import JobPaths

#: What of a step takes longer.
COMPUTE, IDLE, COPIES, COMMUNICATION = "compute", "idle", "copies", "communication"
ALL_COMPUTE, BLOCKS = "all_compute", "blocks"
_LOAD: Final = ("requests", "tokens", "keys")
#: Least share of the steps that count; ours.
_LEAST_SHARE: Final = 0.005
#: Steps without it that tell what is usual.
_LEAST_USUAL: Final = 5
#: Events of two classes are one if they share so many of their steps.
_SAME_STEPS: Final = 0.8
#: Compute of all GPUs: each has so much of what their median has; blocks that differ by less than
#: this part of that are the same work. Growth is no fault: contexts grow.
_LEVELS: Final = ("from", "until", "between")
_ALIKE: Final = 0.5
_SAME_WORK: Final = 0.1
#: Of most steps batches differ by less, if their names tell: ours.
_SAME_LOAD, _MOST_STEPS = 0.05, (0.25, 0.5, 0.75, 0.9)
#: Steps whose path says what the host did.
_MOST_LOOKED_AT: Final = 8
#: A place is named if it holds so much.
_MOST: Final = 0.5

#: Blocks of steps, and GPUs, of which each has its excess.
_MOST_BLOCKS, _MOST_SHOWN = 512, 64

_Key = tuple[str, str]


@dataclass(frozen=True)
class _Gpus:
    """Times and blocks of GPUs that have all steps that count, shape (GPUs, steps); their ranks."""

    rank: tuple[int, ...]
    device_id: tuple[int, ...]
    times: Mapping[str, FloatArray]
    meet: bool

    @property
    def n(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class _Lost:
    about: str
    some: Shared
    lost: FloatArray

    @property
    def lost_ns(self) -> float:
        return float(self.lost.sum())


def when_tables(paths: JobPaths, verdicts: Sequence[RankVerdict]) -> dict[str, Any]:
    """Return the tables `when`, what costs most first, and `when_steps`."""
    counted = paths.job.counted
    gpus = _gpus_of(paths, counted)
    wall = paths.wall_ns[counted].astype(np.float64)
    if not gpus.n or not counted.size:
        return {}
    patterns = [
        _Lost(about, some, _lost(some.job, wall))
        for about, rows in _series(gpus, verdicts, float(np.median(wall)))
        if (some := shared(rows, meet=gpus.meet)) is not None
    ]
    patterns = [item for item in patterns if item.lost_ns >= _LEAST_SHARE * wall.sum()]
    patterns = _merged(sorted(patterns, key=lambda item: -item.lost_ns), wall)
    numbered = list(enumerate(patterns, 1))
    return {
        "when": [row for some in numbered for row in _rows(*some, paths, gpus)],
        "when_steps": [row for some in numbered for row in _step_rows(*some, counted, gpus)],
    }


def _gpus_of(paths: JobPaths, counted: IntArray) -> _Gpus:
    found, parts = [], []
    for place, (rank, budget) in enumerate(paths.rows):
        steps = paths.job.step[place, counted]
        for device in budget.devices if (steps >= 0).all() else ():
            rungs = device.rungs_ns[steps].astype(np.float64)
            idle = rungs[:, 4] - device.no_work_ns[steps]
            found.append((rank.number, device.device_id))
            parts.append((rungs[:, 0], idle, rungs[:, 2], rungs[:, 1], device.blocks[steps]))
            parts[-1] += tuple(budget.load[steps].T)
    names = (COMPUTE, IDLE, COPIES, COMMUNICATION, BLOCKS, *_LOAD)
    times = {name: np.array([part[at] for part in parts]) for at, name in enumerate(names) if parts}
    ranks, devices = tuple(zip(*found, strict=True)) or ((), ())
    return _Gpus(ranks, devices, times, bool(parts and times[COMMUNICATION].any()))


def _series(
    gpus: _Gpus, verdicts: Sequence[RankVerdict], step_ns: float
) -> Iterator[tuple[str, list[Course]]]:
    """Yield what may take longer, and the course of each GPU."""
    series_n = 4 * gpus.n
    yield COMPUTE, _compute(gpus, verdicts, step_ns, series_n)
    yield ALL_COMPUTE, _all_compute(gpus, step_ns, series_n)
    yield IDLE, courses(gpus.times[IDLE], step_ns, series_n)
    yield COPIES, courses(gpus.times[COPIES], step_ns, series_n)
    if gpus.n > 1 and gpus.meet:
        # What every rank has is no waiting for one of them.
        least = gpus.times[COMMUNICATION].min(axis=0, keepdims=True)
        yield COMMUNICATION, courses(least, step_ns, series_n) * gpus.n


def _all_compute(gpus: _Gpus, step_ns: float, series_n: int) -> list[Course]:
    """Return since when each GPU computes longer, of launches with as many blocks as before."""
    values, blocks = gpus.times[COMPUTE], gpus.times[BLOCKS]
    (course,) = courses(np.median(values, axis=0, keepdims=True), step_ns, series_n)
    if course.kind not in _LEVELS:
        return []
    has = np.isin(np.arange(values.shape[1]), course.steps)
    usual = np.median(values[:, ~has], axis=1, keepdims=True)
    excess = np.where(has, values - usual, 0.0)
    longer = excess[:, has].mean(axis=1) / np.maximum(usual[:, 0], 1.0)
    there, before = (blocks[:, of].mean(axis=1) for of in (has, ~has))
    alike = longer >= _ALIKE * np.median(longer)
    alike &= (before > 0) & (np.abs(there - before) <= _SAME_WORK * longer * before)
    load = np.concatenate([gpus.times[name] for name in _LOAD])
    ours, theirs = (np.quantile(load[:, of], _MOST_STEPS, axis=1) for of in (has, ~has))
    if not alike.all() or (np.abs(ours - theirs) > _SAME_LOAD * np.abs(theirs)).any():
        return []
    pairs = zip(usual[:, 0].tolist(), excess, strict=True)
    return [replace(course, usual=ns, excess=some) for ns, some in pairs]


def _compute(
    gpus: _Gpus, verdicts: Sequence[RankVerdict], step_ns: float, series_n: int
) -> list[Course]:
    """Return what each GPU computes beyond its peers in each step.

    A step with more work is no fault, so events are left out, and what all peers have.
    """
    values = gpus.times[COMPUTE]
    group_of = {(row.rank, row.device_id): row.peer_group for row in verdicts}
    group = np.array([group_of.get(key, 0) for key in zip(gpus.rank, gpus.device_id, strict=True)])
    found = courses(values[:, :0], step_ns, series_n)
    for number in np.unique(group).tolist():
        rows = np.flatnonzero(group == number)
        if rows.size < 2:
            continue
        # A machine's ranks may be half of them; which of two is the usual one is not known.
        usual = np.quantile(values[rows], 0.25 if rows.size > 3 else 0.5, axis=0)
        usual = usual if rows.size > 2 else np.zeros(values.shape[1])
        beyond = values[rows] - usual + float(np.median(usual))
        some = courses(beyond, step_ns, series_n)
        both = np.intersect1d(some[0].steps, some[1].steps).size if rows.size == 2 else 0
        for at, course in zip(rows.tolist(), some, strict=True):
            if course.kind not in EVENTS and 2 * both <= course.steps.size:
                found[at] = course
    empty = np.zeros(values.shape[1])
    return [course if course.excess.size else replace(course, excess=empty) for course in found]


def _lost(job: Course, wall: FloatArray) -> FloatArray:
    """Return what steps of the job lose, at most what they take longer than steps without it."""
    others = np.setdiff1d(np.arange(wall.size), job.steps)
    lost = job.excess
    total = float(lost.sum())
    if others.size < _LEAST_USUAL or total <= 0:
        return np.clip(lost, 0, None)
    longer = wall[job.steps] - float(np.median(wall[others]))
    return lost * max(min(float(longer.sum()) / total, 1.0), 0.0)


def _merged(patterns: Sequence[_Lost], wall: FloatArray) -> list[_Lost]:
    """Return patterns without events that are in the steps of larger ones: these take all."""
    kept: list[_Lost] = []
    for item in patterns:
        steps = item.some.job.steps
        for place, other in enumerate(kept):
            shared_n = np.isin(steps, other.some.job.steps).sum()
            events = {item.some.job.kind, other.some.job.kind} <= set(EVENTS)
            if events and shared_n >= _SAME_STEPS * steps.size:
                both = replace(other.some.job, excess=other.some.job.excess + item.some.job.excess)
                kept[place] = replace(other, lost=_lost(both, wall))
                break
        else:
            kept.append(item)
    return kept


def _rows(number: int, pattern: _Lost, paths: JobPaths, gpus: _Gpus) -> Iterator[dict[str, Any]]:
    some, counted = pattern.some, paths.job.counted
    ranks = sorted({gpus.rank[at] for at in some.ranks})
    common: dict[str, Any] = {
        "pattern": number,
        "about": pattern.about,
        "sharing": some.sharing,
        "ranks": ", ".join(map(str, ranks)),
        "ranks_n": len(ranks),
        "all_ranks": len(ranks) == len(set(gpus.rank)),
        "of_steps_n": len(paths.job.mark),
    }
    cause, place = _cause(pattern, paths, gpus) if pattern.about == IDLE else (None, None)
    if cause is None and pattern.about in (IDLE, COPIES):
        place = _place(pattern, paths)
    common |= {"place": place or None, "cause": cause}
    job = replace(some.job, usual=float(np.mean([some.parts[at].usual for at in some.ranks])))
    one = some.ranks[0] if some.sharing == "one" else None
    who = {"rank": None, "device_id": None} if one is None else _who(gpus, one)
    yield {**common, **who, "of_job": True, **_numbers(job, pattern.lost, counted)}
    scale = pattern.lost_ns / max(float(some.job.excess.sum()), 1.0)
    for at in some.ranks if one is None else ():
        numbers = _numbers(some.parts[at], some.parts[at].excess * scale, counted)
        yield {**common, **_who(gpus, at), "of_job": False, **numbers}


def _step_rows(
    number: int, pattern: _Lost, counted: IntArray, gpus: _Gpus
) -> Iterator[dict[str, Any]]:
    """Yield what each GPU has beyond its usual, by step or block of steps."""
    parts = pattern.some.parts
    first = np.unique(np.linspace(0, counted.size, _MOST_BLOCKS, endpoint=False).astype(np.int64))
    sizes = np.diff(np.append(first, counted.size))
    most = sorted(range(len(parts)), key=lambda at: -float(parts[at].excess.sum()))[:_MOST_SHOWN]
    for at in sorted(most):
        means = np.add.reduceat(parts[at].excess, first) / sizes
        for step, excess_ns in zip(counted[first].tolist(), means.tolist(), strict=True):
            yield {"pattern": number, **_who(gpus, at), "step": step, "excess_ns": excess_ns}


def _who(gpus: _Gpus, at: int) -> dict[str, int]:
    return {"rank": gpus.rank[at], "device_id": gpus.device_id[at]}


def _numbers(course: Course, lost: FloatArray, counted: IntArray) -> dict[str, Any]:
    steps, lost_ns = counted[course.steps], float(lost.sum())
    n = course.events_n or steps.size
    trend = course.kind in ("grows", "falls")
    # Of a line its highest end, at twice the mean.
    each_ns = (2 if trend else 1) * lost_ns / n
    return {
        "kind": course.kind,
        "first_step": int(steps[0]),
        "last_step": int(steps[-1]),
        "steps_n": int(steps.size),
        "events_n": course.events_n or None,
        "period_steps": course.period,
        "worst_step": int(counted[int(lost.argmax())]),
        "usual_ns": course.usual,
        "excess_ns": round(lost_ns),
        "each_ns": each_ns,
        "excess_pct": 100.0 * each_ns / course.usual if course.usual > 0 else None,
    }


def _cause(pattern: _Lost, paths: JobPaths, gpus: _Gpus) -> tuple[str | None, str | None]:
    """Return what holds half of what GPUs idle in its steps beyond others, and what says so."""
    devices = {
        (rank.number, device.device_id): (place, device.pauses)
        for place, (rank, budget) in enumerate(paths.rows)
        for device in budget.devices
    }
    steps, wanted_ns = pattern.some.job.steps, 0.0
    beyond = Counter[_Key]()
    for at in pattern.some.ranks:
        place, pauses = devices[gpus.rank[at], gpus.device_id[at]]
        own = paths.job.step[place, paths.job.counted].tolist()
        here = {own[k] for k in steps.tolist()}
        wanted_ns += float(pattern.some.parts[at].excess.sum())
        usual = steps.size / max(len(own) - steps.size, 1)
        times = {step: 1.0 if step in here else -usual for step in own}
        for pause in pauses:
            beyond[pause.kind, pause.detail] += round(pause.time_ns * times.get(pause.step, 0.0))
    kinds = Counter[str]()
    for (kind, _), ns in beyond.items():
        kinds[kind] += ns
    kind = max(kinds, key=lambda name: (kinds[name], name), default="")
    if not kind or kinds[kind] < _MOST * wanted_ns:
        return None, None
    return max((key for key in beyond if key[0] == kind), key=lambda key: (beyond[key], key))


def _place(pattern: _Lost, paths: JobPaths) -> str | None:
    """Return the range or call that holds half of it, on the path of its steps beyond others."""
    counted, steps = paths.job.counted, pattern.some.job.steps
    others = np.setdiff1d(np.arange(counted.size), steps)
    largest = steps[np.argsort(-pattern.lost[steps], kind="stable")][:_MOST_LOOKED_AT]
    here = _host_ns(paths, counted[largest])
    usual = _host_ns(paths, counted[others[:_MOST_LOOKED_AT]]) if others.size else Counter[_Key]()
    beyond = {key: ns - usual[key] for key, ns in here.items() if key[1]}
    if not beyond:
        return None
    best = max(beyond, key=lambda key: (beyond[key], key))
    wanted = float(pattern.lost[largest].mean())
    return best[1] if beyond[best] >= _MOST * wanted else None


def _host_ns(paths: JobPaths, steps: IntArray) -> Counter[_Key]:
    """Return the mean time of the path by class and detail: of hosts and copies."""
    sums = Counter[_Key]()
    for step in steps.tolist():
        pieces = paths.charged.pieces_of(step)
        for code, ns in zip(pieces.charge.tolist(), pieces.time_ns.tolist(), strict=True):
            charge = paths.charged.charges[code]
            if charge.kind >= classes.COPY:
                sums[classes.CLASS_NAMES[charge.kind], charge.detail] += ns / steps.size
    return sums
