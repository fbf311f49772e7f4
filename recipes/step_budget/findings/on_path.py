"""Findings on what the critical path is made of: whose host time, behind which waits, copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Final

from nsys_llm.critical_path.path.classes import CLASS_NAMES, HOST_NO_CUDA
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, cells, claim
from nsys_llm.report.host_words import Waited
from nsys_llm.report.prices.replays import is_once
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Gpu, Walls, host_cause, share_of
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.idle_causes import HOST_CAUSES
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.trace.host_part import CUDA_CALL
from nsys_llm.view.text import quoted, ranks_words

from ..tables.tabulation import CLOCKS_APART
from .texts import CERTAIN_PCT, RULES
from .when import when_findings, window_of_steps

_WHICH: Final = ("change", "name")
#: A rank is named if it has so much of the time; ours.
_LEAST_SHARE: Final = 0.6
_NO_CUDA: Final = CLASS_NAMES[HOST_NO_CUDA]
#: Share of some time from which a place in it stands for all of it; ours.
_NEARLY_ALL: Final = 0.9
#: Share of some time from which a second place in it is named; ours.
_WORTH_NAMING: Final = 0.2
#: Rules of classes of time on the path.
_PATH_RULES: Final = {"transfer": "path_transfer", "copy": "path_copies"}


@dataclass(frozen=True)
class Budget:
    """What the findings read: rows of the tables, and what a step is.

    Attributes:
        ceilings: Its rows, most time on the path first.
        unit: What a step is; without steps the run is one.
    """

    tables: Tables
    walls: Walls
    ceilings: Sequence[Record]
    unit: str
    steps_n: int

    @classmethod
    def of(cls, tables: Tables) -> Budget:
        """Read the tables."""
        steps_n = int((tables["job_steps"]["mark"] == "").sum())
        return cls(tables, Walls(tables), records(tables["ceilings"]), step_unit(tables), steps_n)

    def rows(self, change: str, name: str | None = None) -> list[Record]:
        """Return the rows of ceilings of a change with time on the path."""
        rows = [row for row in self.ceilings if row["change"] == change and row["path_ns"]]
        return [row for row in rows if name in (None, row["name"])]

    def critical_gpu(self) -> Gpu:
        """Return the device with most work of the rank with most of the path."""
        ranks = [row["name"] for row in self.ceilings if row["change"] == "rank"]
        file = ranks[0] if ranks else self.tables["device_steps"]["file"].iloc[0]
        return self.busiest(str(file))

    def busiest(self, file: str) -> Gpu:
        """Return the device with most work of a rank; others may hold no more than a context."""
        gpus = [gpu for gpu in self.walls.gpus if self.walls.file(gpu[0]) == file]
        work = (COMPUTE, COMMUNICATION, COPIES)
        return max(gpus, key=lambda gpu: self.walls.class_ns(*gpu, *work))

    def once(self, row: Record) -> bool:
        """Return whether one step has nearly all of a row."""
        return is_once(row["worst_ns"], row["path_ns"], self.steps_n)

    def each(self, row: Record) -> str:
        """Return what times of a row are of, as it follows them; nothing of one event."""
        return "" if self.once(row) else f" a {self.unit}"

    def worst_pct(self, row: Record) -> float | None:
        """Return the share of the job's worst step that a row takes in its own worst one."""
        worst_ns = int(self.tables["job_steps"]["wall_ns"].max())
        if not worst_ns or self.tables["rank_edges"]["step_unit"].isna().all():
            return None
        return min(100.0 * row["worst_ns"] / worst_ns, 100.0)

    def replayed_ns(self, change: str) -> float | None:
        """Return what the replay of a change gains a step; None where there is none."""
        rows = self.tables["what_if"]
        gains = rows.loc[rows["change"] == change, "gain_ns"].dropna()
        return float(gains.iloc[0]) if len(gains) else None


def step_unit(tables: Tables) -> str:
    """Return what a step of the job is; without steps, the run is one."""
    units = tables["rank_edges"]["step_unit"].dropna()
    return str(units.iloc[0]) if len(units) else "run"


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    budget = Budget.of(tables)
    if (tables["rank_edges"]["replay_reason"] == CLOCKS_APART).any():
        ranks_n = claim(tables, "ranks_n", "rank_edges", "rank", "count")
        return [RULES["clocks_apart"].finding(evidence=(ranks_n,)), *rank_findings(tables)]
    if not budget.ceilings or not budget.steps_n:
        return []
    kinds = [row["name"].removeprefix("memcpy ") for row in budget.rows("copy")]
    copies = Change("copies", next(iter(kinds), None))
    return [
        *_host(budget),
        *_waits(budget),
        *_of_class(budget, "transfer", Cause("transfer"), Change("transfer")),
        *_of_class(budget, "copy", Cause("copies"), copies),
        *rank_findings(tables),
        *when_findings(tables),
        *_inferred(tables),
    ]


def _idlest(budget: Budget) -> Gpu | None:
    """Return the GPU of the job that idles most by host causes; None where none does."""
    walls = budget.walls
    gpus = (gpu for gpu in walls.gpus if not walls.group(gpu[0]))
    gpu = max(gpus, key=lambda gpu: (walls.host_idle_ns(gpu), -gpu[0]), default=None)
    return gpu if gpu is not None and walls.host_idle_ns(gpu) else None


def _late_host(budget: Budget, gpu: Gpu) -> Cause:
    return host_cause(budget.walls.beside(budget.walls.host_losses_ns, gpu), gpu)


def _host(budget: Budget) -> list[Finding]:
    gpu = _idlest(budget)
    rows = [row for name in ("host_no_cuda", "launch_api") for row in budget.rows("class", name)]
    if gpu is None or not rows:
        return []
    idle_ns = budget.walls.host_idle_ns(gpu)
    launches_ns = budget.walls.detail_ns(gpu, IDLE, "launch_api")
    case = "launches" if 2 * launches_ns > idle_ns else None
    row = next((row for row in rows if row["name"] == "launch_api"), rows[0]) if case else rows[0]
    cause = _late_host(budget, gpu)
    gain_ns = budget.replayed_ns("host=0") or idle_ns / budget.steps_n
    fields, evidence = _host_time(budget.tables, cause.rank, gain_ns, once=budget.once(row))
    idle, *_ = share_of(budget.tables, gpu, "host_idle_ns", IDLE, *HOST_CAUSES)
    return [
        RULES["path_host"].finding(
            case=case,
            cause=cause,
            change=Change("host", worst_pct=budget.worst_pct(row)),
            fields={**fields, "unit": budget.unit, "each": budget.each(row)},
            evidence=(*evidence, idle),
            **_place(budget, gpu, row),
        )
    ]


def _waits(budget: Budget) -> list[Finding]:
    gpu = _idlest(budget)
    if gpu is None:
        return []
    late, reported = _late_host(budget, gpu).rank, []
    for row in budget.rows("wait"):
        gain_ns = budget.replayed_ns(f"wait:{row['name']}")
        once = budget.once(row)
        fields, evidence = _host_time(budget.tables, late, gain_ns, row["name"], once=once)
        reported.append(
            RULES["path_waits"].finding(
                cause=Cause("wait", detail=row["name"]),
                change=Change("wait", row["name"], worst_pct=budget.worst_pct(row)),
                fields={**fields, "unit": budget.unit, "each": budget.each(row)},
                evidence=(*evidence, *cells("ceilings", row, _WHICH, ("worst_ns",))),
                name=row["name"],
                **_place(budget, gpu, row),
            )
        )
    return reported


def _host_time(
    tables: Tables,
    late: int | None,
    gain_ns: float | None,
    behind: str | None = None,
    *,
    once: bool = False,
) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """Return words on the time of hosts on the path, a late rank's where that has most, and cells.

    Args:
        gain_ns: What it may gain a step; None where nobody knows. A place that holds half of both
            is named in the title.
        behind: API function of the wait that it lies behind, with devices that idle; None: all.
        once: Whether one step has nearly all of it: all times are then of the run, not of a step.

    Returns:
        Fields of the templates; and their numbers: `path_ns`, all of it, `most_ns`, the part in the
        place with most, `shown_ns`, what the title begins with, and the parts that it names then.
    """
    states, column = tables["host_states"], "time_ns" if behind is None else "idle_ns"
    states = states if behind is None else states[states["behind"] == behind]
    ranks = _ranks(states.groupby("rank")[column].sum().to_dict(), late)
    where: dict[str, Any] = {"rank": ranks if len(ranks) > 1 else ranks[0]}
    where |= {} if behind is None else {"behind": behind}
    counted = claim(tables, "steps_n", "host_states", "steps_n", "cell")
    steps, times = (None, counted.value) if once else (counted, 1)

    def of(name: str, **more: Any) -> Evidence:
        return claim(tables, name, "host_states", column, "sum", steps, **where, **more)

    rows = Waited(records(states[states["rank"].isin(ranks)]), (), tuple(where.items()))
    chosen, *others = _places(rows, column)
    (*_, key), (*_, name) = chosen.keys(), chosen.values()
    path, most = of("path_ns"), of("most_ns", **chosen)
    there = reduce(lambda some, column: some.where(column, chosen[column]), chosen, rows)
    place, said = rows.where_words(name), there.said if key == "range" else ""
    fields: dict[str, Any] = {"whose": _whose(tables, ranks, late, behind), "place": place + said}
    fields |= {"part_ns": None, "part_where": "", "next_ns": None, "next_where": ""}
    limit_ns = 0.5 * max(path.value, times * (gain_ns or 0.0))
    if most.value < limit_ns:
        fields |= {"where": " on the critical path", "host_advice": advice_on(call=behind)}
        return fields, (path, most, replace(path, name="shown_ns"), *there.evidence)
    shown, fields["where"] = replace(most, name="shown_ns"), place + said
    if said and there.doing[1] is not None:
        inner = of("shown_ns", **chosen, state=there.doing[0], detail=there.doing[1])
        shown, fields["where"] = _titled(shown, inner, place, limit_ns)
    call = name if key == "detail" else behind
    fields["host_advice"] = there.advice or advice_on(range=name, call=call)
    evidence = [path, most, *there.evidence]
    if shown.value >= _NEARLY_ALL * path.value:
        return fields, (*evidence, shown)
    fields |= {"part_where": fields["where"], "where": ""}
    del fields["part_ns"]
    evidence += [replace(path, name="shown_ns"), replace(shown, name="part_ns")]
    if others and (beside := of("next_ns", **others[0])).value >= _WORTH_NAMING * path.value:
        evidence.append(beside)
        del fields["next_ns"]
        fields["next_where"] = rows.where_words([*others[0].values()][-1])
    return fields, tuple(evidence)


def _titled(shown: Evidence, inner: Evidence, place: str, limit_ns: float) -> tuple[Evidence, str]:
    """Return what a title has of a place: a function that holds half by itself, or all of it."""
    if inner.value < limit_ns:
        return shown, place
    return inner, f" in {quoted(dict(inner.where)['detail'])}{place}"


def _ranks(times_ns: Mapping[Any, int], late: int | None) -> tuple[int, ...]:
    """Return the late rank where it has most of some time, else all, the largest first."""
    ranks = sorted((rank for rank, ns in times_ns.items() if ns), key=lambda rank: -times_ns[rank])
    if late is not None and times_ns.get(late, 0) >= _LEAST_SHARE * sum(times_ns.values()):
        return (late,)
    return tuple(ranks)


def _whose(tables: Tables, ranks: tuple[int, ...], late: int | None, behind: str | None) -> str:
    """Return whose host it is, as a title begins; no rank that is like others is named alone."""
    if ranks == (late,) or (behind is None and tables["wall"]["rank"].nunique() == 1):
        return f"Rank {ranks[0]}'s host"
    if behind is not None or len(ranks) == 1:
        return "Host"
    return f"Hosts of {ranks_words(ranks)}"


def _places(rows: Waited, column: str) -> list[dict[str, str | None]]:
    """Return what chooses the rows of each range or call, the one with most time first.

    The name stands last. Without any, the time outside all ranges is the only one.
    """
    sums = Counter[tuple[str, str | None]]()
    for row in rows.states:
        key = "range" if row["cause"] == _NO_CUDA else "detail"
        # The way to the GPU, and the profiler, are no place.
        if key == "range" or row["detail"] is not None:
            sums[key, row[key]] += row[column]
    places = sorted(sums, key=lambda place: (sums[place], str(place)), reverse=True)
    return [
        {**({"cause": _NO_CUDA} if key == "range" else {"state": CUDA_CALL}), key: name}
        for key, name in places or [("range", None)]
    ]


def _of_class(budget: Budget, name: str, cause: Cause, change: Change) -> list[Finding]:
    """Return the finding on a class of time on the path."""
    return [
        RULES[_PATH_RULES[name]].finding(
            cause=cause,
            change=change,
            fields={"unit": budget.unit},
            evidence=cells("ceilings", row, _WHICH, ("path_ns", "worst_ns")),
            **_place(budget, budget.critical_gpu(), row),
        )
        for row in budget.rows("class", name)
    ]


def _place(budget: Budget, gpu: Gpu, row: Record) -> dict[str, Any]:
    step = row["worst_step"]
    return {
        "ranks": (gpu[0],),
        "rank": gpu[0],
        "device_id": gpu[1],
        "window_ns": None if step is None else window_of_steps(budget.tables, gpu, step, step),
        "impact_ns": round(row["path_ns"] * budget.steps_n),
    }


def _inferred(tables: Tables) -> list[Finding]:
    of = partial(claim, tables, mark="")
    wall = of("wall_ns", "job_steps", "wall_ns")
    certain = of("certain_pct", "job_steps", "certain_ns", "sum", wall)
    if certain.value is None or certain.value >= CERTAIN_PCT:
        return []
    inferred = of("inferred_ns", "job_steps", "wall_ns-certain_ns")
    return [RULES["path_inferred"].finding(evidence=(certain, inferred, wall))]
