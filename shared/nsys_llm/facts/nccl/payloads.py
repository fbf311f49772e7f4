"""Decodes what NCCL says of a call in the payload of its NVTX range. Pure.

A payload is a header and a structure that a schema describes: in `nvtx3/nvToolsExtPayload.h` of
NVIDIA's NVTX, with the labels of NCCL's `nvtx_payload_schemas.h`. No real one has been seen yet, so
nothing is guessed: what does not fit is counted by its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table

#: Why the size of a call is not known.
OK: Final = "ok"
NO_BLOB: Final = "no_blob"
NO_PAYLOAD: Final = "no_payload"
NO_SCHEMA: Final = "no_schema"
BAD_HEADER: Final = "bad_header"
SHORT: Final = "short"
CONFLICT: Final = "conflict"
IMPLAUSIBLE: Final = "implausible"

#: Four numbers of 8 bytes: domain, schema, size, and where the structure ends or begins.
_HEADER: Final = 32
_WORD: Final = 8
#: Width and sign of integers, by the type's number.
_INTEGERS: Final = {
    **dict.fromkeys((5, 15), (4, True)),
    **dict.fromkeys((6, 16), (4, False)),
    **dict.fromkeys((7, 9, 17), (8, True)),
    **dict.fromkeys((8, 10, 18, 22), (8, False)),
}
#: Width of what else may stand before them.
_WIDTHS: Final = {1: 1, 2: 1, 3: 2, 4: 2, 11: 1, 12: 1, 13: 2, 14: 2, 19: 4, 20: 8, 23: 8}
#: Numbers of schemas that programs choose; as the type of an entry, an enumeration of 4 bytes.
_FIRST_STATIC: Final = 1 << 24
_LAST_STATIC: Final = 1 << 32
_ENUM_BYTES: Final = 4

#: Columns of an entry.
_ENTRY: Final = ("domain_id", "schema_id", "place", "entry_type", "text", "offset")
#: By NCCL's labels.
_FIELDS: Final[Mapping[str, str]] = {
    "NCCL communicator ID": "comm",
    "Message size [bytes]": "size_bytes",
    "Bytes": "size_bytes",
    "Peer rank": "peer",
    "No. of ranks": "ranks_n",
    "Rank": "rank",
}


@dataclass(frozen=True)
class Payload:
    """What a payload says.

    Attributes:
        reason: `OK`, or why nothing is known.
        fields: By names of ours: comm, size_bytes, peer, ranks_n, rank.
    """

    reason: str
    fields: Mapping[str, int]


@dataclass(frozen=True)
class _PayloadField:
    name: str
    offset: int
    width: int
    signed: bool


class Schemas:
    """The schemas of a profile, by domain and number."""

    def __init__(self, entries: Table | None) -> None:
        """Read the entries; equal rows, which a profile has of each process, count once."""
        rows: dict[tuple[int, int], dict[int, set[tuple[int, str, int]]]] = {}
        columns = [] if entries is None else [entries[name].tolist() for name in _ENTRY]
        for domain, schema, place, kind, label, offset in zip(*columns, strict=True):
            places = rows.setdefault((_unsigned(domain), _unsigned(schema)), {})
            places.setdefault(place, set()).add((kind, label or "", offset))
        self._fields: dict[tuple[int, int], list[_PayloadField] | None] = {}
        for key, places in rows.items():
            in_order = [some for _, same in sorted(places.items()) for some in same]
            self._fields[key] = _placed(in_order) if len(in_order) == len(places) else None

    def decoded(self, digits: str) -> Payload:
        """Decode a payload.

        Args:
            digits: Its bytes, two digits each; of an export that holds digits, these as bytes.
        """
        raw = _bytes(digits)
        if raw is None or len(raw) < _HEADER:
            return Payload(SHORT if raw is not None else BAD_HEADER, {})
        domain, schema, size, last = (
            int.from_bytes(raw[at : at + _WORD], "little") for at in range(0, _HEADER, _WORD)
        )
        if last not in (_HEADER, _HEADER + size):
            return Payload(BAD_HEADER, {})
        if len(raw) < _HEADER + size:
            return Payload(SHORT, {})
        if (domain, schema) not in self._fields:
            return Payload(NO_SCHEMA, {})
        fields = self._fields[domain, schema]
        if fields is None:
            return Payload(CONFLICT, {})
        return _payload(raw[_HEADER : _HEADER + size], fields)


def _payload(raw: bytes, fields: list[_PayloadField]) -> Payload:
    values: dict[str, int] = {}
    for field in fields:
        if field.offset + field.width > len(raw):
            return Payload(SHORT, {})
        if field.name in values:
            return Payload(CONFLICT, {})
        part = raw[field.offset : field.offset + field.width]
        values[field.name] = int.from_bytes(part, "little", signed=field.signed)
    return Payload(OK, values)


def _unsigned(value: int) -> int:
    return value & ((1 << 64) - 1)


def _placed(entries: list[tuple[int, str, int]]) -> list[_PayloadField]:
    """Return the fields that are looked at, where each lies; none behind an unknown width."""
    fields: list[_PayloadField] = []
    end: int | None = 0
    for place, (kind, label, offset) in enumerate(entries):
        is_enum = _FIRST_STATIC <= kind < _LAST_STATIC
        width, signed = (_ENUM_BYTES, True) if is_enum else _INTEGERS.get(kind, (0, False))
        whole = width or _WIDTHS.get(kind, 0)
        # An offset of 0 behind the first entry says no more than NULL.
        if offset == NULL_INT or (offset == 0 and place):
            offset = -1 if end is None or not whole else -(-end // whole) * whole
        end = offset + whole if whole and offset >= 0 else None
        if width and offset >= 0 and label in _FIELDS:
            fields.append(_PayloadField(_FIELDS[label], offset, width, signed))
    return fields


def _bytes(digits: str) -> bytes | None:
    """Return the bytes of a cell; None where it holds neither bytes nor digits."""
    try:
        raw = bytes.fromhex(digits)
        # A header has zeros: a cell without is text, and that of an export are digits again.
        if raw and 0 not in raw[:_HEADER]:
            return bytes.fromhex(raw.decode("ascii").removeprefix("0x"))
    except ValueError:
        return None
    return raw
