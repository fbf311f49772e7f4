"""Findings on copies and fills: exposed, blocking, or inside the device. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, grouped, records, severity_of, window_of
from nsys_llm.view.text import (
    counted,
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    format_value,
    quoted,
)

from .texts import BLOCKING_PCT, DEVICE_COPY_PCT, EXPOSED_COPIES_PCT, RULES

#: Kinds between host and device or between devices, which kernels can hide.
_HIDEABLE: Final = ("HtoD", "DtoH", "PtoP", "unified HtoD", "unified DtoH", "unified DtoD")

#: By the rule of `nsys analyze`.
_RULES: Final = {
    "cuda_memcpy_async": "pageable_copies",
    "cuda_memcpy_sync": "synchronous_copies",
    "cuda_memset_sync": "synchronous_fills",
}

#: Rank and device id. A row of devices or memops has one.
_Device = tuple[Any, ...]


def copy_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about copies and fills.

    Args:
        tables: Finished tables by name: memops, blocking_memops, devices.
    """
    devices = {(row["rank"], row["device_id"]): row for row in records(tables["devices"])}
    memops = records(tables["memops"])
    return [
        *_exposed(memops, devices),
        *_blocking(records(tables["blocking_memops"]), devices),
        *_inside_device(memops, devices),
    ]


def _exposed(memops: Iterable[Record], devices: Mapping[_Device, Record]) -> Iterator[Finding]:
    """One finding a kind of copy and memory, about the device where it is exposed most."""
    hideable = (row for row in memops if row["kind"] in _HIDEABLE)
    for (kind, *_), rows in grouped(hideable, "kind", "source_memory", "target_memory").items():
        shares_pct = [100.0 * row["exposed_ns"] / _window_ns(row, devices) for row in rows]
        worst = rows[shares_pct.index(max(shares_pct))]
        severity = severity_of(max(shares_pct), EXPOSED_COPIES_PCT)
        if severity is None:
            continue
        total_ns = _sum(rows, "exposed_ns")
        yield RULES["exposed_copies"].finding(
            severity=severity,
            details=f"No kernel runs during {format_ns(worst['exposed_ns'])} of {_moved(worst)} "
            f"on device {worst['device_id']} of rank {worst['rank']}, in a window of "
            f"{format_ns(_window_ns(worst, devices))}. Over all ranks {format_ns(total_ns)}.",
            fields={"kind": kind, "share": format_percent(max(shares_pct)), "rank": worst["rank"]},
            rank=worst["rank"],
            device_id=worst["device_id"],
            name=kind,
            window_ns=window_of(worst, "exposed_start_ns", "exposed_end_ns"),
            impact_ns=total_ns,
        )


def _blocking(blocking: Iterable[Record], devices: Mapping[_Device, Record]) -> Iterator[Finding]:
    """One finding a rule of `nsys analyze`, over all ranks."""
    windows_ns = _sum(devices.values(), "window_ns")
    for (rule,), rows in grouped(blocking, "rule").items():
        total_ns, ops_n = _sum(rows, "total_ns"), _sum(rows, "ops_n")
        by_rank = {rank: _sum(own, "total_ns") for (rank,), own in grouped(rows, "rank").items()}
        most = max(by_rank, key=by_rank.__getitem__)
        # The window is on the rank that the words name.
        own = [row for row in rows if row["rank"] == most]
        longest = max(own, key=lambda row: row["max_ns"])
        share_pct = 100.0 * total_ns / max(windows_ns, 1)
        apis = ", ".join(quoted(name) for name in sorted({row["api"] for row in rows}))
        kinds = ", ".join(sorted({row["kind"] for row in rows}))
        yield RULES[_RULES[rule]].finding(
            severity=severity_of(share_pct, BLOCKING_PCT) or "note",
            details=f"{format_count(ops_n)} operations ({kinds}) by {apis}, "
            f"{format_bytes(_sum(rows, 'size_bytes'))}, {format_ns(total_ns)} on the GPU, "
            f"{format_percent(share_pct)} of the windows; ranks with them: "
            f"{format_count(len(by_rank))}, most on rank {most}. "
            f"The longest there takes {format_ns(longest['max_ns'])}. Rule {rule} of nsys analyze.",
            fields={"times": counted(ops_n, "time")},
            rank=longest["rank"],
            device_id=longest["device_id"],
            name=longest["api"],
            window_ns=window_of(longest, "window_start_ns", "window_end_ns"),
            impact_ns=total_ns,
        )


def _inside_device(
    memops: Iterable[Record], devices: Mapping[_Device, Record]
) -> Iterator[Finding]:
    """Return the finding on copies inside a device, about the device that they keep busy most."""
    copies = grouped((row for row in memops if row["kind"] == "DtoD"), "rank", "device_id")
    shares_pct = {
        one: 100.0 * _sum(rows, "union_ns") / max(devices[one]["busy_ns"], 1)
        for one, rows in copies.items()
    }
    if not shares_pct:
        return
    worst = max(shares_pct, key=shares_pct.__getitem__)
    severity = severity_of(shares_pct[worst], DEVICE_COPY_PCT)
    if severity is None:
        return
    rank, device = worst
    most = max(copies[worst], key=lambda row: row["union_ns"])
    yield RULES["device_copies"].finding(
        severity=severity,
        details=f"DtoD copies run for {format_ns(_sum(copies[worst], 'union_ns'))} on device "
        f"{device} of rank {rank}, which is busy for {format_ns(devices[worst]['busy_ns'])}; most "
        f"of it by {_moved(most)}.",
        fields={"share": format_percent(shares_pct[worst]), "rank": rank},
        rank=rank,
        device_id=device,
        name="DtoD",
        impact_ns=sum(_sum(rows, "union_ns") for rows in copies.values()),
    )


def _window_ns(row: Record, devices: Mapping[_Device, Record]) -> int:
    """Return the length of the window of a row's device; 1 where there is none to divide by."""
    return max(int(devices[row["rank"], row["device_id"]]["window_ns"]), 1)


def _moved(row: Record) -> str:
    """Return how many copies moved how much, between which memories, how fast."""
    source, target = (
        row[name] or "memory not recorded" for name in ("source_memory", "target_memory")
    )
    size = "" if row["size_bytes"] is None else f", {format_bytes(row['size_bytes'])}"
    rate = "" if row["rate_gb_s"] is None else f" at {format_value(row['rate_gb_s'], 'GB/s')}"
    return f"{format_count(row['ops_n'])} {row['kind']} copies ({source} to {target}{size}{rate})"


def _sum(rows: Iterable[Record], column: str) -> int:
    return sum(row[column] for row in rows)
