"""Findings on kernels say in which part of the model these run, and which line launches them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.report.findings import PERFORMANCE, Finding, claim
from nsys_llm.report.records import Tables, records
from nsys_llm.view.text import format_percent, listed, quoted

TABLE: Final = "model_parts"
#: Scopes whose findings are about what the kernels of their evidence compute.
_SCOPES: Final = ("kernel", "category")
_PLACE: Final = ["model_part", "source", "found_by"]
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
    return [_placed(finding, gpus.get((finding.rank, finding.device_id)), tables) for finding in every]


def _placed(finding: Finding, parts: pd.DataFrame | None, tables: Tables) -> Finding:
    if parts is None or finding.kind != PERFORMANCE or finding.scope not in _SCOPES:
        return finding
    names = _kernel_names(finding) & set(parts["name"])
    rows = parts[parts["name"].isin(names)]
    by_place = rows.groupby(_PLACE, dropna=False, sort=True)["total_ns"].sum()
    places = by_place.sort_values(ascending=False, kind="stable").reset_index()
    known = places[places["model_part"].notna() | places["source"].notna()]
    whole_ns = int(places["total_ns"].sum())
    if known.empty or 100.0 * known["total_ns"].iloc[0] < _LEAST_PCT * whole_ns:
        return finding
    of = partial(
        claim, tables, rank=finding.rank, device_id=finding.device_id, name=tuple(sorted(names))
    )
    whole = of("kernels_ns", TABLE, "total_ns")
    shares = [
        partial(of, "part_pct", TABLE, "total_ns", "sum", whole)(**_none(place))
        for place in records(known.head(_MOST)[_PLACE])
    ]
    words = [
        f"{_place_words(place)} {format_percent(share.value)}"
        for place, share in zip(records(known.head(_MOST)), shares, strict=True)
    ]
    first = _place_words(records(known.head(1))[0])
    if len(places) > 1:
        of_it = " of it" if "%" in finding.title else ""
        first = f"{format_percent(shares[0].value)}{of_it} in {first}"
        more = f" Of the time of these kernels: {listed(words)}."
    else:
        first, more = f"in {first}", ""
    return replace(
        finding,
        title=f"{finding.title}, {first}",
        details=f"{finding.details}{more}",
        evidence=(*finding.evidence, *shares),
        tables=(*finding.tables, TABLE),
    )


def _none(place: dict[str, object]) -> dict[str, object]:
    return {key: None if pd.isna(value) else value for key, value in place.items()}


def _place_words(place: dict[str, object]) -> str:
    part, source, found_by = _none(place)["model_part"], _none(place)["source"], place["found_by"]
    line = None if source is None else quoted(str(source))
    inferred = "inferred from the eager run" if found_by == _INFERRED else None
    if part is None:
        return str(line)
    said = ", ".join(text for text in (line, inferred) if text)
    return f"{quoted(str(part))}{f' ({said})' if said else ''}"


def _kernel_names(finding: Finding) -> set[str]:
    """Return the names that choose the rows of a finding's evidence, of any table."""
    names: set[str] = set()
    for cell in finding.evidence:
        for value in dict(cell.where).values():
            names |= {item for item in (value if isinstance(value, tuple) else (value,))
                      if isinstance(item, str)}
    return names
