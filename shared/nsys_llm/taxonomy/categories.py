"""Which kind of work a kernel does, told from its name by ordered rules.

The rules are data, `data/kernel_rules/<engine>.json`, checked by `tests/taxonomy`. An engine's list
is its own rules, then those of the engine it extends; the first rule whose pattern is found in the
name wins. A name that matches no rule gets the category `UNMATCHED`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.taxonomy.data_files import data_file
from nsys_llm.taxonomy.names import unmangled

#: Engines that have rules, the more special ones first.
ENGINES: Final = ("vllm", "sglang", "trtllm", "pytorch", "generic")

#: Category of a name that no rule matches. It is an outcome, not a rule.
UNMATCHED: Final = "unmatched"
#: Category of a shown name that stands for full names of different categories.
MIXED: Final = "mixed"
#: The category of collectives, point-to-point transfers, and what is fused into them.
COMMUNICATION: Final = "communication"
#: Of kernels that compute and communicate at once: in the sum of neither.
FUSED: Final = "fused_communication"


@dataclass(frozen=True)
class Category:
    """A kind of work. `id` is the value in result tables, `meaning` one sentence."""

    id: str
    title: str
    meaning: str


@dataclass(frozen=True)
class KernelRule:
    """One rule, as its file has it.

    Attributes:
        pattern: Regular expression searched in the name. Each of its alternatives contains at
            least four fixed characters in a row outside groups, which make it quick to rule out.
        operation: In an engineer's words; None if unknown.
        flags: Ids of declared flags: reasons why results may differ between runs or shapes.
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


_NO_MATCH: Final = Classification(UNMATCHED, None, None, ())


@dataclass(frozen=True)
class RuleSet:
    """The rules of one engine, in the order in which they are tried."""

    engine: str
    rules: tuple[KernelRule, ...]
    _literals: tuple[list[str], ...] = field(init=False, repr=False, compare=False)
    _known: dict[str, Classification] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        literals = tuple(_literals(rule.pattern) for rule in self.rules)
        object.__setattr__(self, "_literals", literals)
        object.__setattr__(self, "_known", {})

    def classify(self, name: str) -> Classification:
        """Return what the first matching rule says about a kernel's name, or `UNMATCHED`."""
        # Ranks have mostly the same names.
        if (known := self._known.get(name)) is None:
            known = self._known[name] = self._classified(name)
        return known

    def compute_category(self, name: str) -> str:
        """Return the category of a kernel that computes."""
        category = self.classify(name).category
        # Whether a kernel communicates is told alike by the rules of all engines.
        return UNMATCHED if category == COMMUNICATION else category

    def shown_classes(self, names: Iterable[tuple[str, str]]) -> dict[str, Classification]:
        """Return what is said of shown names, given with full ones; `MIXED` where these differ."""
        classes: dict[str, Classification] = {}
        for shown, full in names:
            here = self.classify(full)
            before = classes.setdefault(shown, here)
            if before != here:
                same = before.category == here.category
                classes[shown] = Classification(before.category if same else MIXED, None, None, ())
        return classes

    def _classified(self, name: str) -> Classification:
        readable = unmangled(name)
        text = name if readable == name else f"{readable} {name}"
        for rule, literals in zip(self.rules, self._literals, strict=True):
            # Most patterns are ruled out by characters that they need: trying all takes longer.
            needed = any(literal in text for literal in literals)
            if needed and re.search(rule.pattern, text):
                return Classification(rule.category, rule.id, rule.operation, rule.flags)
        return _NO_MATCH


@cache
def load_rules(engine: str) -> RuleSet:
    """Return the effective rules of an engine.

    Raises:
        UsageError: There is no such engine.
    """
    if engine not in ENGINES:
        raise UsageError(
            f"'{engine}' is not an engine with rules; use one of {', '.join(ENGINES)}."
        )
    entries = [entry for content in _with_extended(engine) for entry in content["rules"]]
    return RuleSet(
        engine,
        tuple(
            KernelRule(**{"operation": None, **entry, "flags": tuple(entry.get("flags", ()))})
            for entry in entries
        ),
    )


def rules_for(names: Iterable[str], engine: str = "auto") -> RuleSet:
    """Return the effective rules of an engine; `auto` is the one whose kernels these are."""
    return load_rules(detect_engine(names) if engine == "auto" else engine)


@cache
def load_categories() -> tuple[Category, ...]:
    """Return all categories that rules may give, in the order in which to show them."""
    return tuple(Category(**entry) for entry in data_file("kernel_rules/generic")["categories"])


def detect_engine(names: Iterable[str]) -> str:
    """Return the engine whose kernels these are, `generic` if nothing tells.

    Each mark that is found counts once, whatever the order and number of names. Marks of an engine
    outweigh those of the framework it runs on. Equal sums go to the first of `ENGINES`.

    Args:
        names: Kernel names of a whole run: all ranks, so that one rank's lack decides nothing.
    """
    return _engine_of(frozenset(names))


@lru_cache(maxsize=4)
def _engine_of(names: frozenset[str]) -> str:
    """Return the same; the recipes of a run ask for the same names again and again."""
    text = "\n".join(names)
    scores = {
        engine: sum(
            mark["weight"]
            for mark in data_file(f"kernel_rules/{engine}")["detect"]
            if re.search(mark["pattern"], text)
        )
        for engine in ENGINES
    }
    best = max(ENGINES, key=lambda engine: scores[engine])
    return best if scores[best] > 0 else "generic"


def _with_extended(engine: str) -> list[dict[str, Any]]:
    """Return an engine's file, then that of the engine it extends, and so on."""
    content = data_file(f"kernel_rules/{engine}")
    extended = content.get("extends")
    return [content, *(_with_extended(extended) if extended else [])]


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
