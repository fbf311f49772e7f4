"""Reads the JSON files in `data/`, each once."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def data_file(name: str) -> Any:
    """Return what a file holds, by its path below `data/` without `.json`; nobody changes it."""
    path = resources.files("nsys_llm.taxonomy") / "data" / f"{name}.json"
    return json.loads(path.read_text("utf-8"))
