"""Makes the tables of comm_stats out of the merged partial, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import Cells
from nsys_llm.trace.identity import Rank

from ..partials import CommPartial
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


def tabulate(
    partial: CommPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    """Return the recipe's tables by name.

    Args:
        ranks: Those with GPU work, in order.
        options: layout names the axes of parallelism.
    """
    job = CommJob(partial.match(ranks, options), partial.ranks)
    layout = parse_layout(options["layout"], max(len(ranks), len(set(job.numbers))))
    sizes = all_sized(job, options["link_bandwidth"])
    groups = with_axes(job, find_groups(job, sizes), layout)
    frame = collective_frame(job, groups, sizes)
    names = [column.name for column in load_manifest("comm_stats").table("transfers").columns]
    messages = message_rows(job, groups, frame, options["link_bandwidth"])
    twins = twin_columns(job, groups, frame, messages)
    return {
        "groups": [
            own | beside for own, beside in zip(group_rows(job, groups), twins, strict=True)
        ],
        "message_sizes": messages,
        "payloads": payload_rows(job),
        "stages": stage_rows(job, groups, layout),
        "exchanges": exchange_rows(job),
        "experts": expert_rows(job, frame),
        "bubbles": bubble_rows(job),
        "transfers": transfers(frame, names),
    }
