"""The compiled leaf and the driver, for tests that read SQLite with each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from nsys_llm.profile.sqlite import pages

#: What is there; on a machine without a compiler the driver alone.
DECODERS: Final = ("adbc", "native") if pages.library() else ("adbc",)


@contextmanager
def decoded_by(name: str) -> Iterator[None]:
    """Have one of them read large tables."""
    library = pages.library() if name == "native" else None
    with mock.patch.object(pages, "library", return_value=library):
        assert pages.decoder() == name
        yield
