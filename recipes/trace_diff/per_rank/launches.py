"""Kernels of one rank as launches of a name in a configuration, registers and all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct_rows
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import shown_name_ids

#: Columns of a launch configuration.
CONFIG: Final = (
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers_per_thread",
    "static_shared_bytes",
    "dynamic_shared_bytes",
)

#: Shown name, demangled name, and the values of `CONFIG`; NULL_INT for what the report lacks.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Launches:
    """Kernels of one rank.

    Attributes:
        keys: Distinct keys, sorted.
        key: Shape (kernels,), position in `keys`.
    """

    keys: tuple[Key, ...]
    key: IntArray

    def communicates(self) -> npt.NDArray[np.bool_]:
        """Tell which kernels are communication, shape (kernels,); demangled names decide."""
        reported = [is_communication(key[1]) for key in self.keys]
        return np.array(reported, dtype=bool)[self.key] if reported else np.zeros(0, dtype=bool)


def coded_launches(
    kernels: Table, strings: Mapping[int, str], options: Mapping[str, Any]
) -> Launches:
    """Return what each kernel launches.

    Args:
        kernels: Of one rank.
        strings: Texts behind ids.
        options: base and mangled choose the names.
    """
    full, full_code = coded_names(kernels["demangled_name_id"], strings)
    shown, shown_code = coded_names(shown_name_ids(kernels, options), strings)
    columns = [shown_code, full_code, *(kernels[column] for column in CONFIG)]
    first, key = distinct_rows(columns)
    values = zip(*(column[first].tolist() for column in columns), strict=True)
    return Launches(tuple((shown[i], full[k], *rest) for i, k, *rest in values), key)


def config_text(config: tuple[int, ...]) -> str:
    """Return a configuration as people write it: `132x1x1 / 384x1x1 / 168 regs / 1024 B`.

    Shared memory, static and dynamic, is left out where there is none.
    """
    sizes = ["?" if value == NULL_INT else str(value) for value in config]
    static, dynamic = ("0" if size == "?" else size for size in sizes[7:9])
    shared = "" if static == dynamic == "0" else f" / {static} + {dynamic} B"
    return f"{'x'.join(sizes[:3])} / {'x'.join(sizes[3:6])} / {sizes[6]} regs{shared}"
