"""How much a step does, by its name: what an engine's format tells, or words for amounts. Pure.

Formats of serving engines are read by `nsys_llm.taxonomy.step_names.parse_step`. Of other names are
read `name=number`, `name: number`, `number unit`. Left out are names of counters and places (step,
rank, layer, ...), and what counts up evenly from step to step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from nsys_llm.taxonomy.names import normalize_range, step_key
from nsys_llm.taxonomy.step_names import Composition, parse_step

_NUMBER: Final = r"([0-9]{1,15})(?![\w]|\.\d)"
_UNITS: Final = (
    r"(?:tokens?|toks?|reqs?|requests?|seqs|sequences?|samples?|prompts?|images?|frames?)"
)
#: `bs=32`, `batch size: 32`, `"num_tokens": 512`, `prefill tokens: 512`.
_ASSIGNED: Final = re.compile(
    rf"(?<![A-Za-z0-9_])((?:[A-Za-z]+ )?(?:size|len|length|count|{_UNITS})|[A-Za-z]\w*)['\"]?"
    rf"\s*[=:]\s*{_NUMBER}"
)
#: `bs32`, `num_tokens_512`, `seq_len 2048`: nothing but words for amounts.
_SUFFIXED: Final = re.compile(
    r"(?<![A-Za-z0-9])(bs|batch_?size|(?:num_)?(?:tokens|toks|reqs|requests)|seq_?len)[_ ]?"
    rf"{_NUMBER}"
)
#: Last words of names that count or place and tell no amount.
_NO_AMOUNT: Final = re.compile(
    r"steps?|iters?|iteration|epoch|idx|index|ids?|rank|device|gpu|layer|stage|seed|stream|worker|"
    r"thread|[pt]id|line|no|nr|i|seq|microbatch|mb|[tpdec]p|chunk|slot|port|node|version|v|time|ts|"
    r"timestamp|hash|addr|ptr|expert|block"
)
_WORDS: Final = re.compile(r"[A-Za-z]+")
_TOKENS: Final = frozenset({"token", "tokens", "toks", "tok"})
_BATCH: Final = frozenset({"bs", "batchsize", "batch_size", "batch size"})
_LENGTH: Final = frozenset({"seqlen", "seq_len", "seq len", "sequence_length", "seq_length"})
_DECODE: Final = re.compile(r"decode|gen", re.IGNORECASE)
_PREFILL: Final = re.compile(r"ctx|context|prefill|extend|prompt", re.IGNORECASE)
#: A counter needs so many different values to be one.
_LEAST_COUNTED: Final = 3


@dataclass(frozen=True, order=True)
class Work:
    """How much a step does: steps of equal work are those of which all but `label` is the same.

    Attributes:
        label: Name without running numbers; "" where an engine's format tells all of it.
        amounts: All that tells steps apart, by name.
        ctx_reqs: Requests whose prompt is read, -1 where that is not told, as of the next.
        gen_reqs: Requests that generate.
        gen_tokens: Tokens that these compute.
        tokens: Tokens of steps that are neither, as of training.
    """

    label: str
    amounts: tuple[tuple[str, int], ...] = ()
    ctx_reqs: int = -1
    ctx_tokens: int = -1
    gen_reqs: int = -1
    gen_tokens: int = -1
    tokens: int = -1

    @property
    def is_told(self) -> bool:
        """Whether the name tells any amount."""
        return bool(self.amounts)

    @property
    def is_decode(self) -> bool:
        """Whether the step only generates."""
        return self.gen_tokens > 0 and self.ctx_reqs <= 0 and self.ctx_tokens <= 0

    @property
    def is_prefill(self) -> bool:
        """Whether the step only reads prompts."""
        return self.ctx_tokens > 0 and self.gen_reqs <= 0 and self.gen_tokens <= 0


def step_works(names: Sequence[str]) -> tuple[list[Work], list[int], int]:
    """Return the work and the keys of context of each step, and how many names are no format.

    Steps of an engine whose name is none of its formats do work that nobody knows.

    Args:
        names: Of the steps of one rank, in order of time.

    Returns:
        Work; keys that all requests look at, -1 where that is not told; steps that are not parsed
        beside those that are.
    """
    parsed = [parse_step(name) for name in names]
    if any(item is not None for item in parsed):
        works = [Work("?") if item is None else _of_engine(item) for item in parsed]
        return works, [_keys_n(item) for item in parsed], sum(item is None for item in parsed)
    values: dict[str, list[int]] = {}
    for label, n in (pair for name in names for pair in named_numbers(name)):
        values.setdefault(label, []).append(n)
    counters = {label for label, some in values.items() if _counts_up(label, some)}
    return [_of_words(name, counters) for name in names], [-1] * len(names), 0


def _of_engine(item: Composition) -> Work:
    fields = ("ctx_reqs", "ctx_tokens", "gen_reqs", "gen_tokens")
    numbers = {name: getattr(item, name) for name in fields}
    known = {name: -1 if value is None else value for name, value in numbers.items()}
    amounts = tuple((name, value) for name, value in numbers.items() if value is not None)
    return Work("", (*amounts, *item.others), **known)


def _keys_n(item: Composition | None) -> int:
    parts = () if item is None else (item.c_sk, item.g_sk)
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else -1


def _of_words(name: str, counters: set[str]) -> Work:
    numbers = {label: n for label, n in named_numbers(name) if label not in counters}
    tokens = {label: n for label, n in numbers.items() if _is_tokens(label)}
    requests = {label: n for label, n in numbers.items() if label.endswith(("reqs", "requests"))}
    is_decode = _DECODE.search(name) is not None
    ctx, gen = (
        sum(some) if (some := [n for label, n in tokens.items() if of.match(label)]) else -1
        for of in (_PREFILL, _DECODE)
    )
    ctx_reqs, gen_reqs = (
        next((n for label, n in requests.items() if of.match(label)), -1)
        for of in (_PREFILL, _DECODE)
    )
    batch, length = (
        next((n for label, n in numbers.items() if label in labels), -1)
        for labels in (_BATCH, _LENGTH)
    )
    whole = {label for label in tokens if not (_PREFILL.match(label) or _DECODE.match(label))}
    other = max((tokens[label] for label in whole), default=-1)
    if is_decode and gen_reqs < 0:
        gen_reqs = batch
    if min(batch, length) >= 0 and not tokens and not is_decode:
        other = batch * length
    if other >= 0 > ctx and _PREFILL.search(name):
        ctx, other = other, -1
    if other >= 0 > gen and is_decode:
        gen, other = other, -1
    gen = gen if gen >= 0 else gen_reqs
    return Work(step_key(name), tuple(numbers.items()), ctx_reqs, ctx, gen_reqs, gen, other)


@lru_cache(maxsize=1 << 14)
def named_numbers(name: str) -> tuple[tuple[str, int], ...]:
    """Return the amounts that a name tells, as (label, number), in the order of the name."""
    text = normalize_range(name)
    numbers: dict[str, int] = {}
    for pattern in (_ASSIGNED, _SUFFIXED):
        for label, number in pattern.findall(text):
            numbers.setdefault(label.strip().lower(), int(number))
    return tuple((label, n) for label, n in numbers.items() if not _is_place(label))


def _is_place(label: str) -> bool:
    words = _WORDS.findall(label)
    return not words or _NO_AMOUNT.fullmatch(words[-1]) is not None


def _is_tokens(label: str) -> bool:
    words = _WORDS.findall(label)
    return words[-1] in _TOKENS and words[0] not in ("max", "cached", "min", "free")


def _counts_up(label: str, values: Sequence[int]) -> bool:
    """Tell whether values are those of a counter: up by one and the same amount, or not at all."""
    ups = {after - before for before, after in pairwise(values)} - {0}
    return (
        not _is_tokens(label)
        and len(ups) == 1
        and min(ups) > 0
        and len(set(values)) >= _LEAST_COUNTED
    )
