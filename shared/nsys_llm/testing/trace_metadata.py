"""The tables of an export that describe the machine, its processes and the capture."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final

from nsys_llm.testing.trace_schema import Cells, ExportSchema, TableRows

#: Serialised id of virtual machine 1, the only one seen in real reports.
_VM_ID: Final = 1 << 48
#: The default stream of a context, and the CUPTI types of streams.
_NULL_STREAM, _NULL_STREAM_TYPE, _NON_BLOCKING_TYPE, _BLOCKING_TYPE = 7, 3, 2, 1


def global_tid(pid: int, tid: int = 0) -> int:
    """Return the serialised id of a thread, or of its process where `tid` is 0."""
    return _VM_ID | (pid << 24) | tid


@dataclass(frozen=True)
class Machine:
    """The profiled machine and the clocks of the capture; see `TraceBuilder` for the meaning."""

    hostname: str
    gpu_name: str
    driver_version: str
    utc_epoch_ns: int | None
    system_clock_ns: int
    duration_ns: int | None


@dataclass
class Process:
    """What a report knows about one process.

    Attributes:
        gpu_ids: The physical GPU behind each CUDA device.
        blocking_streams: Streams that wait for the default stream, and it for them.
        streams: The (device, context, stream) ids in use.
        domains: NVTX domain ids by name; 0 is the nameless default.
    """

    pid: int
    name: str = "python"
    gpu_ids: Sequence[int] = (0,)
    blocking_streams: Sequence[int] = ()
    streams: set[tuple[int, int, int]] = field(default_factory=set)
    domains: dict[str, int] = field(default_factory=lambda: {"": 0})
    next_correlation_id: int = 1
    next_range_id: int = 1

    def gpu_id(self, device_id: int) -> int:
        """Return the physical GPU of a CUDA device; the same number where none is listed."""
        return self.gpu_ids[device_id] if device_id < len(self.gpu_ids) else device_id


def _table(rows: Iterable[Mapping[str, Cells]]) -> TableRows:
    table = TableRows()
    for row in rows:
        table.add(1, row)
    return table


def describe_target(
    schema: ExportSchema,
    machine: Machine,
    processes: Sequence[Process],
    environment: Mapping[str, str],
    last_end_ns: int,
) -> dict[str, TableRows]:
    """Return the rows of the tables about machine, clocks, processes, GPUs, contexts and streams.

    Args:
        last_end_ns: End of the last event; the capture's length where `machine` has none.
    """
    duration_ns = last_end_ns if machine.duration_ns is None else machine.duration_ns
    clock_ns = machine.system_clock_ns
    gpu_ids = sorted({0}.union(*(process.gpu_ids for process in processes)))
    details: dict[str, Cells] = {
        "globalVid": _VM_ID,
        "duration": duration_ns,
        "startTime": clock_ns,
        "stopTime": clock_ns + duration_ns,
    }
    return {
        "ANALYSIS_DETAILS": _table([details]),
        "TARGET_INFO_SESSION_START_TIME": _session_start(machine),
        "TARGET_INFO_SYSTEM_ENV": _system_environment(machine, environment),
        "TARGET_INFO_GPU": _table(_gpu(schema, machine, gpu_id) for gpu_id in gpu_ids),
        "TARGET_INFO_CUDA_DEVICE": _table(
            {
                "gpuId": gpu_id,
                "cudaId": cuda_id,
                "pid": process.pid,
                "uuid": _gpu_uuid(machine, gpu_id),
                "numMultiprocessors": schema.gpus.get(machine.gpu_name, {}).get("smCount"),
            }
            for process in processes
            for cuda_id, gpu_id in enumerate(process.gpu_ids)
        ),
        "TARGET_INFO_CUDA_CONTEXT_INFO": _contexts(processes),
        "TARGET_INFO_CUDA_STREAM": _streams(processes),
        "PROCESSES": _table(
            {"globalPid": global_tid(process.pid), "pid": process.pid, "name": process.name}
            for process in processes
        ),
    }


def _session_start(machine: Machine) -> TableRows:
    epoch_ns = machine.utc_epoch_ns
    start = None
    if epoch_ns is not None:
        moment = datetime.fromtimestamp(epoch_ns // 1_000_000_000, tz=timezone.utc)
        start = moment.strftime("%Y-%m-%dT%H:%M:%S")
    clocks: dict[str, Cells] = {"utcEpochNs": epoch_ns, "systemClockNs": machine.system_clock_ns}
    return _table([clocks | {"utcTime": start, "localTime": start}])


def _system_environment(machine: Machine, environment: Mapping[str, str]) -> TableRows:
    properties = [
        ("CpuCores", 1, "64"),
        ("NvDriverVersion", 205, machine.driver_version),
        ("OsDescription", 605, "Ubuntu 22.04.4 LTS"),
        ("DeviceEnvironment", 610, ";".join(f"{k}={v}" for k, v in environment.items())),
        ("CudaDriverVersion", 611, "12040"),
        ("Hostname", 619, machine.hostname),
    ]
    return _table(
        {
            "globalVid": _VM_ID,
            "devStateName": "Local (CLI)",
            "name": name,
            "nameEnum": code,
            "value": value,
        }
        for name, code, value in properties
    )


def _gpu(schema: ExportSchema, machine: Machine, gpu_id: int) -> dict[str, Cells]:
    return {
        "vmId": _VM_ID,
        "id": gpu_id,
        "name": machine.gpu_name,
        "busLocation": f"0000:{gpu_id + 0x18:02x}:00.0",
        "isDiscrete": 1,
        "uuid": _gpu_uuid(machine, gpu_id),
        "cuDevice": gpu_id,
        **schema.gpus.get(machine.gpu_name, {}),
    }


def _gpu_uuid(machine: Machine, gpu_id: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{machine.hostname}/{gpu_id}"))


def _contexts(processes: Sequence[Process]) -> TableRows:
    return _table(
        {
            "nullStreamId": _NULL_STREAM,
            "vmId": 1,
            "processId": process.pid,
            "deviceId": device_id,
            "contextId": context_id,
        }
        for process in processes
        for device_id, context_id in sorted({place[:2] for place in process.streams})
    )


def _streams(processes: Sequence[Process]) -> TableRows:
    return _table(
        {
            "streamId": stream_id,
            "vmId": 1,
            "processId": process.pid,
            "contextId": context_id,
            "flag": _stream_type(process, stream_id),
        }
        for process in processes
        for context_id, stream_id in sorted({place[1:] for place in process.streams})
    )


def _stream_type(process: Process, stream_id: int) -> int:
    if stream_id == _NULL_STREAM:
        return _NULL_STREAM_TYPE
    return _BLOCKING_TYPE if stream_id in process.blocking_streams else _NON_BLOCKING_TYPE


def describe_capture(
    schema: ExportSchema,
    machine: Machine,
    options: Sequence[tuple[str, str]],
    *,
    lazy: bool,
) -> dict[str, TableRows]:
    """Return the rows of the tables about the capture's options and the export."""
    version = dict(zip(("_MAJOR", "_MINOR", "_MICRO"), schema.version.split("."), strict=True))
    export = [
        ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ("EXPORT_PRODUCT_VERSION", schema.product_version),
        ("EXPORT_PRODUCT_DATE", schema.product_date),
        ("EXPORT_SCHEMA_VERSION", schema.version),
        *((f"EXPORT_SCHEMA_VERSION{part}", number) for part, number in version.items()),
        ("EXPORT_PLATFORM", "linux-desktop"),
        ("EXPORT_ARCH", "x64"),
        ("EXPORT_PARAM_LAZY", "true" if lazy else "false"),
        ("EXPORT_PARAM_TIME_NORMALIZE", "false"),
        ("EXPORT_PARAM_TIME_SHIFT", "0"),
    ]
    capture = [("DEVICE_ID", "Local (CLI)"), ("DEVICE_DISPLAY_NAME", machine.hostname), *options]
    return {
        "META_DATA_CAPTURE": _table({"name": name, "value": value} for name, value in capture),
        "META_DATA_EXPORT": _table({"name": name, "value": value} for name, value in export),
    }
