"""Makes the tables of comm_stats of all ranks, once."""

from __future__ import annotations

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.reduced.job import Job
from nsys_llm.report.outputs import Cells

from .axes import with_axes
from .bubbles import bubble_rows
from .exchanges import exchange_rows, expert_rows
from .groups import find_groups, group_rows, parse_layout, stage_rows
from .job import CommJob
from .messages import (
    collective_frame,
    message_rows,
    payload_rows,
    transfers,
    twin_columns,
)
from .sizes import all_sized


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    comm, options = CommJob(job.collectives, job.facts.nccl), job.options
    layout = parse_layout(options["layout"], max(len(job.ranks), len(set(comm.numbers))))
    sizes = all_sized(comm, options["link_bandwidth"])
    groups = with_axes(comm, find_groups(comm, sizes), layout)
    frame = collective_frame(comm, groups, sizes)
    names = [column.name for column in load_manifest("comm_stats").table("transfers").columns]
    messages = message_rows(comm, groups, frame, options["link_bandwidth"])
    twins = twin_columns(comm, groups, frame, messages)
    return {
        "groups": [
            own | beside for own, beside in zip(group_rows(comm, groups), twins, strict=True)
        ],
        "message_sizes": messages,
        "payloads": payload_rows(comm),
        "stages": stage_rows(comm, groups, layout),
        "exchanges": exchange_rows(comm),
        "experts": expert_rows(comm, frame),
        "bubbles": bubble_rows(comm),
        "transfers": transfers(frame, names),
    }
