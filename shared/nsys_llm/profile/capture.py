"""The facts of a capture: machine, versions, clocks, processes, and what tells a rank's number.

A profile records the whole environment of the profiled command, tokens included, and of some
releases that of every process of the machine. Of all variables but those named here no more than
their names is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.reader import read_table
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import process_of_thread, table_source
from nsys_llm.taxonomy.secret_names import DEVICE_ENVIRONMENT, names_in, secret_names

#: Environment variables that hold a rank, in the order in which they are believed.
RANK_VARIABLES: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")

#: That which holds how many ranks there are.
WORLD_SIZE: Final = "WORLD_SIZE"
#: In how many lines launches queue; with one, what is behind another stream's launch waits.
_LINES: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
#: Export schemas that the table and column names here were checked against, as (major, minor).
OLDEST_SCHEMA: Final = (3, 7)
NEWEST_SCHEMA: Final = (3, 30)

#: The level of kernel.perf_event_paranoid at which the kernel is not sampled; above it nothing is,
#: but for root, who may sample all at any level.
NO_KERNEL: Final = 2

_SYSTEM_KEYS: Final = (
    *("Hostname", "NvDriverVersion", "CudaDriverVersion", "LinuxParanoidLevel", "SystemUID"),
)
_EXPORT_KEYS: Final = ("EXPORT_SCHEMA_VERSION", "EXPORT_PRODUCT_VERSION")
_SESSION_KEYS: Final = ("PROFILING_SESSION_UUID",)
_PERIOD_KEYS: Final = (
    "LINUX_PERF_OPTIONS:CPU_IP_TRIGGER_TYPE",
    "LINUX_PERF_OPTIONS:SAMPLING_PERIOD",
)
_TRACED_KEYS: Final = ("CAPTURE_EVENT_TYPE",)
_GRAPH_MODE_KEYS: Final = (
    "CUDA_GRAPH_TRACE_OPTIONS:MODE",
    "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE",
)
#: Those whose successors a newer release may write beside them, or in their place.
_READ: Final = (
    *("kernels", "memcpys", "memsets", "graph_traces", "api_calls"),
    *("nvtx_events", "os_calls", "cpu_samples", "thread_switches"),
)
_PAYLOADS: Final = "payloads"
#: Tables of payloads in the form that is known; of enumerations nothing is read.
_KNOWN_PAYLOADS: Final = re.compile("NVTX_PAYLOAD_(?:SCHEMAS|SCHEMA_ENTRIES|ENUMS|ENUM_ENTRIES)")


@dataclass(frozen=True)
class CaptureFacts:
    """What a profile says of itself. None where it does not say.

    Attributes:
        utc_epoch_ns: Wall clock at the start of the capture.
        system_clock_ns: The machine's steady clock at the start of the capture.
        processes: globalPid -> name.
        rank_variables: Environment variable -> rank, of the launched command.
        mpi_ranks: globalPid -> MPI rank.
        graph_mode: How CUDA graphs were traced: graph (whole) or node.
        traced: What was traced, in Nsight Systems' words, sorted: Cuda, NvtxEvents, ...
        secret_variables: Names of variables that look like secrets, of the launched command and
            of every other process whose environment the profile stores.
        environments_n: Environments of processes among the profile's strings.
        session: Id of the profiling session.
        sample_period_ns: Time between CPU samples; 0 where it is not recorded, or counts no time.
        paranoid_level: Linux' kernel.perf_event_paranoid.
        pid_namespace: In which process ids are unique, as the machine calls it.
        duration_ns: Length of the session.
        gpu_of: Process id and CUDA device id -> the GPU, or slice of one: its uuid, else where it
            sits in which machine. Only what the profile says: a device id alone is no GPU.
        max_connections: CUDA_DEVICE_MAX_CONNECTIONS of the launched command.
        unknown_tables: What is there in a form not known, see the function of that name.
    """

    host: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[str, ...] = ()
    nsys_version: str | None = None
    schema_version: str | None = None
    utc_epoch_ns: int | None = None
    system_clock_ns: int | None = None
    processes: Mapping[int, str] = field(default_factory=dict)
    rank_variables: Mapping[str, int] = field(default_factory=dict)
    mpi_ranks: Mapping[int, int] = field(default_factory=dict)
    graph_mode: str | None = None
    traced: tuple[str, ...] = ()
    secret_variables: tuple[str, ...] = ()
    environments_n: int = 0
    session: str | None = None
    sample_period_ns: int = 0
    paranoid_level: int | None = None
    pid_namespace: str | None = None
    duration_ns: int | None = None
    gpu_of: Mapping[tuple[int, int], str] = field(default_factory=dict)
    world_size: int | None = None
    max_connections: int | None = None
    unknown_tables: tuple[tuple[str, str], ...] = ()

    @property
    def boot_ns(self) -> int | None:
        """Wall clock at which the machine's steady clock was 0."""
        if self.utc_epoch_ns is None or self.system_clock_ns is None:
            return None
        return self.utc_epoch_ns - self.system_clock_ns

    @property
    def schema_note(self) -> str | None:
        """What to say of the export's schema, if it is not one that we know."""
        numbers = (self.schema_version or "").split(".")[:2]
        if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):
            return "the export schema is not recorded; read by name"
        schema = (int(numbers[0]), int(numbers[1]))
        if OLDEST_SCHEMA <= schema <= NEWEST_SCHEMA:
            return None
        age = "newer" if schema > NEWEST_SCHEMA else "older"
        return f"export schema {self.schema_version} is {age} than those known; read by name"


def read_facts(profile: ParquetProfile | SqliteProfile) -> CaptureFacts:
    """Read the facts of an open profile.

    Raises:
        ProfileError: A table of them is damaged.
    """
    system = dict(profile.key_values("system", _SYSTEM_KEYS))
    export = dict(profile.key_values("export", _EXPORT_KEYS))
    utc_epoch_ns, system_clock_ns = _clocks(profile)
    environments = profile.process_environments()
    # Of the profiled command; parquet of 2023.4 records none.
    rows = profile.key_values("capture", ("PROCESS_0:ENVIRONMENT_VARIABLE",))
    pairs = (value.partition("=") for _, value in rows)
    variables = {name: value.strip('"') for name, _, value in pairs}
    # Those that have a value, also in a second copy.
    copies = (names_in(text) for _, text in profile.key_values("system", (DEVICE_ENVIRONMENT,)))
    valued = ([name for name, value in variables.items() if value], *copies)
    perf = dict(profile.key_values("capture", _PERIOD_KEYS))
    trigger, period = (perf.get(key) or "" for key in _PERIOD_KEYS)
    level = system.get("LinuxParanoidLevel", "")
    lines = variables.get(_LINES, "")
    is_time = trigger == "Software" and re.fullmatch("[0-9]{1,15}", period)
    graph_modes = dict(profile.key_values("capture", _GRAPH_MODE_KEYS))
    lengths = read_table(profile, "capture_spans", ("duration_ns",))["duration_ns"]
    mpi = read_table(profile, "mpi_ranks", ("global_tid", "rank"))
    processes = process_of_thread(mpi["global_tid"])
    return CaptureFacts(
        host=system.get("Hostname") or None,
        driver_version=system.get("NvDriverVersion") or None,
        cuda_version=_cuda_version(system.get("CudaDriverVersion")),
        gpus=_gpus(profile),
        nsys_version=export.get("EXPORT_PRODUCT_VERSION"),
        schema_version=export.get("EXPORT_SCHEMA_VERSION"),
        utc_epoch_ns=utc_epoch_ns,
        system_clock_ns=system_clock_ns,
        processes=_processes(profile),
        rank_variables=_numbers(variables, RANK_VARIABLES),
        mpi_ranks=dict(zip(processes.tolist(), mpi["rank"].tolist(), strict=True)),
        graph_mode=next((mode.lower() for mode in graph_modes.values()), None),
        traced=tuple(sorted({kind for _, kind in profile.key_values("capture", _TRACED_KEYS)})),
        secret_variables=secret_names(chain(*valued, *environments)),
        environments_n=len(environments),
        session=next((uuid for _, uuid in profile.key_values("capture", _SESSION_KEYS)), None),
        sample_period_ns=int(period) if is_time else 0,
        paranoid_level=int(level) if re.fullmatch("-?[0-9]", level) else None,
        pid_namespace=system.get("SystemUID") or None,
        duration_ns=int(lengths.max()) if lengths.max(initial=0) > 0 else None,
        gpu_of=_gpu_of(profile, system.get("Hostname") or ""),
        world_size=_numbers(variables, (WORLD_SIZE,)).get(WORLD_SIZE),
        max_connections=int(lines) if re.fullmatch("[0-9]{1,3}", lines) else None,
        unknown_tables=unknown_tables(profile),
    )


def _cuda_version(number: str | None) -> str | None:
    """Return 12.2 for 12020, as `cudaDriverGetVersion` counts."""
    if not number or not number.isdecimal():
        return None
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _clocks(profile: ParquetProfile | SqliteProfile) -> tuple[int | None, int | None]:
    columns = ("utc_epoch_ns", "system_clock_ns")
    rows = read_table(profile, "session", columns)
    values = [int(rows[column][0]) if len(rows) else NULL_INT for column in columns]
    utc_epoch_ns, system_clock_ns = (None if value == NULL_INT else value for value in values)
    return utc_epoch_ns, system_clock_ns


def _gpu_of(profile: ParquetProfile | SqliteProfile, host: str) -> dict[tuple[int, int], str]:
    """Return the GPU of each device of each process, where both tables of them tell it."""
    if not (profile.has("cuda_devices") and profile.has("gpus")):
        return {}
    gpus = read_table(profile, "gpus", ("gpu_id", "text", "uuid", "bus"))
    columns = (gpus[name].tolist() for name in ("gpu_id", "text", "uuid", "bus"))
    # Slices of a GPU sit in one place.
    name_of = {
        gpu: uuid or (bus and " MIG " not in (model or "") and f"{host} {bus}")
        for gpu, model, uuid, bus in zip(*columns, strict=True)
    }
    rows = read_table(profile, "cuda_devices", ("pid", "device_id", "gpu_id", "uuid"))
    columns = (rows[name].tolist() for name in ("pid", "device_id", "gpu_id"))
    known = {
        (pid, device): uuid or name_of.get(gpu)
        for pid, device, gpu, uuid in zip(*columns, rows["uuid"], strict=True)
    }
    return {place: str(name) for place, name in known.items() if name}


def _gpus(profile: ParquetProfile | SqliteProfile) -> tuple[str, ...]:
    rows = read_table(profile, "gpus", ("gpu_id", "text"))
    order = np.argsort(rows["gpu_id"], kind="stable")
    return tuple(str(name) for name in rows["text"][order] if name)


def _processes(profile: ParquetProfile | SqliteProfile) -> dict[int, str]:
    rows = read_table(profile, "processes", ("global_pid", "text"))
    pairs = zip(rows["global_pid"].tolist(), rows["text"], strict=True)
    return {pid: str(name) for pid, name in sorted(pairs, key=lambda pair: pair[0]) if name}


def _numbers(variables: Mapping[str, str], names: Iterable[str]) -> dict[str, int]:
    values = {name: variables.get(name, "") for name in names}
    return {name: int(value) for name, value in values.items() if value.isdecimal()}


def unknown_tables(profile: ParquetProfile | SqliteProfile) -> tuple[tuple[str, str], ...]:
    """Return what is there in another form, as (our table, name in the export), sorted.

    That is a table with the name of one that is read and more after it; or payloads of NVTX in
    columns or tables of their own, as Nsight Systems writes them from 2026.4 on.

    Raises:
        ProfileError: The profile is damaged.
    """
    found = {
        (name, other)
        for name in _READ
        for other in profile.names
        if other != table_source(name).nsys and other.startswith(table_source(name).nsys)
    }
    payloads = {name for name in profile.names if name.startswith("NVTX_PAYLOAD_")}
    found |= {(_PAYLOADS, name) for name in payloads if not _KNOWN_PAYLOADS.fullmatch(name)}
    source, known = table_source(_PAYLOADS), profile.columns(_PAYLOADS)
    if known and profile.has("payload_schemas") and source.columns["payload"] not in known:
        found.add((_PAYLOADS, f"{source.nsys} without {source.columns['payload']}"))
    return tuple(sorted(found))
