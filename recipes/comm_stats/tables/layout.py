"""The layout that a person gives: how many ranks along each axis of parallelism."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from nsys_llm.core.errors import UsageError

#: Axes in the order in which ranks are numbered, the first one fastest, as Megatron-LM has them.
AXES: Final[tuple[str, ...]] = ("tp", "cp", "ep", "dp", "pp")
_SIZE: Final = re.compile(r"(tp|cp|ep|dp|pp)=([1-9]\d{0,6})")
_ORDER: Final = "order="
#: Axes of which a communicator has all ranks, or one.
_WHOLE: Final = ("tp", "ep")


@dataclass(frozen=True)
class Layout:
    """The place of each rank along the axes.

    Attributes:
        sizes: By axis, in the order in which ranks are numbered.
    """

    sizes: Mapping[str, int]

    def places(self, rank: int) -> dict[str, int]:
        """Return the place of a rank along each axis."""
        places = {}
        for axis, size in self.sizes.items():
            rank, places[axis] = divmod(rank, size)
        return places

    def axis_of(self, ranks: frozenset[int]) -> str | None:
        """Return the axis along which alone some ranks differ, and all that do; None for none.

        Of a pipeline two stages exchange messages.
        """
        places = [self.places(rank) for rank in ranks]
        differ = [axis for axis in self.sizes if len({place[axis] for place in places}) > 1]
        if len(differ) == 1 and (differ[0] == "pp" or len(ranks) == self.sizes[differ[0]]):
            return differ[0]
        return None

    def contradicted(self, ranks: frozenset[int]) -> bool:
        """Return whether a communicator cannot be one: it is not made of whole axes.

        Data and context may be split in groups of groups, and some stages may share a layer.
        """
        places = [self.places(rank) for rank in ranks]
        spread = {axis: len({place[axis] for place in places}) for axis in self.sizes}
        is_whole = all(spread[axis] in (1, self.sizes[axis]) for axis in _WHOLE if axis in spread)
        return not is_whole or prod(spread.values()) != len(ranks)


def parse_layout(text: str | None, ranks_n: int) -> Layout | None:
    """Return what `tp=8,pp=4[,order=tp-cp-ep-dp-pp]` says; None without a text.

    Raises:
        UsageError: It is none, or has another number of ranks.
    """
    if text is None:
        return None
    sizes: dict[str, int] = {}
    order = AXES
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        if match is not None and match[1] not in sizes:
            sizes[match[1]] = int(match[2])
        elif part.strip().startswith(_ORDER):
            order = tuple(part.strip().removeprefix(_ORDER).split("-"))
        else:
            raise UsageError(f"'{text}' is not a layout; write like tp=8,pp=4.")
    if sorted(set(order)) != sorted(order) or not sizes.keys() <= set(order) <= set(AXES):
        raise UsageError(f"the order of '{text}' does not have each of its axes once.")
    if prod(sizes.values()) != ranks_n:
        raise UsageError(
            f"the layout '{text}' has {prod(sizes.values())} ranks; the job has {ranks_n}. GPUs "
            "count as ranks where each process has equally many, and several."
        )
    return Layout({axis: sizes.get(axis, 1) for axis in order})
