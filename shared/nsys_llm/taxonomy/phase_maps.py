"""Which phase of a job an NVTX range marks, by its name. Maps are ordered: first match wins.

A map is a JSON object {phase: pattern | [patterns]}; a pattern is plain text, found anywhere in
any case, or `re:` and a regular expression. The built-in maps, `data/phase_maps/<engine>.json`, are
one map in the order of `BUILT_IN`: engines mark their phases with names that no other uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.core.patterns import NamePattern, parse_pattern, require_text
from nsys_llm.taxonomy.data_files import data_file

#: Engines with a map, in the order in which they are tried.
BUILT_IN: Final = ("vllm", "sglang", "trtllm", "dynamo", "pytorch")

#: Phases that a whole batch of a server may be.
DECODE, MIXED, PREFILL = "decode", "mixed", "prefill"
OF_BATCHES: Final = (DECODE, MIXED, PREFILL)

#: What stands for GPU work in no phase: in ranges of no phase, in no range, without an API call.
UNMAPPED: Final = "unmapped"
NO_RANGE: Final = "no_range"
NO_API: Final = "no_api"
#: A map as an option holds it: phase and pattern, in order.
PhasePairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PhaseMap:
    """A map; `rules` are patterns with the position of their phase, in the order of trying."""

    phases: tuple[str, ...]
    rules: tuple[tuple[NamePattern, int], ...]

    def phase_of(self, name: str) -> int:
        """Return the position of a range's phase in `phases`, -1 for none."""
        for pattern, phase in self.rules:
            if pattern.matches(name):
                return phase
        return -1

    def codes(self, names: Iterable[str]) -> list[int]:
        """Return `phase_of` of each name: numpy would take --help half of its time."""
        every = list(names)
        known = {name: self.phase_of(name) for name in set(every)}
        return [known[name] for name in every]


@cache
def phase_map(pairs: PhasePairs | None) -> PhaseMap:
    """Return the map of an option; None: the built-in ones."""
    if pairs is None:
        pairs = built_in_pairs(BUILT_IN)
    phases = tuple(dict.fromkeys(phase for phase, _ in pairs))
    ours = set(built_in_pairs(BUILT_IN))
    return PhaseMap(
        phases,
        tuple((parse_pattern(pair[1], ours=pair in ours), phases.index(pair[0])) for pair in pairs),
    )


def built_in_pairs(engines: Sequence[str]) -> PhasePairs:
    """Return the built-in maps of some engines, one behind the other."""
    return tuple(
        pair
        for engine in engines
        for pair in _pairs(data_file(f"phase_maps/{engine}")["phases"], engine)
    )


def read_phase_map(text: str) -> PhasePairs:
    """Return the map that an option names: a file, or engines of `BUILT_IN` with commas between.

    Raises:
        UsageError: The file cannot be read, is no such object, or a pattern means nothing.
    """
    engines = [word.strip() for word in text.split(",")]
    if all(engine in BUILT_IN for engine in engines):
        return built_in_pairs(engines)
    try:
        content = read_option_file(text)
    except UsageError as error:
        said = error.message.rstrip(".")
        raise UsageError(f"{said}; give a JSON file, or some of {', '.join(BUILT_IN)}.") from error
    try:
        phases = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{text}: is no JSON ({error}).") from error
    return _pairs(phases, text)


def _pairs(phases: Any, where: str) -> PhasePairs:
    if not isinstance(phases, dict) or not phases:
        raise UsageError(
            f'{where}: must be a JSON object, like {{"decode": ["decode", "re:^gen_"]}}, of phases '
            "and the patterns of their ranges."
        )
    pairs = []
    require_text(where, "".join(phases))
    for phase, given in phases.items():
        patterns = given if isinstance(given, list) else [given]
        if not patterns or not all(isinstance(text, str) for text in patterns):
            raise UsageError(f"{where}: phase '{phase}' needs a pattern, or a list of patterns.")
        if phase.strip() in ("", UNMAPPED, NO_RANGE, NO_API):
            raise UsageError(f"{where}: a phase cannot be called '{phase}'; choose another name.")
        for text in patterns:
            try:
                parse_pattern(text)
            except UsageError as error:
                raise UsageError(f"{where}: phase '{phase}': {error.message}") from error
            pairs.append((phase, text))
    return tuple(pairs)
