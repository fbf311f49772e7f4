"""Findings on kernels say in which part of the model these run, and which line launches them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pandas as pd

from nsys_llm.report.findings import PERFORMANCE, Finding, claim
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_percent, quoted

TABLE: Final = "model_parts"
#: Scopes whose findings are about what the kernels of their evidence compute.
_SCOPES: Final = ("kernel", "category")
_PLACE: Final = ["model_part", "source"]
#: Share of the time of its kernels from which a place is named.
_LEAST_PCT: Final = 10.0
#: Places that the details name.
_MOST: Final = 4
#: A part that nothing in the capture says of the kernel itself.
_INFERRED: Final = "eager_run"


def with_parts(findings: Iterable[Finding], tables: Tables) -> list[Finding]:
    """Return findings, those on kernels of one GPU with the places in the model that these have.

    Args:
        tables: With the table `model_parts`; without it, or without rows, nothing is added.
    """
    every = list(findings)
    parts = tables.get(TABLE)
    if parts is None or parts.empty:
        return every
    gpus = {gpu: rows for gpu, rows in parts.groupby(["rank", "device_id"])}
    return [
        _placed(finding, gpus.get((finding.rank, finding.device_id)), tables) for finding in every
    ]


def _placed(finding: Finding, parts: pd.DataFrame | None, tables: Tables) -> Finding:
    if parts is None or finding.kind != PERFORMANCE or finding.scope not in _SCOPES:
        return finding
    chosen = (value for cell in finding.evidence for _, value in cell.where)
    named_by = {n for some in chosen for n in (some if isinstance(some, tuple) else (some,))}
    names = {name for name in named_by if isinstance(name, str)} & set(parts["name"])
    rows = parts[parts["name"].isin(names)]
    rows = rows.assign(inferred_ns=rows["total_ns"].where(rows["found_by"] == _INFERRED, 0))
    sums = rows.groupby(_PLACE, dropna=False, sort=True)[["total_ns", "inferred_ns"]].sum()
    places = sums.sort_values("total_ns", ascending=False, kind="stable").reset_index()
    named = records(places[places["model_part"].notna() | places["source"].notna()].head(_MOST))
    if not named or 100.0 * named[0]["total_ns"] < _LEAST_PCT * int(places["total_ns"].sum()):
        return finding
    gpu = {"rank": finding.rank, "device_id": finding.device_id, "name": tuple(sorted(names))}
    whole = claim(tables, "kernels_ns", TABLE, "total_ns", **gpu)
    shares = [
        claim(
            *(tables, "part_pct", TABLE, "total_ns", "sum", whole),
            **gpu,
            model_part=place["model_part"],
            source=place["source"],
        )
        for place in named
    ]
    said, details = f"in {_words(named[0])}", finding.details
    if len(places) > 1:
        of_it = " of it" if "%" in finding.title else ""
        said = f"{format_percent(shares[0].value)}{of_it} {said}"
        each = [
            f"{_words(place)}: {format_percent(share.value)}"
            for place, share in zip(named, shares, strict=True)
        ]
        details += f" Of their time by part of the model: {'; '.join(each)}."
    return replace(
        finding,
        title=f"{finding.title.removesuffix(' of the time')}, {said}",
        details=details,
        evidence=(*finding.evidence, *shares),
        tables=(*finding.tables, TABLE),
    )


def _words(place: Record) -> str:
    part, source = place["model_part"], place["source"]
    said = [quoted(source)] if source else []
    said += ["inferred"] if 2 * place["inferred_ns"] > place["total_ns"] else []
    if not part:
        return ", ".join(said)
    return f"{quoted(part)} ({', '.join(said)})" if said else quoted(part)
