"""Kernel names short enough for a table, and still telling. Standard library only.

What tells two of PyTorch's elementwise kernels apart is the functor deep inside their template
arguments; what is long is the rest. So a long C++ name loses its return type, its namespaces and
its parameters, and keeps its own name, the functor or operation, and the type of its elements.
"""

from __future__ import annotations

import re
from typing import Final

_OPENING: Final = "<(["
_CLOSING: Final = ">)]"
_UNNAMED: Final = re.compile(r"(?:<unnamed>|\(anonymous namespace\))::")

#: Where the operation hides, in order; with the position to take if there are several.
_HINTS: Final = (
    (re.compile(r"\b\w*Functor\w*"), -1),
    (re.compile(r"\b(?!gpu_kernel)\w+(?:_kernel_cuda|KernelImpl|_kernel_impl)\b"), 0),
    (re.compile(r"\b\w+Ops?\b"), -1),
    (re.compile(r"\bFlash\w+"), 0),
    (re.compile(r"\b(?!gpu_kernel)\w+_kernel\b"), 0),
)
#: What says of a functor only that it is one.
_AROUND_HINT: Final = re.compile(
    r"^CUDAFunctor(?=\w)_?|(?<=\w)(?:_kernel_cuda|_kernel_impl|(?:CUDA)?KernelImpl|Functor)$"
)
#: Grid, block and dynamic shared memory: `132x1x1 / 384x1x1 / 212992 B`.
_CONFIGURATION: Final = re.compile(r"\d+x\d+x\d+ / [^\[\]]*\]")
_ELEMENT: Final = re.compile(r"\b(BFloat16|bfloat16|Half|half|float|double|Float8_\w+|__half)\b")
_SHORT_TYPES: Final = {"BFloat16": "bf16", "bfloat16": "bf16", "Half": "half", "__half": "half"}


def kernel_label(name: str) -> str:
    """Return a C++ name without what does not tell kernels apart; other names as they are.

    `void at::native::elementwise_kernel<(int)128, ..., at::native::MulFunctor<float>>(int, T3)`
    becomes `elementwise<Mul, float>`.
    """
    name, configuration = parted(name)
    if configuration:
        return f"{kernel_label(name)} [{configuration}]"
    if not name.endswith(")"):
        return name
    name = _UNNAMED.sub("", name)
    head = _own_name(name)
    base, bracket, arguments = head.partition("<")
    base = base.rpartition("::")[2]
    if not base or head == name:
        return name
    if not bracket:
        return base
    matches = [expression.findall(arguments) for expression, _ in _HINTS]
    hints = [some[at] for some, (_, at) in zip(matches, _HINTS, strict=True) if some]
    hint = _AROUND_HINT.sub("", hints[0]) or hints[0] if hints else None
    element = _ELEMENT.search(arguments)
    parts = [hint, _SHORT_TYPES.get(element[1], element[1]) if element else None]
    reported = ", ".join(part for part in parts if part)
    if not reported:
        return base
    return f"{base.removesuffix('_kernel') if hint else base}<{reported}>"


def parted(name: str) -> tuple[str, str]:
    """Return a kernel's name and its launch configuration, of `NAME [CONFIGURATION]`."""
    head, bracket, configuration = name.rpartition(" [")
    if not bracket or not _CONFIGURATION.fullmatch(configuration):
        return name, ""
    return head, configuration[:-1]


def _own_name(name: str) -> str:
    """Return a function's name with its template arguments: no return type, no parameters."""
    open_at: list[int] = []
    begin, parameters = 0, len(name)
    for position, letter in enumerate(name):
        if letter in _CLOSING:
            opening = _OPENING[_CLOSING.index(letter)]
            # Without its partner on top, `>` is greater than, and what is on top less than.
            if letter != ">" or (open_at and name[open_at[-1]] == "<"):
                while open_at and name[open_at[-1]] != opening:
                    open_at.pop()
                opened = open_at.pop() if open_at else 0
                if position == len(name) - 1 and letter == ")" and not open_at:
                    parameters = opened
        elif letter in _OPENING:
            open_at.append(position)
        elif letter == " " and not open_at:
            begin = position + 1
    return name[begin:parameters]
