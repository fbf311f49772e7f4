"""The finding on experts that get uneven numbers of tokens. Reads finished tables only."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.categories import detect_engine, load_rules
from nsys_llm.view.text import format_ns, quoted, shortened

from .texts import RULES

#: Collectives that send tokens to experts and back.
_OPERATIONS: Final = ("dispatch", "combine", "all_to_all")
_MOE: Final = "moe"
#: Part of the waiting that the kernels of experts explain by how much they vary; ours.
_EXPLAINS: Final = 0.5


def expert_findings(tables: Tables) -> list[Finding]:
    """Return the finding on ranks that wait where tokens are exchanged, as their experts differ.

    Evened, all ranks come when the mean rank does: in each collective that is the waiting of all
    over their number.
    """
    met, tails = tables["collectives"], tables["rank_tails"]
    met = met[met["operation"].isin(_OPERATIONS)]
    rules = load_rules(detect_engine(set(tails["name"])))
    names = [name for name in tails["name"].unique() if rules.classify(name).category == _MOE]
    experts = tails[tails["name"].isin(names)]
    if met.empty or experts.empty:
        return []
    late_ns = float((met["wait_ns"] / met["ranks_n"]).sum())
    by_gpu = experts.groupby(["rank", "device_id"], sort=True)["total_ns"].sum()
    varied_ns = _varied_ns(experts) / len(by_gpu)
    if not late_ns or varied_ns < _EXPLAINS * late_ns:
        return []
    # Who waits most has the least to compute.
    rank, device_id = by_gpu.idxmin()
    name = str(experts.groupby("name")["total_ns"].sum().idxmax())
    return [
        RULES["uneven_experts"].finding(
            cause=Cause("experts"),
            change=Change("experts", time_ns=late_ns),
            details=f"{format_ns(late_ns)} from the mean to the last arrival in {len(met)} "
            f"exchanges of tokens; the kernels of experts vary by {format_ns(varied_ns)} a rank.",
            fields={"kernel": quoted(shortened(name)), "time": format_ns(late_ns)},
            numbers={"late_ns": late_ns, "varied_ns": varied_ns, "exchanges_n": len(met)},
            rank=int(rank),
            device_id=int(device_id),
            name=name,
            impact_ns=round(late_ns),
        )
    ]


def _varied_ns(rows: pd.DataFrame) -> float:
    """Return launches times the standard deviation of their kernel, over all ranks and shapes."""
    n, mean = rows["launches_n"].astype("float64"), rows["mean_ns"].astype("float64")
    squares = n * (rows["std_ns"].fillna(0.0).astype("float64") ** 2 + mean**2)
    sums = pd.DataFrame({"n": n, "ns": n * mean, "squares": squares}).groupby(rows["name"]).sum()
    variance = (sums["squares"] / sums["n"] - (sums["ns"] / sums["n"]) ** 2).clip(lower=0.0)
    return float((sums["n"] * variance**0.5).sum())
