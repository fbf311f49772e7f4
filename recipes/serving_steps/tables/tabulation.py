"""Tables of serving_steps out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import declared_frame
from nsys_llm.trace.identity import Rank

from ..partials import ServingPartial
from .batches import batch_columns, batch_step_columns, pace, server_columns
from .beside import before_columns, growth_columns, speculation_columns
from .between_tokens import inter_token_columns
from .cost_model import model_columns, padding_columns

_RECIPE: Final = "serving_steps"


def tabulate(
    partial: ServingPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables.

    Returns:
        By table name, as manifests/serving_steps.json declares them.
    """
    rows = [(rank, partial.ranks[rank.key]) for rank in ranks]
    served = [(rank, part.served) for rank, part in rows if part.served is not None]
    read = [(rank, steps) for rank, steps in served if steps.batches.is_read]
    slowest = pace(served)
    columns = {
        "servers": server_columns(rows, slowest),
        "batches": batch_columns(read),
        "cost_model": model_columns(slowest),
        "inter_token": inter_token_columns(read),
        "before_steps": before_columns(read),
        "padding": padding_columns(read),
        "context_growth": growth_columns(rows),
        "speculation": speculation_columns(read),
        "batch_steps": batch_step_columns(served),
    }
    manifest = load_manifest(_RECIPE)
    return {name: declared_frame(manifest.table(name), some) for name, some in columns.items()}
