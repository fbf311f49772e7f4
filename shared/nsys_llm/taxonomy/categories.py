"""Which kind of work a kernel does, told from its name by ordered rules.

The rules are data: `data/kernel_rules/<engine>.json`. An engine's list is its own rules, then those
of the engine it extends; the first rule whose pattern is found in the name wins. A name that no
rule knows gets the category `UNMATCHED`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final, TypeVar

from nsys_llm.core.errors import ManifestError, UsageError

#: Engines that have rules, the more special ones first.
ENGINES: Final = ("vllm", "sglang", "trtllm", "pytorch", "generic")

#: Category of a name that no rule matches. It is an outcome, not a rule.
UNMATCHED: Final = "unmatched"


@dataclass(frozen=True)
class Category:
    """A kind of work. `id` is the value in result tables, `meaning` one sentence."""

    id: str
    title: str
    meaning: str


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        id: Unique, `engine.name`.
        category: Id of a declared category.
        pattern: Regular expression searched in the name. Each of its alternatives contains at
            least four fixed characters in a row outside groups, which make it quick to rule out.
        operation: What the kernel does in a model, in an engineer's words; null if unknown.
        flags: Ids of declared flags: reasons why results may differ between runs or shapes.
        example: A name that this rule must win; long argument lists are shortened.
        source: Where kernels of this name come from.
    """

    id: str
    category: str
    pattern: str
    operation: str | None
    flags: tuple[str, ...]
    example: str
    source: str


@dataclass(frozen=True)
class Classification:
    """What a name says. `rule_id` and `operation` are None where no rule says them."""

    category: str
    rule_id: str | None
    operation: str | None
    flags: tuple[str, ...]


_T = TypeVar("_T")
_NO_MATCH: Final = Classification(UNMATCHED, None, None, ())


@dataclass(frozen=True)
class RuleSet:
    """The rules of one engine, in the order in which they are tried."""

    engine: str
    rules: tuple[Rule, ...]
    _regexes: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _candidates: dict[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regexes = tuple(re.compile(rule.pattern) for rule in self.rules)
        object.__setattr__(self, "_regexes", regexes)
        object.__setattr__(self, "_candidates", _index_by_gram(self.rules))

    def classify(self, name: str) -> Classification:
        """Return what the first matching rule says about a kernel's name, or `UNMATCHED`.

        Args:
            name: Demangled, mangled or base name. A base name such as `device_kernel` may say less.
        """
        # Most patterns can be ruled out because four characters that they need are not in the
        # name. Trying every pattern takes about four times as long.
        grams = {name[start : start + _GRAM] for start in range(len(name) - _GRAM + 1)}
        found = {
            index for gram in grams & self._candidates.keys() for index in self._candidates[gram]
        }
        for index in sorted(found):
            if self._regexes[index].search(name):
                rule = self.rules[index]
                return Classification(rule.category, rule.id, rule.operation, rule.flags)
        return _NO_MATCH


@cache
def load_rules(engine: str) -> RuleSet:
    """Return the effective rules of an engine.

    Args:
        engine: One of `ENGINES`.

    Raises:
        UsageError: There is no such engine.
        ManifestError: A file of rules is not valid.
    """
    if engine not in ENGINES:
        raise UsageError(
            f"'{engine}' is not an engine with rules; use one of {', '.join(ENGINES)}."
        )
    known_categories = {category.id for category in load_categories()}
    known_flags = load_flag_meanings().keys()
    rules: list[Rule] = []
    for name, content in _with_extended(engine):
        rules += [_read_rule(name, entry) for entry in _get(name, content, "rules", list)]
    for rule in rules:
        if rule.category not in known_categories or not known_flags >= set(rule.flags):
            raise ManifestError(f"Rule {rule.id} names a category or flag that is not declared.")
    repeated = [rule_id for rule_id, n in Counter(rule.id for rule in rules).items() if n > 1]
    if repeated:
        raise ManifestError(f"Rule {repeated[0]} is declared twice for engine {engine}.")
    return RuleSet(engine, tuple(rules))


@cache
def load_categories() -> tuple[Category, ...]:
    """Return all categories that rules may give, in the order in which to show them.

    Raises:
        ManifestError: The file of generic rules is not valid.
    """
    entries = _get("generic", _read_file("generic"), "categories", list)
    return tuple(
        Category(*(_get("generic", entry, key, str) for key in ("id", "title", "meaning")))
        for entry in entries
    )


@cache
def load_flag_meanings() -> Mapping[str, str]:
    """Return what each flag of a rule means, with the source of that statement.

    Raises:
        ManifestError: The file of generic rules is not valid.
    """
    meanings = _get("generic", _read_file("generic"), "flag_meanings", dict)
    return {flag: _get("generic", meanings, flag, str) for flag in meanings}


def detect_engine(names: Iterable[str]) -> str:
    """Return the engine whose kernels these are, `generic` if nothing tells.

    Each mark that is found counts once, whatever the order and number of names. Marks of an engine
    outweigh those of the framework it runs on. Equal sums go to the first of `ENGINES`.

    Args:
        names: Kernel names of a whole run: all ranks, so that one rank's lack decides nothing.

    Raises:
        ManifestError: A file of rules is not valid.
    """
    text = "\n".join(set(names))
    scores = {engine: _score(engine, text) for engine in ENGINES}
    best = max(ENGINES, key=lambda engine: scores[engine])
    return best if scores[best] > 0 else "generic"


def _score(engine: str, text: str) -> int:
    marks = _get(engine, _read_file(engine), "detect", list)
    return sum(
        _get(engine, mark, "weight", int)
        for mark in marks
        if _compile(engine, _get(engine, mark, "pattern", str)).search(text)
    )


def _with_extended(engine: str) -> list[tuple[str, dict[str, Any]]]:
    """Return an engine's file, then that of the engine it extends, and so on."""
    content = _read_file(engine)
    extended = content.get("extends")
    if extended is None:
        return [(engine, content)]
    # Only towards the end of ENGINES, so that no chain of extensions can run in a circle.
    if extended not in ENGINES[ENGINES.index(engine) + 1 :]:
        raise ManifestError(f"Kernel rules of {engine} cannot extend '{extended}'.")
    return [(engine, content), *_with_extended(extended)]


@cache
def _read_file(engine: str) -> dict[str, Any]:
    path = resources.files("nsys_llm.taxonomy") / "data" / "kernel_rules" / f"{engine}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ManifestError(f"Kernel rules of {engine} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("engine") != engine:
        raise ManifestError(f"Kernel rules of {engine} are not an object that names its engine.")
    return content


def _read_rule(engine: str, entry: object) -> Rule:
    keys = ("id", "category", "pattern", "example", "source")
    values = {key: _get(engine, entry, key, str) for key in keys}
    operation = entry.get("operation") if isinstance(entry, dict) else None
    flags = entry.get("flags", []) if isinstance(entry, dict) else []
    texts = [operation or "", *flags] if isinstance(flags, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ManifestError(f"Rule {values['id']} has a wrong type of operation or flags.")
    if _compile(values["id"], values["pattern"]).flags & (re.IGNORECASE | re.VERBOSE):
        raise ManifestError(f"Rule {values['id']} must not switch on flags of the whole pattern.")
    return Rule(operation=operation, flags=tuple(flags), **values)


def _get(engine: str, entry: object, key: str, kind: type[_T]) -> _T:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        raise ManifestError(f"Kernel rules of {engine}: '{key}' must be of type {kind.__name__}.")
    return value


def _compile(where: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ManifestError(f"{where}: '{pattern}' is not a regular expression: {error}") from error


_GRAM: Final = 4
_PIECE: Final = re.compile(
    r"\\(?P<escaped>\W)|(?P<quantifier>[*?]|\{[^}]*\})|(?P<open>\()|(?P<close>\))|(?P<bar>\|)"
    r"|\\\w|\[(?:\\.|[^\]\\])*\]|[.^$+]|(?P<plain>.)",
    re.DOTALL,
)


def _literals(pattern: str) -> list[str]:
    """Return, per top-level alternative, the longest run of characters that it must contain.

    Conservative: groups, classes and optional characters are left out.
    """
    depth, runs = 0, [[""]]
    for piece in _PIECE.finditer(pattern):
        character = piece["plain"] or piece["escaped"]
        depth += bool(piece["open"]) - bool(piece["close"])
        if depth or piece["close"]:
            runs[-1].append("")
        elif piece["bar"]:
            runs.append([""])
        elif character:
            runs[-1][-1] += character
        else:
            if piece["quantifier"]:
                runs[-1][-1] = runs[-1][-1][:-1]
            runs[-1].append("")
    return [max(run, key=len) for run in runs]


def _index_by_gram(rules: Sequence[Rule]) -> dict[str, tuple[int, ...]]:
    """Return which rules need which four characters: the rarest four of each alternative."""
    needed = [[_grams(text) for text in _literals(rule.pattern)] for rule in rules]
    counts = Counter(gram for grams_of_rule in needed for grams in grams_of_rule for gram in grams)
    found: dict[str, set[int]] = {}
    for index, grams_of_rule in enumerate(needed):
        if not all(grams_of_rule):
            raise ManifestError(
                f"Rule {rules[index].id}: each alternative needs {_GRAM} fixed characters."
            )
        for grams in grams_of_rule:
            found.setdefault(min(grams, key=lambda gram: (counts[gram], gram)), set()).add(index)
    return {gram: tuple(sorted(indices)) for gram, indices in found.items()}


def _grams(text: str) -> list[str]:
    return [text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1)]
