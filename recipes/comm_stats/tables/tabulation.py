"""Makes the tables of comm_stats out of the merged partial, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.analyses.wall.of_matched import matched
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import declared_frame
from nsys_llm.trace.identity import Rank

from ..partials import CommPartial
from .axes import with_axes
from .bubbles import bubble_rows
from .experts import expert_rows
from .groups import find_groups, group_rows, stage_rows
from .job import Job
from .layout import parse_layout
from .messages import collective_frame, message_rows, payload_rows, transfers
from .sizes import all_sized

_RECIPE: Final = "comm_stats"


def tabulate(
    partial: CommPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables, as manifests/comm_stats.json declares them.

    Args:
        partial: All ranks.
        ranks: Those with GPU work, in order.
        options: layout names the axes of parallelism.
    """
    manifest = load_manifest(_RECIPE)
    job = Job(matched(partial, ranks, options), partial.ranks)
    layout = parse_layout(options["layout"], len(ranks))
    sizes = all_sized(job)
    groups = with_axes(job, find_groups(job, sizes), layout)
    frame = collective_frame(job, groups, sizes)
    rows = {
        "groups": group_rows(job, groups),
        "message_sizes": message_rows(job, groups, frame, options["link_bandwidth"]),
        "payloads": payload_rows(job),
        "stages": stage_rows(job, groups, layout),
        "experts": expert_rows(job, groups),
        "bubbles": bubble_rows(job),
    }
    names = {table.file: [column.name for column in table.columns] for table in manifest.writes}
    columns: dict[str, Mapping[str, Any]] = {
        table: {name: [row[name] for row in some] for name in names[table]}
        for table, some in rows.items()
    }
    columns["transfers"] = transfers(frame, names["transfers"])
    return {name: declared_frame(manifest.table(name), table) for name, table in columns.items()}
