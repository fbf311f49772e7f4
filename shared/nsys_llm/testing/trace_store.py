"""What every synthetic report has: its strings, processes and tables, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nsys_llm.testing.trace_metadata import (
    Machine,
    Process,
    describe_capture,
    describe_target,
    global_tid,
)
from nsys_llm.testing.trace_schema import Cells, ExportSchema, TableRows, write_sqlite_tables

IntArray = NDArray[np.int64]
_Report = TypeVar("_Report", bound="SyntheticReport")

_DEFAULT_PID: Final = 100
_NVTX_DOMAIN_CREATE: Final = 75


class Thread(TypedDict, total=False):
    """The thread that an event on the host happens on."""

    pid: int | None
    tid: int | None


class Queue(TypedDict, total=False):
    """Where GPU work runs."""

    pid: int | None
    device_id: int
    context_id: int
    stream_id: int | IntArray


class SyntheticReport:
    """A report without events; its subclasses add them.

    Events that name no pid belong to the process declared last, or to pid 100 where none was;
    `tid` defaults to the pid, as that of a main thread.
    """

    def __init__(
        self,
        *,
        schema: str = "3.25.0",
        lazy: bool = True,
        hostname: str = "node1",
        gpu_name: str = "NVIDIA H100 80GB HBM3",
        driver_version: str = "550.54.15",
        utc_epoch_ns: int | None = 1_760_000_000_000_000_000,
        system_clock_ns: int = 1_000_000_000_000,
        duration_ns: int | None = None,
    ) -> None:
        """Start an empty report.

        Args:
            lazy: Whether a SQLite export leaves empty tables out, as `nsys export` does by itself.
            utc_epoch_ns: Wall-clock time at the capture's start.
            system_clock_ns: Monotonic clock of the host at the capture's start.
            duration_ns: Length of the capture; None ends it with its last event.
        """
        self._schema = ExportSchema.load(schema)
        self._lazy = lazy
        self._machine = Machine(
            hostname, gpu_name, driver_version, utc_epoch_ns, system_clock_ns, duration_ns
        )
        self._tables = {name: TableRows() for name in self._schema.tables}
        self._strings: dict[str, int] = {"[Unknown]": 0}
        self._processes: dict[int, Process] = {}
        self._current_pid = _DEFAULT_PID
        self._environment: dict[str, str] = {}
        self._options: dict[str, str] = {}
        self._graph_mode = "Graph"
        self._dropped: set[str] = set()

    def process(
        self: _Report,
        *,
        pid: int,
        name: str = "python",
        gpu_ids: Sequence[int] = (0,),
        blocking_streams: Sequence[int] = (),
    ) -> _Report:
        """Declare a process; later events belong to it unless they name another pid.

        Args:
            pid: Process id, and the id of its main thread.
            gpu_ids: The physical GPU behind each CUDA device (as CUDA_VISIBLE_DEVICES maps them).
            blocking_streams: Streams that wait for the default stream, in all contexts.
        """
        known = self._processes.setdefault(pid, Process(pid))
        known.name, known.gpu_ids, known.blocking_streams = name, gpu_ids, blocking_streams
        self._current_pid = pid
        return self

    def reserve_correlation_ids(self, count: int, *, pid: int | None = None) -> int:
        """Return the first of `count` ids in a row that no other event of the process will get."""
        process = self._process(pid)
        first = process.next_correlation_id
        process.next_correlation_id += count
        return first

    def thread(self: _Report, tid: int, name: str, *, pid: int | None = None) -> _Report:
        """Name a thread."""
        row = {"nameId": self._string_id(name), "priority": 20, "globalTid": self._thread(pid, tid)}
        return self._add("ThreadNames", 1, row)

    def environment(self: _Report, **variables: str) -> _Report:
        """Set environment variables of the profiled command."""
        self._environment.update(variables)
        return self

    def write_sqlite(self, path: Path) -> Path:
        """Write the report as a SQLite export; raises OutputError where the file exists."""
        tables = self._complete_tables()
        empty = {name for name in self._schema.tables if self._lazy and not len(tables[name])}
        write_sqlite_tables(path, self._schema, tables, omit=frozenset(self._dropped | empty))
        return path

    def _complete_tables(self) -> dict[str, TableRows]:
        described = describe_capture(
            self._schema, self._machine, self._capture_options(), lazy=self._lazy
        ) | describe_target(
            self._schema,
            self._machine,
            list(self._processes.values()),
            self._environment,
            max((table.last_end_ns() for table in self._tables.values()), default=0),
        )
        strings = TableRows()
        texts = list(self._strings)
        strings.add(len(texts), {"id": np.arange(len(texts)), "value": texts})
        described["StringIds"] = strings
        return {
            name: TableRows([*described.get(name, TableRows()).chunks, *added.chunks])
            for name, added in self._tables.items()
        }

    def _capture_options(self) -> list[tuple[str, str]]:
        kinds = {
            "Cuda": "CUPTI_ACTIVITY_KIND_RUNTIME",
            "NvtxEvents": "NVTX_EVENTS",
            "OSRuntime": "OSRT_API",
        }
        options = {
            "PROCESS_0:COMMAND": "python",
            f"{self._schema.capture_prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE": self._graph_mode,
            **self._options,
        }
        return [
            *(("CAPTURE_EVENT_TYPE", kind) for kind, table in kinds.items() if self._tables[table]),
            *options.items(),
            *(
                ("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
                for name, value in self._environment.items()
            ),
        ]

    def _add(self: _Report, table: str, count: int, values: Mapping[str, Cells]) -> _Report:
        if table not in self._tables:
            raise ValueError(f"schema {self._schema.version} has no table {table}.")
        self._tables[table].add(count, values)
        return self

    def _process(self, pid: int | None) -> Process:
        number = self._current_pid if pid is None else pid
        if number not in self._processes:
            self._processes[number] = Process(number)
        return self._processes[number]

    def _thread(self, pid: int | None = None, tid: int | None = None) -> int:
        process = self._process(pid)
        return global_tid(process.pid, process.pid if tid is None else tid)

    def _string_id(self, text: str | None) -> int | None:
        return None if text is None else self._strings.setdefault(text, len(self._strings))

    def _string_ids(self, texts: Sequence[str]) -> IntArray:
        return np.array([self._string_id(text) for text in texts], dtype=np.int64)

    def _correlation_ids(self, wanted: ArrayLike | None, count: int, pid: int | None) -> IntArray:
        if wanted is None:
            return self.reserve_correlation_ids(count, pid=pid) + np.arange(count)
        ids = np.broadcast_to(np.asarray(wanted, dtype=np.int64), count)
        process = self._process(pid)
        process.next_correlation_id = max(process.next_correlation_id, int(ids.max(initial=0)) + 1)
        return ids

    def _place(
        self,
        pid: int | None = None,
        device_id: int = 0,
        context_id: int = 1,
        stream_id: int | IntArray = 7,
    ) -> dict[str, Cells]:
        process = self._process(pid)
        streams = [stream_id] if isinstance(stream_id, int) else np.unique(stream_id).tolist()
        process.streams.update((device_id, context_id, stream) for stream in streams)
        return {
            "deviceId": device_id,
            "contextId": context_id,
            "greenContextId": self._schema.no_green_context,
            "streamId": stream_id,
            "globalPid": global_tid(process.pid),
        }

    def _nvtx_domain(self, name: str, start_ns: int, pid: int | None, tid: int | None) -> int:
        domains = self._process(pid).domains
        if name not in domains:
            domains[name] = len(domains)
            row: dict[str, Cells] = {
                "start": start_ns,
                "eventType": _NVTX_DOMAIN_CREATE,
                "text": name,
                "globalTid": self._thread(pid, tid),
                "domainId": domains[name],
            }
            self._add("NVTX_EVENTS", 1, row)
        return domains[name]
