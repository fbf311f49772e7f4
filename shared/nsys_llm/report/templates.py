"""Templates of a rule's sentences, which get raw numbers and names and put them into words.

The unit at the end of a field's name says how its number is written: `{gap_ns}` is `1.23 ms`,
`{idle_pct}` `12.3 %`, `{copied_bytes}` `1.23 MB`, `{gaps_n}` `1,234`, `{rate_gb_s}` `25 GB/s`,
`{slower_ratio}` `1.25`, `{waiting_rank}` `3`; null is `-`. Texts, and numbers without a unit, stand
as they are. Else a colon says how:

- `{kernel:quoted}`: a name out of a trace, in backticks
- `{ranks_n:rank}`, `{launches_n:launch|launches}`: a count with its noun
- `{ranks_n:=is|are}`: the word that suits a count, alone
- `{begin_ns:instant}`: to the nanosecond; `{longer_pct:change}`, `{moved_ns:signed}`: with a sign
- `{slower_ratio:.1f}`: as Python formats numbers

`[ (without {cut_ns})]` is left out where the first field in it is null, 0 or empty. The noun of a
count can be a field, `{slow_n:{unit}}`. A brace for itself is doubled; brackets without a field
stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.view import text

#: A field, whose noun may be a field too.
_FIELD: Final = r"(?<!\{)\{(\w+)(?::(?:[^{}]|\{\w+\})*)?\}"
#: Text in brackets, and the name of the first field in it.
_PART: Final = re.compile(rf"\[([^\[\]{{}}]*{_FIELD}[^\[\]]*)\]")
_PYTHON: Final = re.compile(r"[-+,.\d]*[defg]")

_OF_UNIT: Final[Mapping[str, Callable[[Any], str]]] = {
    "ns": text.format_ns,
    "pct": text.format_percent,
    "bytes": text.format_bytes,
    "n": text.format_count,
    "gb_s": lambda rate: text.format_value(rate, "GB/s"),
    "ratio": lambda ratio: f"{ratio:.2f}",
    "rank": str,
}


def signed_ns(ns: float) -> str:
    """Return a change of time with its sign: `+1.23 ms`."""
    return f"{'+' if ns > 0 else ''}{text.format_ns(ns)}"


_OF_WORD: Final[Mapping[str, Callable[[Any], str]]] = {
    "quoted": text.quoted,
    "instant": text.format_instant,
    "change": text.format_change,
    "signed": signed_ns,
    "more": lambda pct: f"{text.format_percent(abs(pct))} {'less' if pct < 0 else 'more'}",
}


def unit_of(name: str) -> str | None:
    """Return the unit at the end of a field's name; None where it has none."""
    return next((unit for unit in _OF_UNIT if name.endswith(f"_{unit}")), None)


def filled(template: str, fields: Mapping[str, Any]) -> str:
    """Return a template with its fields in words.

    Raises:
        KeyError: A field is not given.
    """
    kept = _PART.sub(lambda part: part[1] if _is_worth(fields[part[2]]) else "", template)
    return kept.format_map({name: _Field(name, value) for name, value in fields.items()})


def readable(template: str) -> str:
    """Return a template as documents show it: fields by their names alone."""
    return (
        re.sub(_FIELD, r"{\1}", _PART.sub(r"[\1]", template)).replace("{{", "{").replace("}}", "}")
    )


@dataclass(frozen=True)
class _Field:
    name: str
    value: Any

    def __format__(self, spec: str) -> str:
        if spec in _OF_WORD:
            return _OF_WORD[spec](self.value)
        if _is_null(self.value):
            return text.NOT_KNOWN
        if _PYTHON.fullmatch(spec):
            return format(self.value, spec)
        if spec.startswith("="):
            few, many = spec[1:].split("|")
            return few if self.value == 1 else many
        if spec:
            return text.counted(int(self.value), *spec.split("|"))
        unit = unit_of(self.name)
        if unit is None or isinstance(self.value, str):
            return str(self.value)
        return _OF_UNIT[unit](self.value)


def _is_worth(value: Any) -> bool:
    return not _is_null(value) and value not in (0, "")


def _is_null(value: Any) -> bool:
    return value is None or bool(value != value)
