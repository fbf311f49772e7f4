"""Numbers and names as people read them. Standard library only."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final

from .kernel_names import kernel_label

#: Stands where a table has null.
NOT_KNOWN: Final = "-"
#: Stands where a table has a name of no letters: a range may have one, and the default domain has.
NO_NAME: Final = "(no name)"

_NS_STEPS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
_BYTE_STEPS: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))
_FIGURES: Final = 3
#: Smaller ones, such as probabilities, are written as powers of ten.
_LEAST_WRITTEN: Final = 1e-4
#: Categories of Unicode: controls, formats (of direction, and without a width), surrogates, line
#: ends. They would hide or forge what is shown.
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: A name in backticks, or, as a group, what stands between two sentences.
_NAME_OR_NEXT: Final = re.compile(r"`[^`]*`|(?<=\.)(?<!\bvs\.)(\s+)(?=[A-Z`])")
#: The first text in a range's name that is JSON, or what Python prints likewise.
_FIRST_TEXT: Final = re.compile(r"""\s*(?:\{.*?:|\[)\s*["']([^"']+)["']""")
#: A line of a file that lies in folders, and a part of a model as `layers.*.mlp`.
_CODE_LINE: Final = re.compile(r"[^\s/<>]+/[^\s<>]*[^\s/<>]+\.\w+:\d+")
_MODEL_PART: Final = re.compile(r"(?:\w+\.)+\*(?:\.[\w*]+)*")
#: Ranks, or stretches of their numbers, that a sentence lists.
_MOST_RANKS: Final = 4
_LEAST_RUN: Final = 3
#: Ratios from which on a change is a factor.
_TIMES: Final = 3.0


def cleaned(text: object) -> str:
    """Return a text on one line, without what would hide or forge what is shown."""
    line = str(text)
    if line.isprintable():
        return line
    marked = ("\0" if unicodedata.category(item) in _UNPRINTABLE else item for item in line)
    return re.sub("\0+", " ", "".join(marked))


def counted(n: int, noun: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 rank`, `1,024 ranks`; `many` where an s does not do."""
    return f"{n:,} {noun if n == 1 else many or f'{noun}s'}"


def counted_range(counts: Sequence[int], noun: str, many: str | None = None) -> str:
    """Return the least and the largest number with their noun: `8 to 9 steps`; one if alike."""
    least, most = min(counts), max(counts)
    words = counted(most, noun, many)
    return words if least == most else f"{least:,} to {words}"


def listed(parts: list[str]) -> str:
    """Return parts as a sentence has them: `a, b and c`; there is at least one."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def runs(numbers: Sequence[int]) -> list[str]:
    """Return sorted numbers as ranges: `0-3` and `8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return [str(low) if low == high else f"{low}-{high}" for low, high in parts]


def ranks_words(ranks: Iterable[int]) -> str:
    """Return ranks as a sentence has them: `rank 3`, `ranks 2 and 5`, `ranks 0-2`, `19 ranks`.

    Few of them that are no run keep their order.
    """
    numbers = list(ranks)
    parts = runs(numbers)
    if len(parts) > 1 or len(numbers) < _LEAST_RUN:
        few = len(numbers) <= _MOST_RANKS
        parts = [*map(str, numbers)] if few else runs(sorted(numbers))
    if len(parts) > _MOST_RANKS:
        return f"{len(numbers)} ranks"
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listed(parts)}"


def gpus_words(gpus: Sequence[tuple[int, int]], *, with_devices: bool) -> str:
    """Return GPUs, pairs of rank and device, as a sentence has them: `GPU 3 of rank 0`."""
    if not with_devices:
        return ranks_words(sorted({rank for rank, _ in gpus}))
    named = [f"GPU {device_id} of rank {rank}" for rank, device_id in gpus]
    return listed(named) if len(named) <= _MOST_RANKS else counted(len(named), "GPU")


def format_ns(value_ns: float | None) -> str:
    """Return a time in the unit that suits it, with three figures: `1.23 ms`; `-` for null."""
    return NOT_KNOWN if _is_null(value_ns) else _scaled(value_ns, _NS_STEPS)


def format_instant(at_ns: float | None) -> str:
    """Return an instant to the nanosecond, so that it can be found again: `60.119037527 s`."""
    if at_ns is None or _is_null(at_ns):
        return NOT_KNOWN
    whole, rest = divmod(abs(int(at_ns)), _NS_STEPS[0][0])
    return f"{'-' if at_ns < 0 else ''}{whole}.{rest:09} s"


def format_bytes(size_bytes: float | None) -> str:
    """Return a size in decimal units, with three figures: `1.23 MB`; `-` for null."""
    return NOT_KNOWN if _is_null(size_bytes) else _scaled(size_bytes, _BYTE_STEPS)


def format_percent(value_pct: float | None) -> str:
    """Return a share, 0 to 100, with one decimal; two below one percent: `12.3 %`, `0.04 %`.

    A share too small for two decimals is `<0.01 %`, null is `-`.
    """
    if value_pct is None or _is_null(value_pct):
        return NOT_KNOWN
    if 0 < abs(value_pct) < 0.005:
        return "<0.01 %"
    digits = 2 if 0 < abs(value_pct) < 0.995 else 1
    return f"{value_pct:.{digits}f} %"


def format_change(change_pct: float) -> str:
    """Return a relative change: `+12.6 %`; from three times on as a factor, `209 times`."""
    ratio = 1 + change_pct / 100
    if ratio >= _TIMES:
        return f"{ratio:.3g} times"
    rounded = round(change_pct, 2) + 0.0  # no -0.00 %
    return f"{rounded:+.2f} %" if 0 < abs(rounded) < 1 else f"{change_pct if rounded else 0:+.1f} %"


def format_count(value: float | None) -> str:
    """Return a whole number with thousands apart: `1,234`; `-` for null."""
    if value is None or _is_null(value):
        return NOT_KNOWN
    return f"{round(value):,}"


def format_value(value: Any, unit: str | None) -> str:
    """Return one cell of a table.

    Args:
        value: As a table holds it; null in any form gives `NOT_KNOWN`.
        unit: Of its column, as the manifest has it.
    """
    if _is_null(value):
        return NOT_KNOWN
    if type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    if isinstance(value, str) or unit is None:
        text = cleaned(value)
        return text if text.strip() else NO_NAME
    known = {"ns": format_ns, "bytes": format_bytes, "%": format_percent, "count": format_count}
    if unit in known:
        return known[unit](value)
    if unit == "GB/s" and 0 < abs(value) < 1:
        return f"{format_bytes(value * 1e9)}/s"
    return f"{_rounded(float(value))}{'' if unit == 'ratio' else f' {unit}'}"


def quoted(name: object) -> str:
    """Return a name out of a trace for use in prose: in backticks, on one line.

    Of JSON it is the first name in it. Every renderer knows text in backticks as foreign, and
    escapes it as its format needs.
    """
    text = cleaned(name)
    if first := _FIRST_TEXT.match(text):
        text = first[1]
    return f"`{text.replace('`', chr(39)).strip() or NO_NAME}`"


def first_quoted(names: Iterable[object], most_n: int) -> str:
    """Return the first names out of a trace as prose, and how many more there are."""
    every = list(names)
    more_n = len(every) - most_n
    return ", ".join(map(quoted, every[:most_n])) + f" and {more_n:,} more" * (more_n > 0)


def spans(prose: str) -> list[tuple[bool, str]]:
    """Return the parts of a text as (whether it stood in backticks, part), none of them empty."""
    parts = prose.split("`")
    if len(parts) % 2 == 0:
        # A lone backtick opens nothing.
        parts[-2:] = ["`".join(parts[-2:])]
    return [(index % 2 == 1, part) for index, part in enumerate(parts) if part]


def unquoted(prose: str) -> str:
    """Return a text without the backticks around its names."""
    return "".join(part for _, part in spans(prose))


def first_sentence(text: str) -> str:
    """Return a text up to the first full stop that a new sentence follows."""
    return sentences(text)[0]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, at least one; none ends inside of a name or after `vs.`."""
    text = cleaned(text)
    between = [match.span() for match in _NAME_OR_NEXT.finditer(text) if match[1]]
    starts = [0, *(end for _, end in between)]
    ends = [*(start for start, _ in between), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def shortened(name: str, length: int = 60) -> str:
    """Return a name that fits: a long C++ name as its label, then cut in the middle.

    Of a line of code (`vllm/.../llama.py:673`) the file stays, of a part of a model its end.
    """
    name = cleaned(name)
    if len(name) > length:
        name = next((text for text in _labels(name) if len(text) <= length), kernel_label(name))
    if len(name) <= length:
        return name
    tail = (length - 3) // 3
    return f"{name[: length - 3 - tail]}...{name[len(name) - tail :]}"


def _labels(name: str) -> Iterator[str]:
    """Yield shorter and shorter names of a line of code or a part of a model; of others none."""
    if _CODE_LINE.fullmatch(name):
        first, *_, last = name.split("/")
        yield from (f"{first}/.../{last}", last)
    elif _MODEL_PART.fullmatch(name):
        while "." in name:
            name = name.partition(".")[2]
            yield name


def told_apart(names: Sequence[str], length: int) -> list[str]:
    """Return names of one table that fit, different ones different: what is common gets cut.

    Args:
        names: As they are; equal ones are shown alike.
        length: Of a name as it is shown, 8 or more.
    """
    shown = {name: shortened(name, length) for name in names}
    by_shown: dict[str, list[str]] = {}
    for name, text in shown.items():
        by_shown.setdefault(text, []).append(name)
    taken = set(by_shown)
    for alike in by_shown.values():
        if len({cleaned(name) for name in alike}) > 1:
            for name in (item for item in alike if cleaned(item) != shown[item]):
                shown[name] = _apart(name, alike, length, taken)
                taken.add(shown[name])
    return [shown[name] for name in names]


def _apart(name: str, alike: Sequence[str], length: int, taken: Container[str]) -> str:
    """Return a name from where it differs from all others, or the most similar one, or numbered."""
    whole, texts = cleaned(name), [cleaned(other) for other in alike]
    nearest_n = max(_common_n([whole, other]) for other in texts if other != whole)
    for common_n in (_common_n(texts), nearest_n):
        head = whole[: min(common_n, (length - 3) // 3)]
        text = f"{head}...{whole[common_n:]}"[:length]
        if text not in taken:
            return text
    number = 1
    while (marked := f"{text[: length - len(str(number)) - 1]}~{number}") in taken:
        number += 1
    return marked


def _common_n(texts: Sequence[str]) -> int:
    """Return how many characters all texts begin with."""
    first, last = min(texts), max(texts)
    both = zip(first, last, strict=False)
    return next((n for n, (a, b) in enumerate(both) if a != b), len(first))


def _is_null(value: Any) -> bool:
    """Tell None, not-a-number, and pandas' own nulls; this module knows no pandas."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _scaled(value: Any, steps: tuple[tuple[int, str], ...]) -> str:
    for scale, unit in steps:
        # 999,500 ns would be shown as 1000 us; it is 1 ms.
        if abs(value) >= scale * (1 - 0.5 * 10**-_FIGURES) or scale == 1:
            return f"{_rounded(value / scale)} {unit}"
    raise AssertionError("the last step is 1")


def _rounded(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < _LEAST_WRITTEN:
        return f"{value:.1e}"
    digits = _FIGURES - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
