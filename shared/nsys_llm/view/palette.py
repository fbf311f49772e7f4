"""Colors: one for each name, the same in every figure, and safe for the color-blind.

The first eight are those of Okabe and Ito (2008), the next ten Paul Tol's "muted" scheme (2021).
Categories and causes have theirs by name, ranks by number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from .text import NOT_KNOWN

_COLORS: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#b8a90c",
    "#332288",
    "#88ccee",
    "#44aa99",
    "#117733",
    "#999933",
    "#ddcc77",
    "#cc6677",
    "#882255",
    "#aa4499",
    "#6699cc",
    "#a8a8d8",
    "#c8c0b0",
    "#7a4a1e",
    "#e7298a",
)

#: Where nothing is known, or there is nothing to tell apart.
NEUTRAL: Final = "#8c8c8c"

#: From nothing to everything; the lightness falls evenly, so that it reads in grey too.
HEAT: Final = (
    (0.0, "#f7fbff"),
    (0.25, "#c6dbef"),
    (0.5, "#6baed6"),
    (0.75, "#2171b5"),
    (1.0, "#08306b"),
)

#: From less over equal to more: blue, white, orange, which the color-blind tell apart.
DIVERGING: Final = ((0.0, "#2166ac"), (0.5, "#f7f7f7"), (1.0, "#b35806"))

#: Positions above; the categories that share a figure most often are farthest apart.
_FIXED: Final = {
    **{"gemm": 0, "attention": 1, "norm": 2, "communication": 3, "kv_cache": 4, "activation": 5},
    **{"elementwise": 6, "moe": 7, "gemv": 8, "quantisation": 9, "rope": 10, "embedding": 11},
    **{"memory": 12, "reduction": 13, "sampling": 14, "triton_fused": 15, "softmax": 16},
    **{"sort": 17, "bookkeeping": 13, "recurrent": 11, "convolution": 9, "optimizer": 14},
    **{"compute": 0, "copy": 1, "kernel": 0, "memcpy": 1, "memset": 4, "graph": 2},
    **{"pageable": 3, "pinned": 0, "device": 2, "managed": 4, "array": 5},
    **{"HtoD": 0, "DtoH": 1, "DtoD": 2, "PtoP": 3},
    **{"high": 3, "medium": 1, "low": 5},
    **{"baseline": 0, "input": 1, "regress": 3, "improve": 2},
    **{"new": 1, "vanished": 5},
    # Parts of communication.
    **{"transfer": 7, "waiting": 4, "pipeline bubble": 10, "experts": 14},
    # Classes of API functions that are no causes of idle time too.
    **{"launch": 5, "graph_launch": 8, "host_block": 3, "poll": 17, "stream_order": 10, "free": 7},
    **{"event": 16, "module": 11},
    # Parts of busy time and of windows, by the headings of their columns.
    **{"compute only": 0, "communication only": 3, "copy only": 1, "busy": 0, "overhead": 7},
    **{"compute + communication": 2, "compute + copy": 5, "communication + copy": 4},
    "two or more at once": 2,
    **{
        "load": 12,
        "no_work": 18,
        "other_process": 20,
        "start_up": 19,
        "fused": 14,
        "fused_communication": 14,
    },
    # Causes of idle time; none of them that of an operation, beside which they stand.
    **{"host_sync": 3, "sync_memop": 13, "alloc": 14, "module_load": 11, "back_pressure": 15},
    **{"launch_api": 5, "other_api": 9, "host_no_cuda": 6, "launch_latency": 8, "queued": 17},
    **{"no_api": 12, "after_last": 16, "profiler_overhead": 7, "OS call": 10},
}
_NOTHING_KNOWN: Final = frozenset(
    {"unmatched", "mixed", "compiler", "other", "none", "insufficient", "idle", "unresolved", ""}
    | {"not_recorded", NOT_KNOWN}
)


def color_map(names: Sequence[str], *, ordered: bool = False) -> dict[str, str]:
    """Return the color of each name; two names of one figure never share one while there are any.

    Args:
        ordered: Take the colors by the numbers of the names (ranks), or where these are not
            distinct in turn; else each name has its own, whatever the others, and only one that
            would collide gives way to a name with a fixed color.
    """
    if ordered:
        digits = [re.findall("[0-9]+", name) or ["0"] for name in names]
        numbers = [int(some[-1]) for some in digits]
        places = numbers if len(set(numbers)) == len(names) else range(len(names))
        return {name: _COLORS[n % len(_COLORS)] for name, n in zip(names, places, strict=True)}
    taken: dict[int, str] = {}
    for name in sorted(set(names) - _NOTHING_KNOWN, key=lambda name: (name not in _FIXED, name)):
        wanted = _FIXED.get(name, crc32(name.encode()) % len(_COLORS))
        free = (index % len(_COLORS) for index in range(wanted, wanted + len(_COLORS)))
        taken.setdefault(
            next((index for index in free if index not in taken), -1 - len(taken)), name
        )
    colors = {name: _COLORS[index % len(_COLORS)] for index, name in taken.items()}
    return {name: colors.get(name, NEUTRAL) for name in names}
