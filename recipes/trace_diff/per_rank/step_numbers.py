"""Numbers in the names of steps that say how much a step does: `decode bs=32`. Pure.

Read are vLLM's `execute_context_4(8192)_generation_2(2)`, TensorRT-LLM's `_forward_step 12: 3 ctx
reqs, 512 ctx tokens, 8 gen reqs`, and in general `name=number`, `name: number`, `number unit`.
Left out are names of counters and places (step, rank, layer, ...), and what counts up evenly from
step to step.

Tokens of a step are those that its name says, or a batch times a length; a request that is decoded
counts as one token where nothing says how many it gets, so that speculative decoding without token
counts is seen as less than it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from nsys_llm.taxonomy.names import normalize_range, step_key

#: Label, steps that have it, and the sum of its values.
StepNumber = tuple[str, int, int]

_VLLM: Final = re.compile(r"context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_VLLM_LABELS: Final = (
    "context requests",
    "context tokens",
    "generation requests",
    "generation tokens",
)
_NUMBER: Final = r"(\d{1,15})(?![\w]|\.\d)"
_UNITS: Final = (
    r"(?:tokens?|toks?|reqs?|requests?|seqs|sequences?|samples?|prompts?|images?|frames?)"
)
#: `bs=32`, `batch size: 32`, `"num_tokens": 512`, `prefill tokens: 512`.
_ASSIGNED: Final = re.compile(
    rf"(?<![A-Za-z0-9_])((?:[A-Za-z]+ )?(?:size|len|length|count|{_UNITS})|[A-Za-z]\w*)['\"]?"
    rf"\s*[=:]\s*{_NUMBER}"
)
#: `512 ctx tokens`, `8 gen reqs`.
_COUNTED: Final = re.compile(rf"(?<![\w.])(\d{{1,15}})\s+((?:[A-Za-z]+ )?{_UNITS})\b")
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
_GENERATED: Final = re.compile(r"(?:gen|generation|decode) (?:reqs?|requests?)")
#: Tokens of a part of a step's work.
_PART: Final = re.compile(r"ctx|context|gen|generation|prefill|decode|extend")
#: A counter needs so many different values to be one.
_LEAST_COUNTED: Final = 3


@lru_cache(maxsize=1 << 14)
def named_numbers(name: str) -> tuple[tuple[str, int], ...]:
    """Return the amounts that a name tells, as (label, number), in the order of the name."""
    text = normalize_range(name)
    if vllm := _VLLM.search(text):
        return tuple(zip(_VLLM_LABELS, map(int, vllm.groups()), strict=True))
    numbers: dict[str, int] = {}
    for pattern in (_ASSIGNED, _SUFFIXED):
        for label, number in pattern.findall(text):
            numbers.setdefault(_label(label), int(number))
    for number, label in _COUNTED.findall(text):
        numbers.setdefault(_label(label), int(number))
    return tuple((label, n) for label, n in numbers.items() if not _is_place(label))


def step_tokens(name: str) -> int | None:
    """Return the tokens of a step, by its name; None where it does not tell."""
    numbers = dict(named_numbers(name))
    reported = {label: n for label, n in numbers.items() if _is_tokens(label)}
    whole = [n for label, n in reported.items() if not _PART.match(label)]
    if whole:
        return max(whole)
    generated = next((n for label, n in numbers.items() if _GENERATED.fullmatch(label)), None)
    if reported:
        decoded = not any(_DECODE.match(label) for label in reported)
        return sum(reported.values()) + (generated or 0) * decoded
    batch = next((n for label, n in numbers.items() if label in _BATCH), generated)
    if _DECODE.search(name):
        return batch
    length = next((n for label, n in numbers.items() if label in _LENGTH), None)
    return None if batch is None or length is None else batch * length


def tokens_of(names: Sequence[str]) -> int | None:
    """Return the tokens of all steps together; None where a step does not tell."""
    counts = [step_tokens(name) for name in names]
    known = [n for n in counts if n is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def step_numbers(names: Sequence[str]) -> tuple[StepNumber, ...]:
    """Return what the names of steps tell, by label, sorted.

    Args:
        names: Of the steps of one rank, in order of time.
    """
    values: dict[str, list[int]] = {}
    for name in names:
        for label, number in named_numbers(name):
            values.setdefault(label, []).append(number)
    return tuple(
        (label, len(amounts), sum(amounts))
        for label, amounts in sorted(values.items())
        if _is_tokens(label) or not _counts_up(amounts)
    )


def works_of(names: Sequence[str]) -> list[str]:
    """Return what each step does: its name without running numbers, then the amounts it tells.

    Steps of the same text do the same work, as far as names say.

    Args:
        names: Of the steps of one rank, in order of time.
    """
    amounts = {label for label, _, _ in step_numbers(names)}
    return [_work(name, amounts) for name in names]


def _work(name: str, amounts: set[str]) -> str:
    reported = [f"{label} {n}" for label, n in named_numbers(name) if label in amounts]
    return ": ".join(part for part in (step_key(name), ", ".join(reported)) if part)


def _label(text: str) -> str:
    return text.strip().lower()


def _is_place(label: str) -> bool:
    words = _WORDS.findall(label)
    return not words or _NO_AMOUNT.fullmatch(words[-1]) is not None


def _is_tokens(label: str) -> bool:
    words = _WORDS.findall(label)
    return words[-1] in _TOKENS and words[0] not in ("max", "cached", "min", "free")


def _counts_up(values: Sequence[int]) -> bool:
    """Tell whether values are those of a counter: up by one and the same amount, or not at all."""
    ups = {after - before for before, after in pairwise(values)} - {0}
    return len(ups) == 1 and min(ups) > 0 and len(set(values)) >= _LEAST_COUNTED
