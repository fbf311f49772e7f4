"""The sentence of the answer that says that the runs did other work, and what a token takes."""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.records import Tables
from nsys_llm.view.text import format_ns, format_percent

from ..tables.checks import WORK
from .normalization import Basis, both_sides
from .sizes import split_kernels

#: Share of the baseline's kernel time at other sizes, from which this is said first; ours.
_RESIZED_PCT: Final = 50.0


def work_sentence(tables: Tables, basis: Basis) -> str:
    """Return what changed in the work of the runs, with a space behind; empty where nothing did."""
    if basis.other_programs:
        return (
            f"{_common(basis)} of the kernel time is in kernels that both runs have: these are "
            "other programs, or other kernels for the same work. "
        )
    if basis.other_work:
        rows = tables["comparability"]
        before, after = both_sides(rows[rows["check"] == WORK].to_dict("records")[0])
        return f"The work of a step changed: {before} -> {after}{_per_token(tables, basis)}. "
    resized_pct = _resized_pct(basis)
    if resized_pct < _RESIZED_PCT or basis.same_work:
        return ""
    return (
        f"The problem sizes changed: kernels with {format_percent(resized_pct)} of the kernel time "
        "run on other grids or blocks. "
    )


def _common(basis: Basis) -> str:
    """Return the share of the kernel time in kernels of both runs, of the run with less of it."""
    both = basis.kernels[basis.kernels["status"] == "both"]
    times = ((both["before"].sum(), basis.before_ns), (both["after"].sum(), basis.after_ns))
    return format_percent(min(100 * own / whole if whole else 0.0 for own, whole in times))


def _per_token(tables: Tables, basis: Basis) -> str:
    """Return the kernel time of a token on a rank, both sides; empty where tokens are not known."""
    runs = tables["runs"].set_index("side")
    tokens = [runs.loc[side, "tokens_n"] for side in ("baseline", "input")]
    kernel_ns = [float(runs.loc[side, "kernel_ns"]) for side in ("baseline", "input")]
    if any(pd.isna(n) for n in tokens) or not kernel_ns[0]:
        return ""
    before, after = (ns / int(n) for ns, n in zip(kernel_ns, tokens, strict=True))
    change_pct = 100 * (after / before - 1)
    return (
        f"; kernel time per token and rank {format_ns(before)} -> {format_ns(after)} "
        f"({change_pct:+.1f} %)"
    )


def _resized_pct(basis: Basis) -> float:
    """Return the share of the baseline's kernel time in kernels at other sizes throughout.

    A kernel that is split into smaller launches of the same total grid does the same work.
    """
    own = basis.kernels[basis.kernels["resized"] & ~basis.kernels["communication"]]
    own = own[~split_kernels(own)]
    return 100 * float(own["before"].sum()) / basis.before_ns if basis.before_ns else 0.0
