"""The files of --graph-annotations: part of the model and source line of each node of CUDA graphs.

What `torch.cuda.graph_annotations` of PyTorch gives, as JSON (compressed or not) or pickled.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_bytes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.model_parts import BACKWARD, folded, source_of

#: Stacks of all nodes of all batch sizes; more is no such file.
_MOST_BYTES: Final = 256 << 20
_LARGEST_KEY: Final = (1 << 63) - 1
#: Letters tell the other digits of a hexadecimal one, which has a graph's number above 32 bits.
_KEY: Final = re.compile(r"0[xX]([0-9a-fA-F]{1,16})|([0-9]{1,19})|([0-9a-fA-F]{9,16})")
_EXAMPLE: Final = '{"4294967299": [{"name": "layers.0.mlp.down_proj"}]}'
#: Where an annotation has its phase and its stack, the first that is there.
_PHASES: Final = ("autograd_phase", "phase")
_STACKS: Final = ("stack", "py_stack", "stacks", "python_stack")
#: What reading a pickle that is none, or that was made to do harm, ends with.
_NO_PICKLE: Final = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, ImportError, OverflowError, MemoryError, RecursionError),
)


@dataclass(frozen=True, eq=False)
class GraphAnnotations:
    """Nodes of CUDA graphs by their key, (graph id << 32) | node id; arrays of shape (nodes,).

    Attributes:
        key: Distinct, ascending.
        part: Code into `texts`, -1 for none.
        source: Likewise, file and line.
    """

    file: str
    texts: tuple[str, ...]
    key: IntArray
    part: IntArray
    source: IntArray


def read_annotations(paths: Sequence[str]) -> tuple[GraphAnnotations, ...]:
    """Read files of annotations and of stacks, one for each file; those of one rank join by key.

    Raises:
        UsageError: A file cannot be read, is no such map, or is a pickle of more than containers,
            numbers and texts.
    """
    return tuple(_read(path) for path in paths)


def _read(path: str) -> GraphAnnotations:
    content = _content(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: must be an object by node, like {_EXAMPLE}.")
    nodes: dict[int, tuple[str | None, str | None]] = {}
    for key, value in _nodes(content):
        # Half a character of UTF-16, which no file of results can hold, becomes a question mark.
        name, source = (text and text.encode(errors="replace").decode() for text in _said(value))
        old = nodes.get(key, (None, None))
        nodes[key] = name or old[0], source or old[1]
    nodes = {key: said for key, said in nodes.items() if said != (None, None)}
    if not nodes:
        raise UsageError(f"{path}: names no node of a CUDA graph; it must be like {_EXAMPLE}.")
    texts = tuple(sorted({text for said in nodes.values() for text in said if text is not None}))
    place: dict[str | None, int] = {None: -1, **{text: at for at, text in enumerate(texts)}}
    keys = sorted(nodes)
    codes = [[place[text] for text in nodes[key]] for key in keys]
    parts, sources = np.array(codes, dtype=np.int64).T
    return GraphAnnotations(path, texts, np.array(keys, dtype=np.int64), parts, sources)


def _content(path: str) -> Any:
    raw = read_option_bytes(path, _MOST_BYTES)
    if raw[:2] == b"\x1f\x8b":
        raw = _unpacked(raw, path)
    if raw[:1] == b"\x80" or path.endswith((".pkl", ".pickle")):
        try:
            for opcode, index, _ in pickletools.genops(raw):
                # Its reader would reserve room for more objects than it can hold.
                if opcode.name.endswith("PUT") and int(index or 0) > len(raw):
                    raise pickle.UnpicklingError(f"its object {index} is in {len(raw)} bytes")
            return _PlainUnpickler(io.BytesIO(raw)).load()
        except _NO_PICKLE as error:
            raise UsageError(
                f"{path}: is no pickle of plain containers, numbers and texts ({error})."
            ) from error
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no JSON ({error}).") from error


def _unpacked(raw: bytes, path: str) -> bytes:
    try:
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(raw, _MOST_BYTES + 1)
    except zlib.error as error:
        raise UsageError(f"{path}: cannot be unpacked ({error}).") from error
    if len(unpacked) > _MOST_BYTES:
        raise UsageError(f"{path}: holds more than {_MOST_BYTES >> 20} MB unpacked.")
    return unpacked


class _PlainUnpickler(pickle.Unpickler):
    """Reads what opcodes make by themselves: nothing is imported, so nothing can be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {f'{module}.{name}'[:80]!a}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to an object outside")


def _nodes(content: Mapping[Any, Any]) -> Iterator[tuple[int, Any]]:
    """Yield keys and values; of an object that holds such maps by name, those of each."""
    for text, value in content.items():
        key = _key(text)
        if key is not None:
            yield key, value
        elif isinstance(value, dict):
            of_map = ((_key(inner), said) for inner, said in value.items())
            yield from ((inner, said) for inner, said in of_map if inner is not None)


def _key(text: Any) -> int | None:
    if isinstance(text, str) and (found := _KEY.fullmatch(text.strip())):
        hexadecimal, decimal, letters = found.groups()
        key = int(decimal) if decimal else int(hexadecimal or letters, 16)
    elif isinstance(text, int) and not isinstance(text, bool):
        key = text
    else:
        return None
    return key if 0 < key <= _LARGEST_KEY else None


def _said(value: Any) -> tuple[str | None, str | None]:
    """Return part and source that the annotations of a node say; of several, the last."""
    items = value if isinstance(value, list) else [value]
    if items and all(_is_frame(item) for item in items):
        return None, source_of(_frames(items))
    fields: dict[Any, Any] = {}
    for item in items:
        fields |= item if isinstance(item, dict) else {"name": item}
    name, source = fields.get("name"), None
    if isinstance(name, str) and _is_frame(name):
        name, source = None, source_of(_frames(name))
    stack = next((fields[field] for field in _STACKS if fields.get(field)), None)
    part = folded(name) if isinstance(name, str) and name.strip() else None
    phase = next((fields[field] for field in _PHASES if fields.get(field)), None)
    if part and phase == "backward":
        part += BACKWARD
    return part, source_of(_frames(stack)) if stack else source


_FRAME: Final = re.compile(r"[^\n]*(?:\.(?:py|c|h)\w*|>):\d+(?::[^\n]*)?(?:\n|$)")


def _is_frame(item: Any) -> bool:
    """Tell whether it is a frame, or a text of some: `file:line:function`, [file, line, ...]."""
    if isinstance(item, str):
        return _FRAME.match(item) is not None
    is_row = isinstance(item, (list, tuple)) and len(item) > 1
    return is_row and isinstance(item[0], str) and isinstance(item[1], int)


def _frames(stack: Any) -> list[str]:
    """Return the frames of a stack as texts, innermost first as PyTorch writes them."""
    items = [stack] if _is_frame(stack) or not isinstance(stack, (list, tuple)) else stack
    texts = [
        item if isinstance(item, str) else f"{item[0]}:{item[1]}"
        for item in items
        if _is_frame(item)
    ]
    return [line for text in texts for line in text.splitlines()]
