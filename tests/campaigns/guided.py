"""Fuzzing that follows the code that inputs reach; needs `pip install 'nsys-llm-recipes[fuzz]'`.

    python tests/campaigns/guided.py pages -max_total_time=600
    python tests/campaigns/guided.py texts -max_total_time=600

What stands behind the target goes to libFuzzer, which Atheris drives.
"""

from __future__ import annotations

import sys

import atheris
import numpy as np

with atheris.instrument_imports(include=["nsys_llm"]):
    from nsys_llm.core.errors import UsageError
    from nsys_llm.core.patterns import parse_pattern
    from nsys_llm.manifest.gates import gate_texts
    from nsys_llm.manifest.options import parse_duration_ns
    from nsys_llm.manifest.range_choice import parse_choice
    from nsys_llm.profile.sqlite.cells import (
        PADDING_BYTES,
        PageShape,
        UnexpectedCell,
        leaf_integers,
    )
    from nsys_llm.taxonomy.communication import operation_of
    from nsys_llm.taxonomy.names import decode_nvjet, normalize_range, step_key
    from nsys_llm.taxonomy.secret_names import names_in, secret_names
    from nsys_llm.view.text import quoted, shortened, spans

_PAGE_BYTES = 512


def one_page(data: bytes) -> None:
    """Decode bytes as leaf pages of a table of three columns: columns of one length, or refused."""
    pages_n = max(len(data) // _PAGE_BYTES, 1)
    # A page's first byte says that it is one; leave the rest to the fuzzer.
    body = bytearray(data[: pages_n * _PAGE_BYTES].ljust(pages_n * _PAGE_BYTES, b"\0"))
    body[::_PAGE_BYTES] = b"\x0d" * pages_n
    raw = np.frombuffer(bytes(body) + bytes(PADDING_BYTES), dtype=np.uint8)
    try:
        columns = leaf_integers(raw, PageShape(_PAGE_BYTES, _PAGE_BYTES), 3, (2, 0))
    except UnexpectedCell:
        return
    if len({column.size for column in columns}) != 1:
        raise AssertionError("columns of different lengths")


def one_text(data: bytes) -> None:
    """Give a text to everything that reads names and options."""
    text = atheris.FuzzedDataProvider(data).ConsumeUnicodeNoSurrogates(200)
    for read in (operation_of, decode_nvjet, normalize_range, step_key, names_in, shortened):
        read(text)
    secret_names([text])
    if "`" in "".join(part for _, part in spans(quoted(text))):
        raise AssertionError("a name ends its own quotation")
    for option in (parse_duration_ns, parse_choice, gate_texts, parse_pattern):
        try:
            option(text)
        except UsageError:
            continue


def main() -> None:
    """Run until libFuzzer is told to stop."""
    target = {"pages": one_page, "texts": one_text}[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
