"""Reads a trace that a run wrote for Perfetto, times as exact nanoseconds."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

NAME = "trace.perfetto.json.gz"


@dataclass(frozen=True)
class Slice:
    """One slice; times in ns."""

    process: str
    pid: int
    tid: int
    track: str
    name: str
    kind: str
    start_ns: int
    end_ns: int
    args: dict[str, Any] = field(hash=False)
    leaves: str | None
    arrives: str | None

    @property
    def row(self) -> tuple[str, str, int, int]:
        """What a profile says of it."""
        return self.kind, self.name, self.start_ns, self.end_ns


@dataclass(frozen=True)
class PerfettoFile:
    """All that a file holds."""

    slices: list[Slice]
    counters: dict[tuple[str, str], list[tuple[int, int]]]
    processes: dict[int, str]
    remarks: list[str]
    events_n: int

    def of(self, *kinds: str, process: str = "") -> list[Slice]:
        """Return the slices of some kinds, of processes whose names hold a text."""
        return [piece for piece in self.slices if piece.kind in kinds and process in piece.process]


def read_file(path: Path) -> PerfettoFile:
    """Read a file, or that of a folder; a time that is no whole ns is an error."""
    path = path / NAME if path.is_dir() else path
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = document["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in _named(events, "thread_name")}
    processes = {e["pid"]: e["args"]["name"] for e in _named(events, "process_name")}
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            counters[processes[event["pid"]], event["name"]].append((_ns(event["ts"]), value))
    slices = [_slice(event, threads, processes) for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} <= {"X", "C", "M"}
    return PerfettoFile(
        slices, dict(counters), processes, document["otherData"]["remarks"], len(events)
    )


def _slice(event, threads, processes):
    place = event["pid"], event["tid"]
    start_ns = _ns(event["ts"])
    link = event.get("bind_id")
    return Slice(
        processes[event["pid"]],
        *place,
        threads[place],
        event["name"],
        event["cat"],
        start_ns,
        start_ns + _ns(event["dur"]),
        event.get("args", {}),
        link if event.get("flow_out") else None,
        link if event.get("flow_in") else None,
    )


def _named(events, what):
    return [event for event in events if event["ph"] == "M" and event["name"] == what]


def _ns(time_us):
    time_ns = Decimal(time_us) * 1000
    assert time_ns == int(time_ns)
    return int(time_ns)
