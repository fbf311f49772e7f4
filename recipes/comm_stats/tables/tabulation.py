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
from .bubbles import bubble_columns
from .experts import expert_columns
from .groups import find_groups, group_columns
from .job import Job
from .layout import parse_layout
from .messages import message_columns, payload_columns, transfer_columns
from .pipelines import find_chains
from .sizes import all_sized
from .stages import stage_columns

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
    declared = {table.file: [column.name for column in table.columns] for table in manifest.writes}
    job = Job(matched(partial, ranks, options), partial.ranks)
    chains = find_chains(job)
    layout = parse_layout(options["layout"], len(ranks))
    sizes = all_sized(job)
    groups = with_axes(job, chains, find_groups(job, sizes), layout)
    columns = {
        "groups": group_columns(job, groups, sizes, declared["groups"]),
        "message_sizes": message_columns(
            job, groups, sizes, options["link_bandwidth"], declared["message_sizes"]
        ),
        "transfers": transfer_columns(job, groups, sizes, declared["transfers"]),
        "payloads": payload_columns(job, declared["payloads"]),
        "stages": stage_columns(job, chains, groups, layout, declared["stages"]),
        "experts": expert_columns(job, groups, declared["experts"]),
        "bubbles": bubble_columns(job, chains, declared["bubbles"]),
    }
    return {name: declared_frame(manifest.table(name), table) for name, table in columns.items()}
