"""Command-line options, derived from a manifest, for any argparse parser."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.core.patterns import parse_pattern, require_text
from nsys_llm.core.rooted import ROOTS
from nsys_llm.manifest.declared import Option
from nsys_llm.manifest.gates import gate_texts, parse_gates
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.manifest.model_config import model_fields
from nsys_llm.manifest.weights import read_weights
from nsys_llm.manifest.what_if import change_text
from nsys_llm.taxonomy.phase_maps import read_phase_map

#: Options whose text names an NVTX range; a mistake in it is found before anything is read.
_RANGE_TEXTS: Final = ("filter_nvtx", "filter_projected_nvtx", "step")

#: Each rank without a profile has a row; more would take all of the memory.
_MOST_RANKS: Final = 100_000
#: Of a list of ranks or devices.
_MOST_NUMBERS: Final = 1_000_000
#: No window of a capture ends before.
_LEAST_NS: Final = 1_000
#: 146 years; later times are no 64-bit numbers.
_LATEST_NS: Final = 1 << 62
#: Begins a range that somebody typed (`-5/3`, `-3:5`), and no option; argparse knows `-5` only.
_NEGATIVE: Final = re.compile(r"-\.?[\d/:]")

_NS_PER_UNIT: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_TIME_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)")


def add_options(parser: argparse.ArgumentParser, manifest: Manifest) -> None:
    """Add a recipe's options to a parser, leaving out those that it has already."""
    parser._negative_number_matcher = _NEGATIVE
    groups: dict[str, Any] = {}
    for option in manifest.options:
        if option.flag in parser._option_string_actions:
            continue
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        taken = f"--{option.alias}" in parser._option_string_actions
        _add(groups[option.group], option if not taken else replace(option, alias=None))


def parsed_option(option: Option, value: Any) -> Any:
    """Return a value given in Python as the command line would have it: typed, and parsed.

    Raises:
        UsageError: It means nothing, in the words of the command.
    """
    if value is None or (option.type == "flag" and isinstance(value, bool)):
        return value
    try:
        if option.type in _LISTS:
            texts = [value] if isinstance(value, (str, os.PathLike)) else _listed(value)
            return [_PARSERS[option.type](_typed(text)) for text in texts]
        if option.type == "flag":
            raise UsageError(f"{value!r} is neither True nor False.")
        if isinstance(value, (list, tuple)) and option.type in _BETWEEN:
            _refuse_seconds(option, value)
            value = _BETWEEN[option.type].join("" if part is None else str(part) for part in value)
        text = _typed(value)
        if option.choices and text not in option.choices:
            choices = ", ".join(map(repr, option.choices))
            raise UsageError(f"invalid choice: {text!r} (choose from {choices}).")
        return _PARSERS[option.type](text)
    except UsageError as error:
        raise UsageError(f"argument {option.flag}: {error.message}") from error
    except ValueError as error:  # Python reads 4,300 digits
        raise UsageError(f"argument {option.flag}: a number has too many digits.") from error


def _refuse_seconds(option: Option, value: Sequence[Any]) -> None:
    """Refuse plain numbers that are no time of a capture: who writes 1 and 2 means seconds."""
    if (
        option.type in ("time_range", "window")
        and value
        and all(isinstance(part, int) and 0 <= part < _LEAST_NS for part in value)
    ):
        raise UsageError(f"{value!r} are nanoseconds; write like '{value[0]}s/{value[-1]}s'.")


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Sequence) and not isinstance(value, bytes) and len(value):
        return list(value)
    raise UsageError(f"{value!r} is not a list of texts, of at least one.")


def _typed(value: Any) -> str:
    """Return what a person would type for a value."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, os.PathLike) and isinstance(path := os.fspath(value), str):
        return path
    raise UsageError(f"{value!r} is not a text.")


def resolved_options(manifest: Manifest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option of a recipe, checked, aliases resolved, absent ones at their default.

    Args:
        given: Parsed values by option name, and `ROOTS`; others are ignored.

    Raises:
        UsageError: Two options contradict each other, or a value means nothing.
    """
    options: dict[str, Any] = {
        option.name: (False if option.type == "flag" else option.default)
        if given.get(option.name) is None
        else _read(option, given[option.name])
        for option in manifest.options
    }
    for option in manifest.options:
        if option.excludes and options[option.name] and options[option.excludes]:
            other = option.excludes.replace("_", "-")
            raise UsageError(f"{option.flag} and --{other} exclude each other.")
    options["filter_time"] = _filter_time(options)
    _check_window(options["filter_time"])
    if (options["world_size"] or 0) > _MOST_RANKS:
        raise UsageError(f"--world-size: no job has more than {_MOST_RANKS:,} ranks.")
    chosen_recipes(manifest, options)
    if options["perfetto_window"] is not None and not options["perfetto"]:
        raise UsageError("--perfetto-window says what --perfetto shows; add --perfetto.")
    _check_window(options["perfetto_window"])
    _check_steps(manifest, options)
    _check_texts(options)
    if "gate" in options:
        options["gate"] = tuple(chain.from_iterable(map(gate_texts, options["gate"] or ())))
        require_text("--gate", "".join(options["gate"]))
        parse_gates(options["gate"], manifest.metrics)
    return options | ({ROOTS: given[ROOTS]} if ROOTS in given else {})


def _read(option: Option, value: Any) -> Any:
    """Return what the files of an option say; whatever is no name of a file, as it is."""
    names = value if isinstance(value, list) else [value]
    if option.type not in _READERS or not all(isinstance(name, str) for name in names):
        return value
    try:
        return _READERS[option.type](value)
    except UsageError as error:
        raise UsageError(f"argument {option.flag}: {error.message}") from error


def _filter_time(options: dict[str, Any]) -> tuple[int | None, int | None] | None:
    """Return the window, and take the aliases out of the options."""
    window = options.pop("start", None), options.pop("end", None)
    given: tuple[int | None, int | None] | None = options["filter_time"]
    if window == (None, None):
        return given
    if given is not None:
        raise UsageError("--start and --end say the same as --filter-time; give one of them.")
    return window


def _check_texts(options: Mapping[str, Any]) -> None:
    for name in (*_RANGE_TEXTS, "phase"):
        require_text(f"--{name.replace('_', '-')}", options.get(name) or "")
    for name in _RANGE_TEXTS:
        if options[name] is not None:
            from nsys_llm.manifest.range_choice import parse_choice

            parse_choice(options[name])
    if options["step_kernel"] is not None:
        parse_pattern(options["step_kernel"])


def chosen_recipes(manifest: Manifest, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the recipes that a run is made of, in the order of its manifest; of most, none.

    Raises:
        UsageError: `--only` names another one.
    """
    names = manifest.recipes
    if not options.get("only"):
        return names
    chosen = [name.strip() for name in options["only"].split(",")]
    if odd := [name for name in chosen if name not in names]:
        raise UsageError(f"--only: no recipe '{odd[0]}'; there are: {', '.join(names)}.")
    return tuple(name for name in names if name in chosen)


def _check_steps(manifest: Manifest, options: Mapping[str, Any]) -> None:
    if options["steps"] and options["skip_warmup"]:
        raise UsageError("--steps already says which steps; leave out --skip-warmup.")
    chooses = manifest.by_step or options["steps"] or options["skip_warmup"]
    for name in ("step", "step_kernel"):
        if options[name] and not chooses:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{flag} says what a step is; add --steps A:B or --skip-warmup to choose some."
            )


def _add(group: Any, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.type == "flag":
        group.add_argument(option.flag, action="store_true", default=None, help=text)
        return
    if option.default is not None:
        text += f" Default: {option.default}."
    extra: dict[str, Any] = {"help": text, "metavar": option.metavar, "default": None}
    if option.choices:
        extra |= {"choices": option.choices, "metavar": None}
    if option.type in _LISTS:
        extra |= {"nargs": "+", "action": "extend"}
    if option.required:
        extra["required"] = True
    flags = [option.flag] + ([f"--{option.alias}"] if option.alias else [])
    group.add_argument(*flags, type=_for_argparse(_PARSERS[option.type]), **extra)


def _for_argparse(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def typed(text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(error.message) from error

    return typed


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"'{text}' is not a whole number above 0.")
    return int(text)


def _number(text: str) -> float:
    if re.fullmatch(r"\d*\.?\d+", text) is None or not float(text):
        raise UsageError(f"'{text}' is not a number above 0; write like 12.5.")
    return float(text)


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise UsageError(f"{text!r} is no path.")
    return text


def _percent(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text)
    if match is None:
        raise UsageError(f"'{text}' is not a percentage; write like 2 or 0.5.")
    return float(match[1])


def _share(text: str) -> float:
    if re.fullmatch(r"\d*\.?\d+", text) is None or not 0 < float(text) < 1:
        raise UsageError(f"'{text}' is not a number between 0 and 1; write like 0.05.")
    return float(text)


def _numbers(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise UsageError(f"'{text}' is not a list of numbers; write like 0,4-7.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(f"'{part.strip()}' is not a range; write the smaller number first.")
        if last - first > _MOST_NUMBERS:
            raise UsageError(f"'{part.strip()}' are more than {_MOST_NUMBERS:,} numbers.")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def _time_range(text: str) -> tuple[int | None, int | None]:
    start, slash, end = text.partition("/")
    if not slash or not (start or end):
        raise UsageError(f"'{text}' is not a window; write [START]/[END], like 5s/7s.")
    return parse_duration_ns(start) if start else None, parse_duration_ns(end) if end else None


def _window(text: str) -> tuple[int | None, int | None]:
    return (None, None) if text == "all" else _time_range(text)


def _step_range(text: str) -> tuple[int | None, int | None]:
    if both := re.fullmatch(r"(\d+)-(\d+)", text):
        text = f"{both[1]}:{int(both[2]) + 1}"
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if match is None or text == ":":
        raise UsageError(f"'{text}' is not a range of steps; write A:B, A: or :B, or A-Z.")
    first, last = (int(part) if part else None for part in match.groups())
    if first is not None and last is not None and last <= first:
        raise UsageError(f"'{text}' holds no step; B must be above A.")
    return first, last


def _check_window(window: tuple[int | None, int | None] | None) -> None:
    if window and None not in window and window[1] <= window[0]:  # type: ignore[operator]
        raise UsageError(
            f"the window {window[0]}/{window[1]} is empty; its end must be after its start."
        )


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds that a person typed.

    Args:
        text: Plain nanoseconds (`1500`), or numbers with units in any order that add up
            (`5s`, `1.5ms`, `1s2ms3us4ns`). As `nsys stats --filter-time` takes them.

    Raises:
        UsageError: The text is neither.
    """
    if text.startswith("-"):
        raise UsageError(f"'{text}' is before the capture; times begin with the capture, at 0.")
    time_ns = _parsed_ns(text)
    if time_ns > _LATEST_NS:
        raise UsageError(f"'{text}' is later than any capture; times begin with the capture.")
    return time_ns


def _parsed_ns(text: str) -> int:
    if text.isdecimal():
        return int(text)
    parts = _TIME_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(
            f"'{text}' is not a time; write nanoseconds, or like 5s, 1.5ms, 1s2ms3us4ns."
        )
    return sum(_scaled_ns(number, unit) for number, unit in parts)


def _scaled_ns(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    scale = _NS_PER_UNIT[unit]
    return int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)


def _annotations(paths: Sequence[str]) -> Any:
    from nsys_llm.manifest.graph_annotations import read_annotations

    return read_annotations(paths)


#: Types of options that may be given several times.
_LISTS: Final = ("paths", "gates", "change", "annotations")

#: What stands between several values of one option.
_BETWEEN: Final = {"numbers": ",", "time_range": "/", "window": "/", "step_range": ":"}

_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "change": change_text,
    "choice": str,
    "count": _count,
    "gates": str,
    "number": _number,
    "numbers": _numbers,
    "output": _path,
    "paths": _path,
    "percent": _percent,
    "share": _share,
    "step_range": _step_range,
    "text": str,
    "time": parse_duration_ns,
    "time_range": _time_range,
    "window": _window,
}

#: Types of options that name a file. It is read when nothing else can be wrong any more, and once:
#: workers may not see it, and of a pipe there is no second time.
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "annotations": _annotations,
    "model": model_fields,
    "phase_map": read_phase_map,
    "rank_map": lambda path: (path, read_option_file(path)),
    "weights": read_weights,
}
_PARSERS.update(dict.fromkeys(_READERS, _path))
