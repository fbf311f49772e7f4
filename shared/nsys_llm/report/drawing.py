"""plotly and nbformat, imported while ranks are read: together they take 0.2 s and more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Start to import what draws, in a thread that nobody needs to wait for.

    What is not installed is reported by whoever needs it.
    """
    thread = Thread(target=_import_all, name="nsys-llm-drawing", daemon=True)
    thread.start()
    return thread


def _import_all() -> None:
    try:
        from plotly.graph_objects import Bar, Figure

        # The first figure imports what checks its properties.
        Figure(data=[Bar(x=[0], y=[0])], layout={"xaxis": {"title": {"text": ""}}})
        nbformat()
    except (ImportError, OSError):
        pass  # whoever needs it meets it again


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
