"""What the name of an NVTX range says of steps: an engine's, a framework's, a layer, an operator.

The patterns and where they come from are in `data/step_ranges.json`. Pure text work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final, Literal

from nsys_llm.core.patterns import NamePattern, parse_pattern

#: What a step is; one choice a run.
STEP: Final = "step"
LAYER: Final = "layer"
GRAPH: Final = "graph"
PERIOD: Final = "period"

#: An operator that autograd records: `aten::mm, seq = 7, op_id = 9`. Ranges of one's own have no
#: sequence number.
_SEQUENCE: Final = re.compile(r", seq = [0-9]+")


@dataclass(frozen=True)
class EngineStep:
    """A range that an engine writes around a step.

    Attributes:
        engine: Key of the engine, as in the kernel rules.
        name: What all such ranges are called.
        pattern: Their names.
    """

    engine: str
    name: str
    pattern: NamePattern


@dataclass(frozen=True)
class NumberedRange:
    """A range that a framework writes once a step or layer.

    Attributes:
        name: What all such ranges are called.
        pattern: Their names; a group `number` counts layers.
        edge: Which edge parts two steps; both: the range is the step.
        unit: `STEP` or `LAYER`.
    """

    name: str
    pattern: NamePattern
    edge: Literal["both", "start", "end"]
    unit: str


@cache
def engine_steps() -> tuple[EngineStep, ...]:
    """Return the ranges of all engines, of one engine in the order in which they are looked for."""
    return tuple(
        EngineStep(engine["engine"], item["name"], parse_pattern(item["pattern"], ours=True))
        for engine in _data()["engines"]
        for item in engine["ranges"]
    )


def numbered_ranges() -> tuple[NumberedRange, ...]:
    """Return the ranges of frameworks, in the order in which they are looked for."""
    return tuple(
        NumberedRange(
            numbered["name"],
            parse_pattern(numbered["pattern"], ours=True),
            numbered["edge"],
            numbered["unit"],
        )
        for numbered in _data()["numbered"]
    )


def recording_advice(engine: str) -> tuple[str, str] | None:
    """Return an engine's title and what records its step ranges; None for no such engine."""
    return next(
        (
            (item["title"], item["record"])
            for item in _data()["engines"]
            if item["engine"] == engine
        ),
        None,
    )


def is_engine_step(name: str, engine: str) -> bool:
    """Return whether a range's name, recorded or shared, is that of an engine's step."""
    return any(
        name == kind.name or kind.pattern.matches(name)
        for kind in engine_steps()
        if kind.engine == engine
    )


def has_sequence_number(text: str) -> bool:
    """Return whether autograd recorded a range, given its text as recorded: it is an operator."""
    return ", seq = " in text and _SEQUENCE.search(text) is not None


@lru_cache(maxsize=1 << 14)
def is_operator(name: str) -> bool:
    """Return whether a range's name is that of an operator, no step however often it runs.

    Args:
        name: Without what PyTorch counts up.
    """
    return any(pattern.matches(name) for pattern in _patterns("operators"))


def is_warmup(name: str) -> bool:
    """Return whether a range's name says that what it holds is a warm-up."""
    return any(pattern.matches(name) for pattern in _patterns("warmup"))


def unit_of(name: str) -> str:
    """Return `LAYER` where the shared name of some ranges is that of layers, else `STEP`."""
    return LAYER if any(pattern.matches(name) for pattern in _patterns("layers")) else STEP


@cache
def _patterns(kind: str) -> tuple[NamePattern, ...]:
    return tuple(parse_pattern(text, ours=True) for text in _data()[kind]["patterns"])


@cache
def _data() -> Mapping[str, Any]:
    path = resources.files("nsys_llm.taxonomy") / "data" / "step_ranges.json"
    content: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return content
