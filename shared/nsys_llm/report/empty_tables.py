"""How many rows each table of a run has; of one without, which is not written, why and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from nsys_llm.manifest.declared import TableWrite
from nsys_llm.report.run import Run


def table_records(run: Run, tables: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """Return the rows of each table of a run; where it has none the reason and its columns.

    Args:
        run: What was read.
        tables: All that its manifest declares.
    """
    records: dict[str, dict[str, Any]] = {}
    for table in run.manifest.writes:
        rows_n = len(tables[table.file])
        reason, flags = (None, None) if rows_n else _reason(table, run, tables)
        records[table.file] = {"rows": rows_n, "reason": reason, "record": flags}
        if not rows_n:
            records[table.file]["columns"] = {
                column.name: {"dtype": column.dtype, "unit": column.unit}
                for column in table.columns
            }
    return records


def _reason(
    table: TableWrite, run: Run, tables: Mapping[str, pd.DataFrame]
) -> tuple[str, str | None]:
    """Return why a table is empty, and the flags of `nsys profile` that would change that."""
    if table.option is not None and not run.options.get(table.option):
        flag = next(option.flag for option in run.manifest.options if option.name == table.option)
        return f"{flag} was not given", None
    if tables["coverage"].empty:
        return "no rank with GPU work was read", None
    readable = [profile for profile in run.profiles if profile.reason is None]
    for read in run.manifest.reads:
        if read.table in table.reads and all(
            read.table in profile.empty_tables for profile in readable
        ):
            return f"{read.lost}: not recorded, or none happened", read.capture
    return f"nothing that was read makes one; a row is {table.row}", None
