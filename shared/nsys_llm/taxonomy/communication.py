"""Which kernels move data between GPUs, whatever engine the rest of the names belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nsys_llm.taxonomy.categories import load_rules

#: The category of collectives, point-to-point transfers, and what is fused into them.
COMMUNICATION: Final = "communication"

#: A rank has hundreds of kernel names, and all ranks of a job share most of them.
_REMEMBERED_NAMES: Final = 1 << 16


@lru_cache(maxsize=_REMEMBERED_NAMES)
def is_communication(name: str) -> bool:
    """Tell whether a kernel is communication, by its demangled name.

    The rules of all engines end in the generic ones, which know every collective: NCCL, custom and
    fused all-reduces, NVSHMEM, DeepEP. They decide here, so that one rank can tell communication
    from computation before the engine is known, which takes the names of all ranks.
    """
    return load_rules("generic").classify(name).category == COMMUNICATION
