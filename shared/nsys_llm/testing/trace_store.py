"""What every synthetic report has: its strings, processes and tables, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nsys_llm.profile.trace_schema import Cell, ExportSchema
from nsys_llm.testing.trace_export import (
    Cells,
    TableRows,
    write_parquet_tables,
    write_sqlite_tables,
)
from nsys_llm.testing.trace_metadata import (
    Machine,
    Process,
    describe_capture,
    describe_target,
    global_tid,
)

IntArray = NDArray[np.int64]
_Report = TypeVar("_Report", bound="SyntheticReport")

_DEFAULT_PID: Final = 100
_NVTX_DOMAIN_CREATE: Final = 75

#: Columns that hold ids of StringIds.
_STRING_COLUMNS: Final = frozenset(
    {
        "demangledName",
        "shortName",
        "mangledName",
        "nameId",
        "textId",
        "symbol",
        "module",
    }
)


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
            schema: Version of the export schema.
            lazy: Whether a SQLite export leaves empty tables out, as `nsys export` does by itself.
            hostname: Of the profiled machine.
            gpu_name: Of all its GPUs.
            driver_version: Of the NVIDIA driver.
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
            name: Of the executable.
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

    def process_environment(self: _Report, **variables: str) -> _Report:
        """Keep another process's environment as a string that nothing refers to."""
        self._string_id("\0".join(f"{name}={value}" for name, value in variables.items()) + "\0")
        return self

    def capture_option(self: _Report, name: str, value: str) -> _Report:
        """Set a row of META_DATA_CAPTURE."""
        self._options[name] = value
        return self

    def mpi_rank(self: _Report, tid: int, rank: int, *, pid: int | None = None) -> _Report:
        """Say that a thread is an MPI rank."""
        return self._add("MPI_RANKS", 1, {"globalTid": self._thread(pid, tid), "rank": rank})

    def raw(self: _Report, table: str, /, **columns: Cell) -> _Report:
        """Add one row as it is, broken ones too.

        Args:
            table: Its name in an export.
            columns: Values by nsys column name; a str for a column of string ids is interned.
                Process, thread, device, context and stream default to the usual ones, others to
                NULL, or 0 where a real export has no NULL.

        Raises:
            ValueError: This schema version has no such table or column.
        """
        shape = {column.name for column in self._schema.tables.get(table, ())}
        if not columns.keys() <= shape:
            unknown = ", ".join(sorted(columns.keys() - shape))
            raise ValueError(f"schema {self._schema.version} has no {table}.{unknown}.")
        row: dict[str, Cells] = {}
        if shape & {"globalPid", "globalTid"}:
            row = {"globalTid": self._thread(), **self._place()}
        for name, value in columns.items():
            interned = name in _STRING_COLUMNS and isinstance(value, str)
            row[name] = self._string_id(str(value)) if interned else value
        self._add(table, 1, row)
        return self

    def has_table(self, name: str) -> bool:
        """Return whether this schema version has a table of that name."""
        return name in self._tables

    def drop_table(self: _Report, name: str) -> _Report:
        """Leave a table out of what is written."""
        if name not in self._schema.tables and name not in self._schema.enums:
            raise ValueError(f"schema {self._schema.version} has no table {name}.")
        self._dropped.add(name)
        return self

    def write_sqlite(self, path: Path) -> Path:
        """Write the report as a SQLite export; raises OutputError where the file exists."""
        tables = self._complete_tables()
        empty = {name for name in self._schema.tables if self._lazy and not len(tables[name])}
        write_sqlite_tables(path, self._schema, tables, omit=frozenset(self._dropped | empty))
        return path

    def write_parquet(self, folder: Path) -> Path:
        """Write the report as a folder of parquet files; raises OutputError where it exists."""
        tables = self._complete_tables()
        write_parquet_tables(folder, self._schema, tables, omit=frozenset(self._dropped))
        return folder

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

    def _correlation_id(self, wanted: int | None, pid: int | None) -> int:
        return int(self._correlation_ids(None if wanted is None else [wanted], 1, pid)[0])

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
