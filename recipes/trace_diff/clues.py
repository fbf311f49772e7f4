"""What changed, by kind: the clues of which answer and findings are made. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from nsys_llm.recipes.trace_diff.basis import Basis, Tables
from nsys_llm.recipes.trace_diff.clue import Clue, changed, matters
from nsys_llm.recipes.trace_diff.kernel_clues import alike_ratio, kernel_clues
from nsys_llm.view.text import format_bytes, format_count, format_percent, quoted

__all__ = ["find_clues"]

#: Change of the number or bytes of copies, in percent, that is worth a word; ours.
_COPIES_PCT: Final = 20.0
_LEAST_COPIES: Final = 5
#: Percentage points of the windows that idle time has to change by; as in idle_gaps' low findings.
_IDLE_POINTS: Final = 2.0

#: Percent of its kernel time by which a rank has to change unlike the median rank; as much as
#: idle_gaps asks of idle time.
_RANK_POINTS: Final = 5.0

_KINDS: Final = {
    "DtoD": "device-to-device copies",
    "HtoD": "host-to-device copies",
    "DtoH": "device-to-host copies",
    "PtoP": "copies between GPUs",
    "memset": "memory fills",
}


def find_clues(tables: Tables, basis: Basis) -> list[Clue]:
    """Return all clues, largest first."""
    found = [
        *kernel_clues(basis),
        *_communication(tables, basis),
        *_copies(tables, basis),
        *_idle(tables, basis),
        *_one_rank(tables),
    ]
    return sorted(found, key=lambda clue: (-abs(clue.impact_ns), clue.rule, clue.name or ""))


def _communication(tables: Tables, basis: Basis) -> Iterator[Clue]:
    kernels = basis.kernels
    talks = kernels[kernels["communication"]]
    change_ns = float(talks["change"].sum())
    if not matters(change_ns, basis):
        return
    rows = tables["collectives"]
    whole = rows[rows["communicator"] == "all"]
    text = f"communication takes {changed(change_ns)}"
    if whole.empty:
        yield Clue("communication", change_ns, text, ("kernels",), None, "communication")
        return
    one = whole.iloc[0]
    metrics, a_step = tables["metrics"].set_index("metric")["change"], basis.per_step
    wait_ns, transfer_ns = (
        float(metrics[f"{name}_per_step" if a_step else name])
        for name in ("comm_wait", "comm_transfer")
    )
    waits, late = abs(wait_ns) > abs(transfer_ns), ""
    if waits and wait_ns > 0 and not pd.isna(one["input_late_rank"]):
        late = f"; most of the waiting is for rank {one['input_late_rank']}"
        if not pd.isna(one["baseline_late_rank"]):
            same = one["baseline_late_rank"] == one["input_late_rank"]
            late += ", as before" if same else f", and was for rank {one['baseline_late_rank']}"
    yield Clue(
        "waiting" if waits else "transfer",
        change_ns,
        f"{text}: waiting for late ranks {changed(wait_ns)}, transfer {changed(transfer_ns)}{late}",
        ("collectives", "kernels"),
        None,
        "communication",
    )


def _copies(tables: Tables, basis: Basis) -> Iterator[Clue]:
    """Yield kinds of copies whose number or bytes changed beyond what everything did."""
    alike = _work_ratio(tables, basis)
    for row in tables["memops"].to_dict("records"):
        before, after = row["baseline_operations_n"], row["input_operations_n"]
        expected = before * alike
        apart_n = abs(after - expected)
        if apart_n < _LEAST_COPIES or 100 * apart_n < _COPIES_PCT * max(expected, 1):
            continue
        kind = _KINDS.get(row["kind"], f"{quoted(row['kind'])} copies")
        share = f" ({100 * (after / before - 1):+.0f} %)" if before else ""
        sizes = (row["baseline_size_bytes"], row["input_size_bytes"])
        yield Clue(
            "copies",
            float(row["change_ns"]),
            f"{kind} {format_count(before)} -> {format_count(after)}{share}, "
            f"{format_bytes(sizes[0])} -> {format_bytes(sizes[1])}",
            ("memops",),
            row["kind"],
            stands_out=row["kind"] == "DtoD" and after > expected,
        )


def _work_ratio(tables: Tables, basis: Basis) -> float:
    """Return how much more of everything the input did."""
    if basis.per_step:
        steps = tables["runs"].set_index("side")["steps_n"]
        return float(steps["input"] / steps["baseline"])
    return alike_ratio(basis) or 1.0


def _one_rank(tables: Tables) -> Iterator[Clue]:
    """Yield the rank whose computation changed unlike that of the others."""
    ranks = tables["ranks"]
    before = ranks["baseline_total_ns"].astype("float64")
    if len(ranks) < 2 or not (before > 0).all():
        return
    share = 100 * ranks["compute_change_ns"].astype("float64") / before
    # Of two ranks, the one that changed less is what to compare with.
    usual = float(
        share.median() if len(share) > 2 else share.iloc[int(share.abs().to_numpy().argmin())]
    )
    at = int((share - usual).abs().to_numpy().argmax())
    own, number = float(share.iloc[at]), int(ranks["rank"].iloc[at])
    if abs(own - usual) < _RANK_POINTS:
        return
    others = "median" if len(share) > 2 else "other one"
    beyond_ns = (own - usual) * float(before.iloc[at]) / 100
    yield Clue(
        "one_rank",
        beyond_ns,
        f"computation on rank {number} takes {own:+.1f} % where the {others} changes by "
        f"{usual:+.1f} % ({changed(beyond_ns)})",
        ("ranks", "rank_kernels"),
        stands_out=True,
        rank=number,
    )


def _idle(tables: Tables, basis: Basis) -> Iterator[Clue]:
    metrics = tables["metrics"].set_index("metric")
    time = "idle_time_per_step" if basis.per_step else "idle_time"
    share = metrics.loc["idle_pct"]
    if pd.isna(share["change"]) or abs(share["change"]) < _IDLE_POINTS:
        return
    causes = tables["idle"]
    same = causes[(causes["change_ns"] > 0) == (share["change"] > 0)]
    most = ""
    if len(same):
        one = same.iloc[0]
        most = f", mostly {quoted(one['cause'])} ({one['meaning']}; {changed(one['change_ns'])})"
    yield Clue(
        "more_idle" if share["change"] > 0 else "less_idle",
        float(metrics.loc[time, "change"]),
        f"the GPUs are idle for {format_percent(share['input'])} of their windows instead of "
        f"{format_percent(share['baseline'])}{most}",
        ("idle", "metrics"),
        stands_out=bool(share["change"] > 0),
    )
