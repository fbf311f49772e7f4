"""Commands of Nsight Compute, each of which profiles one launch that a row or finding names.

Options as the Nsight Compute CLI manual v2026.1.0 has them (docs.nvidia.com/nsight-compute/
NsightComputeCli, section 4.4.4, "Profile"): `--kernel-name regex:` matches a part of the name that
`--kernel-name-base` chooses, by default `function`, the name without parameters and templates;
`--launch-skip` and `--launch-count` count only launches that match, of all devices together
(`--filter-mode global`, the default); `--graph-profiling node`, its default, profiles nodes of CUDA
graphs as kernels, which `graph` would not. Section 4.3.2 has the script that starts `ncu` for one
rank of several.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.trace.kernel_launches import NcuLaunches
from nsys_llm.view.text import cleaned

#: What stands before the command. What ran before the capture began is not in the report.
NCU_LABEL: Final = "Nsight Compute (counted from the start of the capture)"


def ncu_commands(launches: NcuLaunches, ranks: Sequence[int]) -> list[str | None]:
    """Return the command that profiles each launch, without that of the application.

    Returns:
        None where the launch cannot be counted, or its function has no name or one that cannot be
        typed: characters of it control a terminal, hide or turn text around.
    """
    rows = zip(launches.function, launches.skip_n.tolist(), launches.graph_node, ranks, strict=True)
    return [
        None
        if not function or skip_n == NULL_INT or cleaned(function) != function
        else _command(function, skip_n, node, rank)
        for function, skip_n, node, rank in rows
    ]


def _command(function: str, skip_n: int, graph_node: bool, rank: int) -> str:
    """Return what a shell takes as it is: whoever shows it changes nothing of it."""
    words = [
        *("ncu", "--kernel-name", f"regex:^{re.escape(function)}$"),
        *("--launch-skip", str(skip_n), "--launch-count", "1"),
        *(("--graph-profiling", "node") if graph_node else ()),
        *("--export", f"rank_{rank}"),
    ]
    return shlex.join(words)
