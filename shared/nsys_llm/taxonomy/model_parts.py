"""Parts of a model in names: the module of an NVTX range or annotation, the line of a stack. Pure.

A part is the path of a module with its numbers folded, so that layers add up:
`layers.*.mlp.down_proj`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: Share of the kernels in graphs that annotations must fit, else they are taken for another run's.
LEAST_JOINED: Final = 0.9
#: Share of those that ranges show elsewhere from which the same holds.
MOST_ODD: Final = 0.1
#: What is said of a part whose kernels run in the backward pass.
BACKWARD: Final = " (backward)"
#: Parts that run no attention, however a model calls what does.
WITHOUT_ATTENTION: Final = re.compile(r"(?:_proj|norm\w*|(?:^|\.)lm_head)$")

_MOST_CACHED: Final = 1 << 16
#: What wrappers of PyTorch put between the modules of a path.
_WRAPPERS: Final = re.compile(
    r"\b(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\."
    r"|\.(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)$"
)
#: A number that stands by itself in a path (`layers.3`, `layer_3`, `experts[5]`), or behind the
#: word for a layer; not one that is part of a name (`fc1`).
_NUMBER: Final = re.compile(
    r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])|(?<=layer)\d+\b|(?<=block)\d+\b", re.I
)
_LAYER: Final = r"(?:layers?|blocks?|h|decoder|encoder)"

#: How ranges name a module. Layerwise markers of vLLM, SGLang and TensorRT-LLM are a dictionary as
#: text; Megatron names the function and what it calls; others have a path with the layer's number.
_OF_RANGES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\{['\"]Module['\"]: ?['\"](?P<part>[^'\"]+)['\"]",
        r"^nn\.Module: (?P<part>\w+?)_\d+$",
        r"^megatron\.core\.(?:transformer|models|ssm)\.(?:\w+\.)*(?P<part>\w+)\.\w+\.(?P<of>[a-z]\w*)$",
        rf"(?:^|[\s(/:])(?P<part>(?:[A-Za-z_]\w*\.)*{_LAYER}[._\[]\d+\]?(?:\.[A-Za-z_]\w*|\.\d+)*)"
        r"(?=$|[\s),:/])",
        r"^(?P<part>(?:\w+[ _])?(?:[Ll]ayer|[Bb]lock)[ _-]?\d+)$",
    )
)
#: FSDP's hooks gather a layer's weights; the layer's own work is outside of them.
_HOOK: Final = re.compile(r"^FSDP::")
#: The whole model is no part of it.
_WHOLE: Final = frozenset({"model", "top", "module", "root"})
#: A range inside one of a layer that names a module of it.
_WORD: Final = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$")

#: Frames of a stack that say how a module is called and a kernel launched, not whose it is.
_PLUMBING: Final = re.compile(
    r"(?:^|/)(?:torch|triton|torch_inductor|torchinductor_\w+|contextlib\.py|functools\.py"
    r"|threading\.py|asyncio|concurrent|multiprocessing)(?:/|:|$)|^<|/tmp/"
)
_PACKAGES: Final = re.compile(r"^.*/(?:site|dist)-packages/")
#: Components of another path that are kept; what stands before is somebody's folder.
_KEPT: Final = 3


@lru_cache(_MOST_CACHED)
def folded(path: str) -> str:
    """Return the path of a module without wrappers, each number in it as `*`."""
    return _NUMBER.sub("*", _WRAPPERS.sub("", path.strip()))


def part_of_range(text: str) -> str | None:
    """Return the part that the name of a range says; None for one that says none."""
    for pattern in () if _HOOK.match(text) else _OF_RANGES:
        if found := pattern.search(text):
            names = [name for name in found.groupdict().values() if name]
            part = folded(".".join(names))
            return None if part in _WHOLE else part
    return None


def is_part_word(text: str) -> bool:
    """Tell whether a range inside one of a layer names a module of it."""
    return _WORD.match(text) is not None


def is_among(part: str, others: Iterable[str]) -> bool:
    """Tell whether a part is one of others, holds one or is in one, however they are spelled."""
    own, *inside = (
        f".{text.partition('*')[2].strip('.') if '*' in text else text}."
        for text in (part.removesuffix(BACKWARD), *others)
    )
    return any(".." in (own, other) or own in other or other in own for other in inside)


def source_of(frames: Iterable[str]) -> str | None:
    """Return file and line of the innermost frame that is not PyTorch's own.

    Args:
        frames: Innermost first, each `file:line` or `file:line:function`.
    """
    places = [
        ":".join(frame.rsplit(":", 2)[:2]) if frame.count(":") > 1 else frame
        for frame in map(str.strip, frames)
        if ":" in frame
    ]
    useful = next((place for place in places if not _PLUMBING.search(place)), None)
    return _shortened(useful or places[0]) if places else None


@lru_cache(_MOST_CACHED)
def _shortened(place: str) -> str:
    inside, packages_n = _PACKAGES.subn("", place)
    return inside if packages_n else "/".join(place.split("/")[-_KEPT:])
