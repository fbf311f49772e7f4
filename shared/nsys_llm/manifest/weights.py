"""The file of --weights: how many bytes a kernel reads a launch, by patterns of its name."""

from __future__ import annotations

import json
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.core.patterns import parse_pattern

#: A pattern of kernel names, and the bytes that a launch of such a kernel reads.
Weight = tuple[str, int]

#: More than any GPU holds; such a number is a mistake.
_LARGEST_BYTES: Final = 1 << 50


def read_weights(path: str) -> tuple[Weight, ...]:
    """Read a file of weights: a JSON object of patterns and bytes, in its order.

    Args:
        path: The file, like {"gemvx::kernel": 117440512, "re:^nvjet_.*_64x8_": 33554432}.

    Raises:
        UsageError: The file cannot be read, is no such object, or a pattern means nothing.
    """
    text = read_option_file(path)
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no JSON ({error}).") from error
    if not isinstance(pairs, _Pairs) or not pairs:
        raise UsageError(
            f'{path}: must be a JSON object, like {{"gemvx::kernel": 117440512}}, '
            "of kernel name patterns and the bytes that a launch reads."
        )
    patterns = [pattern for pattern, _ in pairs]
    for pattern, size in pairs:
        if problem := _problem(pattern, size, patterns):
            raise UsageError(f"{path}: '{pattern}' {problem}.")
    return tuple((pattern, size) for pattern, size in pairs)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its order and its repeated keys."""


def _problem(pattern: str, size: Any, patterns: list[str]) -> str | None:
    if patterns.count(pattern) > 1:
        return "stands there twice"
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < _LARGEST_BYTES:
        return f"has {json.dumps(size)[:40]} where whole bytes above 0 belong"
    try:
        parse_pattern(pattern)
    except UsageError as error:
        return f"cannot be used: {error.message.rstrip('.')}"
    return None
