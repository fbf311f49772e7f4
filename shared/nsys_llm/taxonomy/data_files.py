"""Reads the JSON files in `data/` of a package, each once."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def data_file(name: str, package: str = "taxonomy") -> Any:
    """Return what a file holds, by its path below `data/` without `.json`; nobody changes it."""
    path = resources.files(f"nsys_llm.{package}") / "data" / f"{name}.json"
    return json.loads(path.read_text("utf-8"))
