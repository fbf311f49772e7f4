"""Which kernels move data between GPUs, and which operation each carries out, by its name."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from nsys_llm.taxonomy.categories import COMMUNICATION, FUSED, load_rules

#: A rank has hundreds of kernel names, and all ranks of a job share most of them.
_REMEMBERED_NAMES: Final = 1 << 16
#: A communication kernel whose name does not tell its operation.
OTHER: Final = "other"
#: Sends, receives, and all that is made of them.
SEND_RECV: Final = "send_recv"
#: Copies between GPUs of one process, by copy engines.
COPY_ENGINE: Final = "copy_engine"
#: Operations as sentences have them.
OPERATION_WORDS: Final = {
    "reduce_scatter": "reduce-scatter",
    "dispatch": "expert dispatch",
    "combine": "expert combine",
    "all_to_all": "all-to-all",
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    SEND_RECV: "send/recv or all-to-all",
    COPY_ENGINE: "peer copies",
    OTHER: "communication",
}

#: First match wins, so what contains another's name stands before it. Sources: NCCL's device
#: functions, vLLM's and TensorRT-LLM's all-reduces, PyTorch symmetric memory, DeepEP, NVSHMEM.
#: Repetitions have a limit, so that no name, however long, takes more time than its length.
_OPERATIONS: Final = tuple(
    (operation, re.compile(pattern, re.IGNORECASE))
    for operation, pattern in (
        ("reduce_scatter", r"reduce_?scatter"),
        ("dispatch", r"dispatch"),
        ("combine", r"combine"),
        ("all_to_all", r"all_?(?:to|2)_?all|a2a"),
        ("all_gather", r"all_?gather"),
        (
            "all_reduce",
            r"all_?reduce|cross_device_reduce|one_?shot|two_?shot|quick_?reduce|rmsNormLamport|ipc_rsag|ipc_tp",
        ),
        ("broadcast", r"broadcast|bcast"),
        (SEND_RECV, r"send_?recv|nccl\w{0,99}_(?:send|recv)"),
        ("barrier", r"barrier"),
        ("reduce", r"nccl\w{0,99}_reduce"),
    )
)


@cache
def is_communication(name: str) -> bool:
    """Return whether a kernel is communication, by its demangled name.

    The rules of all engines end in the generic ones, which know every collective: NCCL, custom and
    fused all-reduces, NVSHMEM, DeepEP. They decide here, so that one rank can tell communication
    from computation before the engine is known, which takes the names of all ranks.
    """
    return load_rules("generic").classify(name).category == COMMUNICATION


@cache
def is_fused(name: str) -> bool:
    """Return whether a kernel computes and communicates at once, by its demangled name.

    Its waiting for other ranks cannot be told apart, so it is neither in the sum of computation nor
    in that of communication.
    """
    return load_rules("generic").classify(name).category == FUSED


def computes(name: str) -> bool:
    """Return whether a kernel only computes, by its demangled name."""
    return not is_communication(name) and not is_fused(name)


@lru_cache(maxsize=_REMEMBERED_NAMES)
def operation_of(name: str) -> str:
    """Return the operation of a communication kernel, by its demangled name; `OTHER` if untold.

    Send and receive are one operation: NCCL runs both, and all-to-all, in one kernel.
    """
    return next((operation for operation, pattern in _OPERATIONS if pattern.search(name)), OTHER)


#: Kernels that are compiled for a number of ranks: their first number, behind types.
_MEMBERS: Final = re.compile(
    r"(?:cross_device_reduce|allreduce_fusion_kernel|intranode::(?:dispatch|combine))\w{0,99}"
    r"<(?:[^<>]{0,300}?[ ,])??(?:\(int\))?(\d{1,4})[,>]"
)


@lru_cache(maxsize=_REMEMBERED_NAMES)
def members_n(name: str) -> int:
    """Return how many ranks a kernel is compiled for; 0 where its name does not tell."""
    told = _MEMBERS.search(name)
    return 0 if told is None else int(told[1])
