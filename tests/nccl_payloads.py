"""Writes payloads of NCCL's calls into a profile, by the public headers of NVTX and NCCL.

Everything is packed with `struct` here, apart from the decoder that is tested.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

STATIC: Final = 1 << 24
DOMAIN: Final = 7
#: Type numbers of NVTX with the format of `struct`.
FORMATS: Final = {
    **{5: "<i", 15: "<i", 6: "<I", 16: "<I", 7: "<q", 9: "<q", 17: "<q"},
    **{8: "<Q", 10: "<Q", 18: "<Q", 22: "<Q", STATIC + 11: "<i"},
}
COMM, BYTES, PEER, ROOT, REDOP = (
    "NCCL communicator ID",
    "Message size [bytes]",
    "Peer rank",
    "Root",
    "Reduction operation",
)
#: Entries of NCCL's schemas, by the number of the schema: type and label.
SCHEMAS: Final[Mapping[int, Sequence[tuple[int, str]]]] = {
    4: ((18, COMM), (22, BYTES)),
    5: ((18, COMM), (22, BYTES), (STATIC + 11, REDOP)),
    6: ((18, COMM), (22, BYTES), (5, ROOT)),
    7: ((18, COMM), (22, BYTES), (STATIC + 11, REDOP)),
    8: ((18, COMM), (22, BYTES), (5, ROOT), (STATIC + 11, REDOP)),
    9: ((18, COMM), (22, BYTES), (5, PEER)),
    0: ((18, COMM), (5, "No. of ranks"), (5, "Rank"), (5, "CUDA device")),
}
SCHEMA_OF: Final = {
    "ncclAllGather": 4,
    "ncclAlltoAll": 4,
    "ncclAllReduce": 5,
    "ncclBroadcast": 6,
    "ncclReduceScatter": 7,
    "ncclReduce": 8,
    "ncclSend": 9,
    "ncclRecv": 9,
    "ncclCommInitRank": 0,
}
#: A schema that is there twice, and not the same.
TWICE: Final = 90


def structure(entries: Sequence[tuple[int, str]], values: Sequence[int]) -> bytes:
    """Return a C structure of some values, each aligned to its own width."""
    raw = b""
    for (kind, _), value in zip(entries, values, strict=True):
        part = struct.pack(FORMATS[kind], value)
        raw += b"\0" * (-len(raw) % len(part)) + part
    return raw + b"\0" * (-len(raw) % 8)


def blob(schema: int, raw: bytes, **header: int) -> bytes:
    """Return a payload as an export has it; `header` plants faults."""
    given = {"domain": DOMAIN, "schema": STATIC + schema, "size": len(raw), "last": 32, **header}
    return struct.pack("<4Q", *given.values()) + raw


def call_blob(name: str, *values: int) -> bytes:
    schema = SCHEMA_OF[name]
    return blob(schema, structure(SCHEMAS[schema], values))


def add_payloads(
    path: Path,
    payloads: Mapping[tuple[str, int], Any],
    *,
    schemas: Mapping[int, Sequence[tuple[int, str]]] = SCHEMAS,
    offsets: bool = True,
    processes_n: int = 1,
    as_text: bool = False,
) -> Path:
    """Put payloads beside ranges of an SQLite export.

    Args:
        path: Of the export, which is changed.
        payloads: By name and start of the range.
        schemas: Registered by each of so many processes.
        offsets: Whether entries say where they lie.
        as_text: Whether the export holds digits instead of bytes.
    """
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(
            "CREATE TABLE IF NOT EXISTS NVTX_PAYLOAD_SCHEMAS (domainId INTEGER, schemaId INTEGER, "
            "name TEXT, type INTEGER, flags INTEGER, numEntries INTEGER, payloadSize INTEGER, "
            "alignTo INTEGER)"
        )
        base.execute(
            "CREATE TABLE IF NOT EXISTS NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, "
            "schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, flags INTEGER, type INTEGER, name "
            "TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER)"
        )
        for _ in range(processes_n):
            for number, entries in schemas.items():
                _register(base, number, entries, offsets=offsets)
        for kind in (5, 22):
            _register(base, TWICE, ((kind, BYTES),), offsets=offsets)
        for (name, start_ns), value in payloads.items():
            base.execute(
                "UPDATE NVTX_EVENTS SET binaryData = ? WHERE start = ? AND (text = ? OR textId "
                "IN (SELECT id FROM StringIds WHERE value = ?))",
                (value.hex().upper() if as_text else value, start_ns, name, name),
            )
    return path


def _register(
    base: sqlite3.Connection, number: int, entries: Sequence[tuple[int, str]], *, offsets: bool
) -> None:
    base.execute(
        "INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (?, ?, '', 1, 0, ?, 0, 0)",
        (DOMAIN, STATIC + number, len(entries)),
    )
    end = 0
    for place, (kind, label) in enumerate(entries):
        width = struct.calcsize(FORMATS[kind]) if kind in FORMATS else 16
        begin = end + -end % width
        end = begin + width
        base.execute(
            "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, 0, ?, ?, '', 0, ?)",
            (DOMAIN, STATIC + number, place, kind, label, begin if offsets else None),
        )
