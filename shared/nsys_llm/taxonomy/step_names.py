"""What the name of an NVTX range says of steps: an engine's, a framework's, a layer, an operator.

The patterns and where they come from are in `data/step_ranges.json`. Pure text work. Formats of
serving engines tell what is in a step's batch: `parse_step` reads them, for all recipes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final, Literal

from nsys_llm.core.patterns import NamePattern, parse_pattern
from nsys_llm.taxonomy.data_files import data_file
from nsys_llm.taxonomy.names import step_key, without_counters

#: What a step is; one choice a run.
STEP: Final = "step"
LAYER: Final = "layer"
GRAPH: Final = "graph"
PERIOD: Final = "period"
#: Share of steps that hold one kind of requests, in a worker for these alone; ours: steps of a
#: server of both vary more.
_NEARLY_ALL: Final = 0.8
#: What a step between replays of a graph is called whose kernels are launched one by one.
EAGER: Final = "eager prefill"
#: What a step without requests of a kind has none of.
_PARTS: Final = {
    "ctx_reqs": ("ctx_tokens", "c_sk", "c_sqsq", "c_sqsk"),
    "gen_reqs": ("gen_tokens", "g_sk", "g_sqsq", "g_sqsk"),
}
_OF_DRAFTS: Final = ("verified_by", "steps", "twice")
#: What names tell of a batch, in the order of `Composition`.
FIELDS: Final = tuple(name for reqs, parts in _PARTS.items() for name in (reqs, *parts))

#: An operator that autograd records: `aten::mm, seq = 7, op_id = 9`. Ranges of one's own have no
#: sequence number.
_SEQUENCE: Final = re.compile(r", seq = [0-9]+")
_NUMBER: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class EngineStep:
    """A range that an engine writes around a step.

    Attributes:
        name: What all such ranges are called.
        starts: Names that begin like those whose formats are known: beside some of those they are
            steps too, whose batch nobody reads. None for ranges without a format.
        verified_by: Where a name of this pattern is among them, some are drafts; None: never.
        steps: Which of them are no drafts then.
        twice: Which of them the draft model may repeat by the same name, directly after.
    """

    engine: str
    name: str
    pattern: NamePattern
    starts: NamePattern | None = None
    verified_by: NamePattern | None = None
    steps: NamePattern | None = None
    twice: NamePattern | None = None


@dataclass(frozen=True)
class NumberedRange:
    """A range that a framework writes once a step or layer.

    Attributes:
        pattern: Their names; a group `number` counts layers.
        edge: Which edge parts two steps; both: the range is the step.
    """

    name: str
    pattern: NamePattern
    edge: Literal["both", "start", "end"]
    unit: str


@dataclass(frozen=True)
class Composition:
    """What is in the batch of a step, as its name tells; None where the name does not.

    Context requests have no output yet; sums are over the requests of one kind.

    Attributes:
        ctx_reqs: Requests whose prompt is read, `ctx_tokens` tokens of it.
        c_sk: Sum of the keys that these look at, the new tokens included; `g_sk` likewise.
        c_sqsq: Sum of the squares of new tokens; `g_sqsq` likewise.
        c_sqsk: Sum of new tokens times keys; `g_sqsk` likewise.
        gen_tokens: Tokens that these compute: more than requests where drafts are verified. As
            many as requests where only those are told and no draft exists.
        others: What the name tells besides: numbers by name, such as `reqs` of both kinds together.
        since: Since when the engine writes names so.
        tokens_derived: Whether `gen_tokens` are taken from the requests.
    """

    ctx_reqs: int | None = None
    ctx_tokens: int | None = None
    c_sk: int | None = None
    c_sqsq: int | None = None
    c_sqsk: int | None = None
    gen_reqs: int | None = None
    gen_tokens: int | None = None
    g_sk: int | None = None
    g_sqsq: int | None = None
    g_sqsk: int | None = None
    others: tuple[tuple[str, int], ...] = ()
    engine: str = field(default="", compare=False)
    since: str = field(default="", compare=False)
    tokens_derived: bool = field(default=False, compare=False)

    @property
    def tokens(self) -> int | None:
        """All tokens that are computed; None where the name does not tell."""
        if self.ctx_tokens is None or self.gen_tokens is None:
            return None
        return self.ctx_tokens + self.gen_tokens


@dataclass(frozen=True)
class _Format:
    """One format of names: `fields` are what the groups of the expression are."""

    engine: str
    since: str
    expression: re.Pattern[str]
    fields: tuple[str, ...]
    zero: tuple[str, ...]
    derived: Mapping[str, str]


@lru_cache(maxsize=1 << 16)
def parse_step(name: str) -> Composition | None:
    """Return what the name of an engine's step tells of its batch; None for any other name.

    Names that begin like a format and are none of it, with negative or huge numbers, a rest, or
    numbers that contradict each other, are other names: whoever counts unparsed steps counts them.
    What PyTorch counts up is no part of it.
    """
    name = without_counters(name)
    for item in _formats():
        if match := item.expression.fullmatch(name):
            return _composition(item, match.groups())
    return None


def usual_batch(names: Iterable[str]) -> str | None:
    """Return what is in the batches of nearly all steps: prompts, tokens, or `both`.

    None where no name tells.
    """
    kinds: Counter[str] = Counter()
    for name, steps_n in Counter(names).items():
        batch = parse_step(name)
        if batch is not None and batch.ctx_reqs is not None and batch.gen_reqs is not None:
            reads, writes = batch.ctx_reqs > 0, batch.gen_reqs > 0
            if reads or writes:
                kinds["both" if reads and writes else "prompts" if reads else "tokens"] += steps_n
    most = max(kinds, key=lambda kind: kinds[kind], default=None)
    mixed = most is not None and kinds[most] < _NEARLY_ALL * sum(kinds.values())
    return "both" if mixed else most


def _composition(item: _Format, groups: tuple[str, ...]) -> Composition | None:
    """Return what a name tells; None where it contradicts itself."""
    numbers: dict[str, int] = {}
    for name, value in _told(item, groups):
        if numbers.setdefault(name, value) != value:
            return None
    kinds = [numbers[requests] for requests in _PARTS if requests in numbers]
    if "reqs" in numbers and len(kinds) == len(_PARTS) and sum(kinds) != numbers["reqs"]:
        return None
    derived = bool(item.derived.keys() - numbers.keys()) and numbers["gen_reqs"] > 0
    for name, source in item.derived.items():
        numbers.setdefault(name, numbers[source])
    for requests, parts in _PARTS.items():
        if numbers.get(requests) == 0:
            if any(numbers.get(part) for part in parts):
                return None
            numbers |= dict.fromkeys(parts, 0)
    fields = {key: value for key, value in numbers.items() if key in FIELDS}
    others = tuple((key, value) for key, value in numbers.items() if key not in FIELDS)
    return Composition(
        **fields,
        others=others,
        engine=item.engine,
        since=item.since,
        tokens_derived=derived,
    )


def _told(item: _Format, groups: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield all numbers of a name; it may tell one twice."""
    yield from dict.fromkeys(item.zero, 0).items()
    for name, text in zip(item.fields, groups, strict=True):
        if name != "pairs":
            yield name, int(text)
            continue
        for pair in text.split():
            key, value = pair.split("=")
            yield _data()["pairs"][key], int(value)


@cache
def _formats() -> tuple[_Format, ...]:
    return tuple(
        _Format(
            engine["engine"],
            item["since"],
            re.compile(item["pattern"]),
            tuple(item["fields"]),
            tuple(item.get("zero", ())),
            item.get("derived", {}),
        )
        for engine in _data()["engines"]
        for kind in engine["ranges"]
        for item in kind.get("formats", ())
    )


@cache
def engine_steps() -> tuple[EngineStep, ...]:
    """Return the ranges of all engines, of one engine in the order in which they are looked for."""
    return tuple(
        EngineStep(
            engine["engine"],
            item["name"],
            parse_pattern(item["pattern"], ours=True),
            _pattern(engine.get("starts")) if "formats" in item else None,
            *(_pattern(engine.get("drafts", {}).get(name)) for name in _OF_DRAFTS),
        )
        for engine in _data()["engines"]
        for item in engine["ranges"]
    )


def _pattern(text: str | None) -> NamePattern | None:
    return None if text is None else parse_pattern(text, ours=True)


def engine_of_start(name: str) -> str | None:
    """Return the engine whose formats a name begins like, be it of one or of none."""
    name = without_counters(name)
    return next(
        (kind.engine for kind in engine_steps() if kind.starts and kind.starts.matches(name)), None
    )


def numbered_ranges() -> tuple[NumberedRange, ...]:
    """Return the ranges of frameworks, in the order in which they are looked for."""
    return tuple(
        NumberedRange(
            row["name"], parse_pattern(row["pattern"], ours=True), row["edge"], row["unit"]
        )
        for row in _data()["numbered"]
    )


def recording_advice(engine: str) -> tuple[str, str] | None:
    """Return an engine's title and what records its step ranges; None for no such engine."""
    known = (item for item in _data()["engines"] if item["engine"] == engine)
    return next(((item["title"], item["record"]) for item in known), None)


def is_engine_step(name: str, engine: str) -> bool:
    """Return whether a range's name, recorded or shared, is that of an engine's step."""
    return any(
        name == kind.name or kind.pattern.matches(name)
        for kind in engine_steps()
        if kind.engine == engine
    )


@lru_cache(maxsize=1 << 18)  # every recipe asks for the same names
def range_key(name: str) -> str:
    """Return what all repetitions of one range share: as `step_key`, and of engines all numbers.

    `execute_9_context_1(sq7..)_generation_8(..)` has numbers inside of words, which that one keeps.
    """
    key = step_key(name)
    if not _NUMBER.search(key) or parse_step(name) is None:
        return key
    return _NUMBER.sub("#", key)


def holds_every_request(engine: str) -> bool:
    """Return whether a step of an engine holds all requests that generate, unless there are none.

    Others read prompts in steps of their own, while requests that generate wait.
    """
    return any(item["engine"] == engine and item["every_request"] for item in _data()["engines"])


def has_sequence_number(text: str) -> bool:
    """Return whether autograd recorded a range, given its text as recorded: it is an operator."""
    return ", seq = " in text and _SEQUENCE.search(text) is not None


@lru_cache(maxsize=1 << 14)
def is_operator(name: str) -> bool:
    """Return whether a range's name is that of an operator, no step however often it runs."""
    return any(pattern.matches(name) for pattern in _patterns("operators"))


def is_warmup(name: str) -> bool:
    """Return whether a range's name says that what it holds is a warm-up."""
    return any(pattern.matches(name) for pattern in _patterns("warmup"))


def whose_steps(name: str) -> str | None:
    """Return whose steps share a name: an engine's, else those of the name; None of empty ones.

    A rank without requests runs empty batches with those that have some.
    """
    if any(pattern.matches(name) for pattern in _patterns("empty")):
        return None
    return next((step.engine for step in engine_steps() if step.name == name), name)


def unit_of(name: str) -> str:
    """Return `LAYER` where the shared name of some ranges is that of layers, else `STEP`."""
    return LAYER if any(pattern.matches(name) for pattern in _patterns("layers")) else STEP


@cache
def _patterns(kind: str) -> tuple[NamePattern, ...]:
    return tuple(parse_pattern(text, ours=True) for text in _data()[kind]["patterns"])


def _data() -> Mapping[str, Any]:
    content: Mapping[str, Any] = data_file("step_ranges")
    return content
