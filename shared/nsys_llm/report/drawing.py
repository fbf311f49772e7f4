"""nbformat, imported while ranks are read: it takes 0.1 s and more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from types import ModuleType
from typing import Any, Final

#: jsonschema, which nbformat imports, tries these to check formats that a notebook does not have.
#: JupyterLab brings the first, and its import alone takes 1.4 s (measured: 1.9 s with, 0.2 s
#: without).
_NOT_NEEDED: Final = ("rfc3987_syntax", "rfc3987", "isoduration", "webcolors")


def nbformat() -> Any:
    """Return the module nbformat.

    Raises:
        ImportError: It is not installed.
    """
    with _left_out():
        import nbformat
    return nbformat


def import_meanwhile() -> Thread:
    """Start to import it, in a thread that nobody needs to wait for.

    If it is not installed, whoever needs it reports that.
    """
    thread = Thread(target=_import, name="nsys-llm-drawing", daemon=True)
    thread.start()
    return thread


def _import() -> None:
    with suppress(ImportError, OSError):  # whoever needs it meets it again
        nbformat()


@contextmanager
def _left_out() -> Iterator[None]:
    """Have modules that are not imported yet count as not installed."""
    absent = [name for name in _NOT_NEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent, None))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            if sys.modules.get(name, ModuleType) is None:
                del sys.modules[name]
