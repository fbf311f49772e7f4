"""What changed, by kind: the clues of which answer and findings are made. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.report.records import Tables, first_record, records
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import (
    format_bytes,
    format_change,
    format_count,
    format_ns,
    format_percent,
    quoted,
)

from ..tables.step_splits import STEP
from .change import Clue, changed, matters
from .kernels import kernel_clues, work_ratio
from .normalization import Basis
from .ranks import with_rank
from .texts import COPIES_PCT, IDLE_POINTS, LEAST_COPIES, LEAST_GAIN_PCT

#: Percent of a change of waiting from which the profiler's part of it is said; ours.
_PROFILER_PCT: Final = 5.0

_COMMUNICATION: Final = ("comm_wait", "comm_transfer")
_KINDS: Final = {
    "DtoD": "device-to-device copies",
    "HtoD": "host-to-device copies",
    "DtoH": "device-to-host copies",
    "PtoP": "copies between GPUs",
    "memset": "memory fills",
}


def find_clues(tables: Tables, basis: Basis) -> list[Clue]:
    """Return all clues, largest first."""
    clues = [
        *kernel_clues(basis),
        *_communication(tables, basis),
        *_copies(tables, basis),
        *_idle(tables, basis),
    ]
    clues = with_rank(clues, tables, basis)
    return sorted(clues, key=lambda clue: (-abs(clue.impact_ns), clue.rule, clue.name or ""))


def _communication(tables: Tables, basis: Basis) -> Iterator[Clue]:
    kernels = basis.kernels
    talks = kernels[kernels["communication"]]
    change_ns = float(talks["change"].sum())
    if not matters(change_ns, basis):
        return
    rows = tables["collectives"]
    whole = rows[rows["communicator"] == "all"]
    text = f"communication takes {changed(change_ns)}"
    metrics, a_step = tables["metrics"].set_index("metric")["change"], basis.per_step
    changes = metrics[[f"{item}_per_step" if a_step else item for item in _COMMUNICATION]]
    # Where one of the runs has no collective that was matched, there is nothing to compare.
    if whole.empty or changes.isna().any():
        yield Clue("communication", change_ns, text, tables=("kernels",), category="communication")
        return
    all_row = whole.iloc[0]
    wait_ns, transfer_ns = map(float, changes)
    waits, late = abs(wait_ns) > abs(transfer_ns), ""
    most_ns = wait_ns if waits else transfer_ns
    # What is not matched is neither, as far as anyone knows.
    reported = most_ns * change_ns > 0 and 2 * abs(most_ns) >= abs(change_ns)
    pairs = waits and _is_of_pairs(rows, all_row)
    whom = "waiting between ranks that send and receive" if pairs else "waiting for late ranks"
    brief = f"{whom if waits else 'transfer'} {changed(most_ns)}"
    profiler_ns, of_it = _profiler_ns(all_row, basis) if waits else 0.0, ""
    if 100 * abs(profiler_ns) >= _PROFILER_PCT * abs(most_ns) and profiler_ns:
        of_it = f", {changed(profiler_ns)} of it the profiler's own work"
    brief += of_it
    if reported and waits and not pairs and wait_ns > 0 and not pd.isna(all_row["input_late_rank"]):
        brief += f", most for rank {all_row['input_late_rank']}"
        late = f"; most of the waiting is for rank {all_row['input_late_rank']}"
        if not pd.isna(all_row["baseline_late_rank"]):
            same = all_row["baseline_late_rank"] == all_row["input_late_rank"]
            late += ", as before" if same else f", and was for rank {all_row['baseline_late_rank']}"
    rule = ("waiting" if waits else "transfer") if reported else "communication"
    if rule == "waiting" and 2 * profiler_ns / wait_ns >= 1:
        rule = "profiler_wait"
    elif rule == "waiting" and pairs:
        rule = "pair_waiting"
    yield Clue(
        rule,
        change_ns,
        f"{text}: {whom} {changed(wait_ns)}{of_it}, transfer {changed(transfer_ns)}{late}",
        category="communication",
        brief=f"{text} ({brief}){'' if a_step else ', summed over all GPUs'}",
        numbers={
            "wait_ns": wait_ns,
            "transfer_ns": transfer_ns,
            "profiler_ns": profiler_ns,
            **{
                name: float(all_row[name])
                for name in ("baseline_late_rank", "input_late_rank")
                if late and not pd.isna(all_row[name])
            },
        },
    )


def _is_of_pairs(rows: pd.DataFrame, whole: Any) -> bool:
    """Tell whether half of the change of waiting or more is in sends and receives of two devices.

    Stages of a pipeline wait for each other by schedule, so who comes last there is not late.
    """
    pair = [_devices_n(str(name)) == 2 for name in rows["communicator"]]
    selected = rows[(rows["operation"] == SEND_RECV) & np.array(pair, dtype=bool)]
    own_ns, whole_ns = int(selected["wait_change_ns"].sum()), int(whole["wait_change_ns"])
    return own_ns * whole_ns > 0 and 2 * abs(own_ns) >= abs(whole_ns)


def _devices_n(communicator: str) -> int:
    """Return how many devices take part, by a name like `0-3, 8` or `0/0, 0/1`."""
    ends = [part.split("-") for part in communicator.split(", ")]
    return sum(int(two[-1]) - int(two[0]) + 1 if len(two) == 2 else 1 for two in ends)


def _profiler_ns(row: Any, basis: Basis) -> float:
    """Return the change of waiting that was the profiler's own work, on the scale of the basis."""
    before, after = (
        int(row[f"{side}_profiler_ns"]) / share
        for side, share in zip(("baseline", "input"), basis.shares, strict=True)
    )
    return after - before


def _copies(tables: Tables, basis: Basis) -> Iterator[Clue]:
    """Yield kinds of copies whose number or bytes changed beyond what everything did."""
    alike = work_ratio(basis)
    rows = tables["memops"]
    often = set(rows.loc[rows["kind"].duplicated(), "kind"])
    for row in rows.to_dict("records"):
        before, after = row["baseline_operations_n"], row["input_operations_n"]
        expected = before * alike
        apart_n = abs(after - expected)
        if apart_n < LEAST_COPIES or 100 * apart_n < COPIES_PCT * max(expected, 1):
            continue
        kind = _KINDS.get(row["kind"], f"{quoted(row['kind'])} copies")
        name = str(row["kind"])
        if row["kind"] in often:
            between = _between(row)
            kind, name = f"{kind} ({between})", f"{name} {between}"
        steps = basis.shares
        more = after / before * steps[0] / steps[1] - 1 if before else 0.0
        share = f" ({format_change(100 * more)})" if before and after else ""
        sizes = (row["baseline_size_bytes"], row["input_size_bytes"])
        yield Clue(
            "copies",
            row["input_total_ns"] / steps[1] - row["baseline_total_ns"] / steps[0],
            f"{kind} {_number(before / steps[0])} -> {_number(after / steps[1])}{basis.a_step}"
            f"{share}, {format_bytes(sizes[0] / steps[0])} -> {format_bytes(sizes[1] / steps[1])}",
            name=name,
            stands_out=row["kind"] == "DtoD" and after > expected,
            numbers={
                "baseline_n": before / steps[0],
                "input_n": after / steps[1],
                "more_pct": 100 * more,
                "more_ratio": more + 1,
                "baseline_bytes": sizes[0] / steps[0],
                "input_bytes": sizes[1] / steps[1],
            },
        )


def _between(row: Any) -> str:
    """Return the memories of a copy as people say it: `pageable to device`."""
    memories = [row[name] for name in ("source_memory", "target_memory") if not pd.isna(row[name])]
    return " to ".join(memories) or "memory not recorded"


def _number(value: float) -> str:
    return format_count(value) if float(value).is_integer() else f"{value:.3g}"


def _idle(tables: Tables, basis: Basis) -> Iterator[Clue]:
    """Yield that GPUs are idle more or less, or that one of them is idle more."""
    metrics = tables["metrics"].set_index("metric")
    time = "idle_time_per_step" if basis.per_step else "idle_time"
    share = metrics.loc["idle_pct"]
    known = not (pd.isna(share["change"]) or pd.isna(metrics.loc[time, "change"]))
    step_ns = mean_change_ns(tables, IDLE)
    if (
        known
        and abs(share["change"]) >= IDLE_POINTS
        and (step_ns is None or step_ns * share["change"] > 0)
    ):
        yield _idle_of_all(tables, basis, share, float(metrics.loc[time, "change"]))
    else:
        yield from _idle_of_one(tables)


def _idle_of_all(tables: Tables, basis: Basis, share: Any, impact_ns: float) -> Clue:
    causes = tables["idle"]
    # Of their windows, which may differ in length.
    points = causes["window_change_pp"] * (1 if share["change"] > 0 else -1)
    most, cause = "", ""
    numbers = {"input_pct": share["input"], "baseline_pct": share["baseline"]}
    if len(points) and points.max() > 0:
        worst = causes.iloc[int(points.to_numpy().argmax())]
        point = f"{worst['window_change_pp']:+.1f} points"
        numbers["cause_points"] = worst["window_change_pp"]
        cause = f" (mostly {quoted(worst['cause'])})"
        most = f", mostly {quoted(worst['cause'])} ({worst['meaning']}; {point})"
    idle = tables["metrics"].set_index("metric").loc["idle_time"]
    if share["change"] > 0 and idle["input"] / work_ratio(basis) <= idle["baseline"]:
        most += "; there is no more idle time for as much work, the windows are shorter"
    text = (
        f"the GPUs are idle for {format_percent(share['input'])} of their windows instead of "
        f"{format_percent(share['baseline'])}"
    )
    return Clue(
        "more_idle" if share["change"] > 0 else "less_idle",
        impact_ns,
        f"{text}{most}",
        stands_out=bool(share["change"] > 0),
        brief=f"{text}{cause}",
        numbers=numbers,
    )


def _idle_of_one(tables: Tables) -> Iterator[Clue]:
    """Yield the GPU that is idle more in each step where the others are not; at most one."""
    verdict = first_record(tables["verdict"])
    rows = [row for row in records(tables["wall_change"]) if row["wall_class"] == IDLE]
    gpus = [row for row in rows if row["rank"] is not None and row["detail"] is None]
    if len(gpus) < 2 or verdict["basis"] != STEP:
        return
    worst = max(gpus, key=lambda row: row["change_ns"])
    if 100 * worst["change_ns"] < LEAST_GAIN_PCT * verdict["input_ns"]:
        return
    key = (worst["rank"], worst["device_id"])
    causes = [row for row in rows if (row["rank"], row["device_id"]) == key and row["detail"]]
    most = max(causes, key=lambda row: row["change_ns"], default=None)
    cause = f" (mostly {quoted(most['detail'])})" if most else ""
    a_step = f"a {verdict['unit']}"
    text = (
        f"GPU {key[1]} of rank {key[0]} is idle for {format_ns(worst['input_ns'])} {a_step} "
        f"instead of {format_ns(worst['baseline_ns'])}{cause}"
    )
    yield Clue(
        "idle_rank",
        worst["change_ns"] * verdict["input_steps_n"],
        text,
        stands_out=True,
        rank=int(key[0]),
        numbers={"input_ns": worst["input_ns"], "baseline_ns": worst["baseline_ns"]},
    )


def mean_change_ns(tables: Tables, *wall_classes: str) -> float | None:
    """Return the change of some classes of the mean GPU's step; None where none is compared."""
    rows = tables["wall_change"]
    mean = rows[rows["rank"].isna() & rows["detail"].isna()]
    if mean.empty:
        return None
    return float(mean.loc[mean["wall_class"].isin(wall_classes), "change_ns"].sum())
