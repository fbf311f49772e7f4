"""What a change of the critical path gains on one GPU, as far as that GPU can win it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.report.gains import Gain
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, IDLE, PROFILER, TRANSFER

from .replays import cut_steps_ns, step_unit, steps_gained, steps_in

#: Communication that is not known to be transfer, beside the classes of a GPU.
_WAITED: Final = "waited"
#: Classes in which a GPU does nothing.
_NO_WORK: Final = (IDLE, PROFILER)


@dataclass(frozen=True)
class Gpu:
    """The GPU whose time a finding is about.

    Attributes:
        rank: Its rank.
        file: Label of the rank.
        device_id: CUDA device id.
        times_ns: Time by class of the wall split, and that of waits.
        span_ns: From its first operation to its last one.
        cut_ns: Time in steps that the capture cuts.
    """

    rank: int
    file: str
    device_id: int
    times_ns: dict[str, int]
    span_ns: int
    cut_ns: int


def critical_file(tables: Tables, rows: Sequence[Record]) -> str:
    """Return the label of the rank with most of the path."""
    ranks = [row for row in rows if row["change"] == "rank"]
    if ranks:
        return str(ranks[0]["name"])
    return str(tables["device_steps"]["file"].iloc[0])


def gpu_of_file(tables: Tables, file: str) -> Gpu:
    """Return the device of a rank with most of its work; of several, the first.

    Others may hold no more than a context, or a fill.
    """
    wall = tables["wall"]
    rank_wall = wall[wall["file"] == file]
    work_ns = rank_wall["time_ns"].where(~rank_wall["wall_class"].isin(_NO_WORK), 0)
    busiest = work_ns.groupby(rank_wall["device_id"]).sum().idxmax()
    rank_rows = records(rank_wall)
    first = next(row for row in rank_rows if row["device_id"] == busiest)
    times: dict[str, int] = {}
    for row in rank_rows:
        if row["device_id"] == first["device_id"]:
            name = row["wall_class"]
            times[name] = times.get(name, 0) + row["time_ns"]
            if name == COMMUNICATION and row["detail"] != TRANSFER:
                times[_WAITED] = times.get(_WAITED, 0) + row["time_ns"]
    cut_ns = cut_steps_ns(file, first["device_id"], tables)
    return Gpu(first["rank"], file, first["device_id"], times, first["span_ns"], cut_ns)


def gain_on(
    row: Record,
    gpu: Gpu,
    wall_classes: tuple[str, ...],
    tables: Tables,
    n: int,
    replay: Record | None = None,
) -> Gain:
    """Return the gain of a change, as far as that GPU can win it.

    Its time on the path is a bound, with the replay beside it. The replay is the gain, and an
    estimate, where that is no bound: of what takes an edge away, and where a replay gains more, as
    what goes away with it was not on the path (calls that wait for copies; what earlier steps left
    to do).
    """
    # Who launches earlier is waited for less, and transfers nothing faster.
    waited = {COMMUNICATION: _WAITED} if IDLE in wall_classes else {}
    most_ns = sum(gpu.times_ns.get(waited.get(name, name), 0) for name in wall_classes)

    has_steps = bool(tables["rank_edges"]["step_unit"].notna().any())
    # Without steps the run is one.
    steps_n = steps_gained(gpu.span_ns, gpu.cut_ns, tables) if has_steps else n

    def won_ns(step_ns: float) -> int:
        return max(min(round(step_ns * steps_n), most_ns), 0)

    gain_ns, is_bound, beside_pct = won_ns(row["path_ns"]), bool(row["is_bound"]), None
    basis = "path"
    if replay is not None and is_bound and round(replay["gain_ns"] * steps_n) <= gain_ns:
        beside_pct = 100.0 * won_ns(replay["gain_ns"]) / gpu.span_ns if gpu.span_ns else None
    elif replay is not None:
        gain_ns, is_bound, basis = won_ns(replay["gain_ns"]), False, "replay"
    worst_ns = int(tables["job_steps"]["wall_ns"].max())
    # Of a run that is one step there is no rare slow one.
    rare = has_steps and worst_ns > 0 and gain_ns > 0
    return Gain(
        gain_ns=gain_ns,
        span_ns=gpu.span_ns,
        wall_classes=wall_classes,
        basis=basis,
        is_bound=is_bound,
        steps_n=steps_in(gpu.span_ns, tables) if has_steps else None,
        step_unit=step_unit(tables),
        tail_pct=min(100.0 * row["worst_ns"] / worst_ns, 100.0) if rare else None,
        replayed_pct=beside_pct,
    )
