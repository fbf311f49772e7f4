"""Which part of the software a file of a sampled stack belongs to: `data/host_modules.json`."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from nsys_llm.taxonomy.data_files import data_file

#: Where no pattern matches.
OTHER: Final = "other"
KERNEL: Final = "kernel"
UNRESOLVED: Final = "unresolved"
_COLLECTS: Final = re.compile(r"gc_collect|_PyGC|deduce_unreachable|subtract_refs|visit_decref")
#: Compilers that run inside of a process.
_COMPILES: Final = re.compile(r"/(?:lib)?(?:triton|nvrtc|nvptxcompiler|nvJitLink|LLVM)[^/]*\.so")


@lru_cache(maxsize=1 << 14)
def module_class(path: str) -> str:
    """Return the class of a file of a stack, as Nsight Systems names it; `other` for no known."""
    return next((name for name, pattern in _patterns() if pattern.search(path)), OTHER)


def collects_garbage(function: str) -> bool:
    """Return whether a function is one of CPython's garbage collection."""
    return _COLLECTS.search(function) is not None


def compiles(path: str) -> bool:
    """Return whether a file of a stack is a compiler's."""
    return _COMPILES.search(path) is not None


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (item["name"], re.compile("|".join(item["patterns"]), re.IGNORECASE))
        for item in data_file("host_modules")["classes"]
    )
