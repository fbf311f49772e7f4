"""Real traces by their names in the folder of them, and exports that several files compare with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

A100 = ["vector_add_profile_serial", "vector_add_profile_streamed", "vector_add_profile_v2"]
H100 = [
    "h100_mfu/before",
    "h100_mfu/after",
    "h100_mfu_ranks/before/rank0",
    "h100_mfu_ranks/before/rank1",
    "h100_mfu_ranks/after/rank0",
    "h100_mfu_ranks/after/rank1",
]


def exported_traces(nsys, traces: Path, names: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Return SQLite exports of traces by name, in a folder where nsys may write."""
    paths = {}
    for name, path in names.items():
        paths[name] = folder / f"{name}.sqlite"
        if path.endswith(".sqlite"):
            paths[name].write_bytes((traces / path).read_bytes())
            continue
        words = [nsys, "export", "--type", "sqlite", "--lazy=false", "-o", paths[name]]
        subprocess.run([*map(str, words), str(traces / path)], check=True, capture_output=True)
    return paths
