"""Rows and columns of a table, chosen as `nsys-llm show` and a notebook write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import pandas as pd

_WHERE: Final = re.compile(r"(\w+)\s*(==|!=|>=|<=|=|>|<|~)\s*(.*)")
#: Of a column.
_METHODS: Final = {"=": "eq", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
_NULL: Final = "null"
_UP: Final = ":up"


def _finder(text: str) -> Callable[[str], object]:
    if text.startswith("re:"):
        return re.compile(text.removeprefix("re:"), re.IGNORECASE).search
    return lambda name: text.casefold() in name.casefold()


def holding(
    frame: pd.DataFrame,
    conditions: Iterable[str],
    finder: Callable[[str], Callable[[str], object]] = _finder,
) -> pd.DataFrame:
    """Return the rows that meet all conditions: `rank = 2`, `gain_pct >= 3`, `name ~ TEXT`.

    Args:
        finder: Makes of the text after `~` what tells whether it is in a name.

    Raises:
        ValueError: A condition is none, or of a column that is not there.
    """
    for condition in conditions:
        frame = frame[_holds(frame, condition, finder)]
    return frame


def ordered(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return the rows by a column, the largest first, or with `:up` the smallest; null last."""
    name, up = text.removesuffix(_UP), text.endswith(_UP)
    require_column("sort", name, frame)
    return frame.sort_values(name, ascending=up, kind="stable", na_position="last")


def require_column(option: str, name: str, columns: Iterable[Any]) -> None:
    """Raise a ValueError that says which columns there are, unless this is one.

    Raises:
        ValueError: There is none; which there are.
    """
    if name not in columns:
        raise ValueError(
            f"{option}: no column '{name}'; there are: {', '.join(map(str, columns))}."
        )


def _holds(
    frame: pd.DataFrame, condition: str, finder: Callable[[str], Callable[[str], object]]
) -> Any:
    """Return which rows a condition chooses; null fulfils none but `= null`."""
    match = _WHERE.fullmatch(condition.strip())
    if match is None:
        raise ValueError(f"where '{condition}': write COLUMN OP VALUE, like rank = 2.")
    name, sign, text = match.groups()
    require_column("where", name, frame)
    column = frame[name]
    if text == _NULL and sign in ("=", "==", "!="):
        return (column.notna() if sign == "!=" else column.isna()).to_numpy()
    value: Any = text.strip("\"'")
    if sign == "~":
        finds = finder(value)
        found = {cell for cell in column.dropna().unique() if finds(str(cell))}
        return column.isin(found).to_numpy()
    if pd.api.types.is_bool_dtype(column):
        value = text.lower() in ("true", "yes", "1")
    elif pd.api.types.is_numeric_dtype(column):
        value = _number(name, text)
    return getattr(column, _METHODS[sign])(value).fillna(False).astype(bool).to_numpy()


def _number(name: str, text: str) -> float:
    """Return a number; times since an epoch keep their last digits only as whole ones."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"where: '{text}' is not a number, and {name} is.")
