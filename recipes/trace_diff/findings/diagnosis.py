"""What the clues point to together, in a sentence each. Rules of thumb, and told as such."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.view.text import format_percent, quoted

from .change import Clue
from .changes import mean_change_ns
from .kernels import work_ratio
from .normalization import Basis
from .texts import (
    FASTER_GPU,
    GRAPHS_LOST,
    HOST_BOUND,
    LATE_PEER,
    LEAST_SLOWDOWN_PCT,
    SAME_LAUNCHES_PCT,
    SAME_RATIO_PCT,
    SAME_RATIO_SHARE_PCT,
)

#: What chooses the path of these is attention's backend.
_WORK: Final = {"kv_cache": "attention"}

#: Kernels that merge the results of attention over parts of the keys: vLLM's and FlashInfer's
#: cascade attention, FlashAttention's split keys.
_MERGES_ATTENTION: Final = re.compile(
    r"merge_attn_states|MergeStates?Kernel|splitkv_combine|FlashAttnFwdCombine"
)

#: Causes of idle time that lie on the host.
_HOST_CAUSES: Final = ("host_no_cuda", "launch_api", "other_api", "launch_latency")


@dataclass(frozen=True)
class Conclusion:
    """What changes point to together.

    Attributes:
        rule: Kind of conclusion, the rule of a finding where it is one by itself.
        text: A sentence, or several.
        fields: What the advice of the rule names.
        numbers: Numbers that the text names, by name.
    """

    rule: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)


def conclusive(tables: Tables, basis: Basis, clues: Sequence[Clue]) -> Iterator[Conclusion]:
    """Yield what the clues point to, most telling first; nothing where nowhere."""
    rules = {clue.rule for clue in clues}
    comparable = not basis.other_work and not basis.other_programs
    if comparable and (path := _another_path(basis, clues)):
        yield path
    # Where it is all on one rank, the others' machines are as fast as before.
    one_rank = any(clue.rule == "one_rank" and clue.whole for clue in clues)
    if comparable and not one_rank and (slow := _slower_throughout(basis)):
        text, moved_pct = slow
        yield Conclusion("slower_throughout", text, numbers={"moved_pct": moved_pct})
    if "waiting" in rules:
        waiting = next(clue for clue in clues if clue.rule == "waiting")
        if waiting.impact_ns > 0:
            yield Conclusion("late_peer", LATE_PEER)
    if "more_idle" in rules:
        if _graphs_lost(tables):
            yield Conclusion("graphs_lost", GRAPHS_LOST)
        elif _faster_gpu(tables):
            yield Conclusion("faster_gpu", FASTER_GPU)
        elif cause := _host_bound(tables, basis):
            yield Conclusion("host_bound", HOST_BOUND.format(cause=quoted(cause)))


def _another_path(basis: Basis, clues: Sequence[Clue]) -> Conclusion | None:
    """The same number of launches, other kernels, and work that moved: another code path."""
    replaced = [clue for clue in clues if clue.rule == "other_kernels" and clue.stands_out]
    more = [clue for clue in clues if clue.rule in ("slower_calls", "other_sizes")]
    longer = [clue for clue in more if clue.stands_out and clue.impact_ns > 0]
    copies = [clue for clue in clues if clue.rule == "copies" and clue.stands_out]
    before, after = (float(basis.kernels[name].sum()) for name in ("baseline_n", "input_n"))
    same = before and 100 * abs(after - before) <= SAME_LAUNCHES_PCT * before
    if not same or not replaced or not (longer or copies):
        return None
    signs = []
    if longer:
        signs.append(f"{quoted(longer[0].name)} does more in the same calls")
    if copies:
        signs.append("there are more copies inside the device")
    signs.append(f"{quoted(replaced[0].category)} work moved to other kernels")
    telling, parts = _telling(basis), ""
    if telling is not None:
        parts = f"The new {quoted(telling)} says that attention is computed in parts and merged. "
    about = str((longer[0] if longer else replaced[0]).category)
    return Conclusion(
        "another_path",
        f"As many launches as before, but {', '.join(signs[:-1])} and {signs[-1]}: a different "
        "path was taken through the same model, not more of the same work.",
        {"telling": parts, "work": _WORK.get(about, about)},
    )


def _telling(basis: Basis) -> str | None:
    """Return a new kernel that merges parts of attention; None if there is none."""
    kernels = basis.kernels
    new = kernels.loc[kernels["status"] == "new", "name"]
    return next((str(name) for name in new if _MERGES_ATTENTION.search(str(name))), None)


def _slower_throughout(basis: Basis) -> tuple[str, float] | None:
    """Return that nearly all kernels changed by one factor, and by how many percent."""
    kernels = basis.kernels
    compared = kernels[
        (kernels["status"] == "both") & ~kernels["communication"] & kernels["ratio"].notna()
    ]
    total = float(compared["before"].sum())
    # Another grid is another problem, whatever the machine does.
    compared = compared[~(compared["moved"] | compared["resized"])]
    if len(compared) < 3 or not total:
        return None
    common = float(
        (compared["ratio"] * compared["before"]).sum() / max(compared["before"].sum(), 1)
    )
    apart = 100 * (compared["ratio"] / common - 1).abs()
    moved = 100 * abs(common - 1)
    # Kernels that did not change are not alike, however little the others did.
    alike = float(compared.loc[apart <= min(SAME_RATIO_PCT, moved / 2), "before"].sum())
    if moved < LEAST_SLOWDOWN_PCT or 100 * alike < SAME_RATIO_SHARE_PCT * total:
        return None
    what = "slower" if common > 1 else "faster"
    return (
        f"Nearly all kernels are {what} by about {format_percent(moved)}: that is the machine - "
        "clocks, power or heat, another GPU, the profiler - rather than the code.",
        moved,
    )


def _graphs_lost(tables: Tables) -> bool:
    apis = tables["apis"]
    graphs = apis[apis["class"] == "graph_launch"]
    before, after = (int(graphs[f"{side}_calls_n"].sum()) for side in ("baseline", "input"))
    return before > 0 and after == 0


def _faster_gpu(tables: Tables) -> bool:
    """Tell whether most of the additional idle time is what work takes less: no host is slower."""
    idle_ns = mean_change_ns(tables, IDLE)
    work_ns = mean_change_ns(tables, COMPUTE, COMMUNICATION, COPIES)
    return idle_ns is not None and work_ns is not None and 2 * -work_ns >= idle_ns > 0


def _host_bound(tables: Tables, basis: Basis) -> str | None:
    """Return the cause on the host that most of the additional idle time has, for as much work."""
    idle = tables["idle"]
    more = idle["input_total_ns"].astype("float64") / work_ratio(basis) - idle["baseline_total_ns"]
    grown = idle.assign(more_ns=more.astype("float64")).query("more_ns > 0")
    host: pd.DataFrame = grown[grown["cause"].isin(_HOST_CAUSES)]
    if host.empty or 2 * host["more_ns"].sum() <= grown["more_ns"].sum():
        return None
    return str(host.sort_values("more_ns", ascending=False, kind="stable")["cause"].iloc[0])
