"""Tables of an export that look like those that are read, and are in a form not known here."""

from __future__ import annotations

import re
from typing import Final

from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import table_source

#: Those whose successors a newer release may write beside them, or in their place.
_READ: Final = (
    *("kernels", "memcpys", "memsets", "graph_traces", "api_calls"),
    *("nvtx_events", "os_calls", "cpu_samples", "thread_switches"),
)
_PAYLOADS: Final = "payloads"
#: Tables of payloads in the form that is known; of enumerations nothing is read.
_KNOWN_PAYLOADS: Final = re.compile("NVTX_PAYLOAD_(?:SCHEMAS|SCHEMA_ENTRIES|ENUMS|ENUM_ENTRIES)")


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
