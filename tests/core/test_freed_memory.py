"""Memory that was freed serves the next array, where the C library can be told so."""

from __future__ import annotations

import ctypes

from nsys_llm.core.freed_memory import keep_freed


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed()
