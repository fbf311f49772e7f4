"""Both decoders of SQLite's pages, for tests that run with each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from nsys_llm.profile.sqlite import native

#: What is built here; on a machine without a compiler numpy's alone.
DECODERS: Final = ("numpy", "native") if native.library() else ("numpy",)


@contextmanager
def decoded_by(name: str) -> Iterator[None]:
    """Have one of them take pages apart."""
    library = native.library() if name == "native" else None
    with mock.patch.object(native, "library", return_value=library):
        assert native.decoder() == name
        yield
