"""Colors: one for each name, the same in every figure, and safe for the color-blind.

Of what keeps a GPU busy the first eight are those of Okabe and Ito (2008), the next ten Paul Tol's
"muted" scheme (2021). What it waits for has others, chosen far from those and from each other (in
CIELAB, as most people and the red-green blind see them). Categories and causes have theirs by name,
ranks by number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from .text import NOT_KNOWN

_COLORS: Final = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b8a90c", "#332288"),
    *("#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499"),
    *("#6699cc", "#a8a8d8", "#c8c0b0", "#e7298a"),
)

#: Of causes and classes of idle time and waiting, and of what a host does meanwhile. None is a
#: color of work. Names that share one never stand in one figure.
_IDLE: Final = {
    **{"waiting": "#947cf4", "pipeline bubble": "#f4d040", "experts": "#e89440"},
    **{"host_sync": "#e8546e", "sync_memop": "#f470c4", "alloc": "#b858d0"},
    **{"module_load": "#947058", "back_pressure": "#a8dcb4", "host_no_cuda": "#b2d96c"},
    **{"launch_api": "#34a0b8", "launch_latency": "#9adfe6", "other_api": "#287cf4"},
    **{"queued": "#d0ac7c", "no_api": "#a08840", "after_last": "#c4dcb8"},
    # Of a path.
    **{"device_latency": "#d0ac7c", "sync_latency": "#ffb8a0", "wait_for_rank": "#947cf4"},
    **{"no_work": "#d8c8e8", "other_process": "#f470a0", "start_up": "#70c458"},
    **{"profiler_overhead": "#947094", "OS call": "#88b888"},
    # Classes of API functions.
    **{"launch": "#34a0b8", "graph_launch": "#9adfe6", "host_block": "#e8546e", "free": "#f470c4"},
    **{"poll": "#a08840", "stream_order": "#88b888", "event": "#e89440", "module": "#947058"},
    # Parts of windows, by the headings of their columns.
    **{"overhead": "#947094", "profiler": "#947094"},
    **dict.fromkeys(("idle", "unresolved", "not_recorded"), "#9aa4ae"),
    "outside of steps": "#ddd2b8",
}
_IDLE_COLORS: Final = tuple(dict.fromkeys(_IDLE.values()))
#: What no other name ever has.
_OWN: Final = _IDLE | dict.fromkeys(("copies", "copy", "memcpy", "copy_only"), "#a0622d")

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
    **{"compute": 0, "kernel": 0, "memset": 4, "graph": 2, "not_matched": 3},
    **{"pageable": 3, "pinned": 0, "device": 2, "managed": 4, "array": 5},
    **{"HtoD": 0, "DtoH": 1, "DtoD": 2, "PtoP": 3},
    **{"high": 3, "medium": 1, "low": 5},
    **{"baseline": 0, "input": 1, "regress": 3, "improve": 2},
    **{"new": 1, "vanished": 5},
    "transfer": 7,
    # Parts of busy time, by the headings of their columns.
    **{"compute only": 0, "communication only": 3, "busy": 0},
    **{"compute communication": 2, "compute copy": 5, "communication copy": 4},
    **{"load": 12, "fused": 14, "fused_communication": 14},
}
_NOTHING_KNOWN: Final = frozenset(
    {"unmatched", "mixed", "compiler", "other", "none", "insufficient", "unknown"} | {NOT_KNOWN, ""}
)


def color_map(names: Sequence[str], *, ordered: bool = False, idle: bool = False) -> dict[str, str]:
    """Return the color of each name; two names of one figure never share one while there are any.

    Args:
        ordered: Take the colors by the numbers of the names (ranks), or where these are not
            distinct in turn; else each name has its own, whatever the others, and only one that
            would collide gives way to a name with a fixed color.
        idle: Names without a color of their own say what a GPU waits for, not what it does.
    """
    if ordered:
        digits = [re.findall("[0-9]+", name) or ["0"] for name in names]
        numbers = [int(some[-1]) for some in digits]
        places = numbers if len(set(numbers)) == len(names) else range(len(names))
        return {name: _COLORS[n % len(_COLORS)] for name, n in zip(names, places, strict=True)}
    # Headings of columns have blanks.
    known = {name: name if name in _OWN else name.replace(" ", "_") for name in names}
    colors = {name: _OWN[key] for name, key in known.items() if key in _OWN}
    palette = _IDLE_COLORS if idle else _COLORS
    taken = {*colors.values()}
    others = set(names) - _NOTHING_KNOWN - colors.keys()
    for name in sorted(others, key=lambda name: (name not in _FIXED, name)):
        wanted = _FIXED.get(name, crc32(name.encode()))
        turned = (palette[(wanted + index) % len(palette)] for index in range(len(palette)))
        first = palette[wanted % len(palette)]
        colors[name] = next((color for color in turned if color not in taken), first)
        taken.add(colors[name])
    return {name: colors.get(name, NEUTRAL) for name in names}
