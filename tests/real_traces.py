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
    """Return SQLite exports of traces by name, in a folder where nsys may write.

    Each is made when it is first asked for.
    """

    class Exports(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            path = self[name] = folder / f"{name.replace('/', '-')}.sqlite"
            if names[name].endswith(".sqlite"):
                path.write_bytes((traces / names[name]).read_bytes())
                return path
            words = [nsys, "export", "--type", "sqlite", "--lazy=false", "-o", path]
            words.append(traces / names[name])
            subprocess.run([*map(str, words)], check=True, capture_output=True)
            return path

    return Exports()
