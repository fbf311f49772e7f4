"""Findings on kernels for which something faster is known. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.gains import Walls
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.taxonomy.kernel_levers import KernelLever, load_kernel_levers
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import quoted, shortened

from .texts import RULES

#: Kernels that a finding names.
_NAMED: Final = 3


def lever_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about kernels that are known to have something faster.

    Args:
        tables: Finished tables by name: rank_kernels, files, wall.
    """
    gpus = {row["File"]: row["gpu"] for row in records(tables["files"])}
    kernels = grouped(records(tables["rank_kernels"]), "rank", "device_id")
    walls = Walls(tables)
    return [
        finding
        for lever in load_kernel_levers().values()
        for finding in _finding(
            lever,
            {
                (rank, device): _those(lever, rows, gpus.get(rows[0]["file"]))
                for (rank, device), rows in kernels.items()
            },
            walls,
        )
    ]


def _those(lever: KernelLever, rows: Sequence[Record], gpu: str | None) -> list[Record]:
    """Return the kernels of a GPU that a lever is about, most time first."""
    if not lever.applies(gpu, [row["name"] for row in rows]):
        return []
    return [
        row
        for row in rows
        if row["category"] in lever.categories and lever.names.search(row["name"])
    ]


def _finding(
    lever: KernelLever, kernels: dict[tuple[int, int], list[Record]], walls: Walls
) -> Iterator[Finding]:
    """Return the finding on the GPU where a lever gains most."""
    times = {gpu: sum(row["exclusive_ns"] for row in rows) for gpu, rows in kernels.items()}
    gains = {
        gpu: walls.gain(
            *gpu, (1.0 - lever.time_left) * time_ns, (COMPUTE,), is_bound=lever.is_bound
        )
        for gpu, time_ns in times.items()
        if time_ns
    }
    if not gains:
        return
    rank, device = gpu = max(gains, key=lambda gpu: gains[gpu].gain_pct)
    numbers, rows, gain = Numbers(), kernels[gpu], gains[gpu]
    named = ", ".join(
        f"{quoted(shortened(row['name']))} ({numbers.ns(f'kernel_{nth}_ns', row['exclusive_ns'])})"
        for nth, row in enumerate(rows[:_NAMED])
    )
    launches_n = sum(row["launches_n"] for row in rows)
    share_pct = 100.0 * times[gpu] / max(gain.span_ns, 1)
    left = _left(lever, numbers)
    yield RULES[lever.id].finding(
        gain=gain,
        culprit=lever.culprit,
        details=f"{numbers.counted('launches_n', launches_n, 'launch', 'launches')} of "
        f"{numbers.counted('kernels_n', len(rows), 'kernel')} take "
        f"{numbers.ns('exclusive_ns', times[gpu])} of {numbers.ns('span_ns', gain.span_ns)} on "
        f"GPU {device} of rank {rank}. Most of it: {named}.{left}",
        evidence=tuple(
            cell
            for row in rows[:_NAMED]
            for cell in cells("rank_kernels", row, ("rank", "device_id", "name"), ["exclusive_ns"])
        ),
        numbers=numbers.fields,
        fields={"share": numbers.percent("share_pct", share_pct), "rank": rank},
        rank=rank,
        device_id=device,
        name=rows[0]["category"],
        impact_ns=times[gpu],
    )


def _left(lever: KernelLever, numbers: Numbers) -> str:
    """Return what a fix leaves of the time, as a sentence; nothing where it may leave nothing."""
    if not lever.time_left:
        return ""
    takes = "can take no less than" if lever.is_bound else "typically takes"
    left = numbers.percent("left_pct", 100.0 * lever.time_left)
    return f" The faster kernel {takes} {left} of this time."
