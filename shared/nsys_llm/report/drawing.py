"""plotly, imported while ranks are read: that takes 0.2 s and more."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread


def import_meanwhile() -> Thread:
    """Start to import what draws, in a thread that nobody needs to wait for.

    Not to be called where the process may fork afterwards: a child inherits the locks of an import
    that is under way. What is not installed is reported by whoever needs it.
    """
    thread = Thread(target=_import_all, name="nsys-llm-drawing", daemon=True)
    thread.start()
    return thread


def _import_all() -> None:
    with suppress(ImportError, OSError):
        from plotly.graph_objects import Bar, Figure

        # The first figure imports what checks its properties.
        Figure(data=[Bar(x=[0], y=[0])], layout={"xaxis": {"title": {"text": ""}}})
