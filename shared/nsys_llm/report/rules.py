"""Rules: what a finding says in every run, and the one door through which findings are made.

Each recipe has its rules in `findings/texts.py`, one row a rule, and docs/findings.md is made from
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from nsys_llm.core.errors import ManifestError
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import PERFORMANCE, Evidence, Finding
from nsys_llm.report.price import Price
from nsys_llm.report.templates import filled, unit_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Source of a threshold that nobody else has published.
OURS: Final = "this project"
#: Source of thresholds that its heuristics.py or report.py has.
EXPLAINER: Final = "nsys-llm-explainer 0.1.0"
#: How precisely a rule says why: of all of a class, of a class of the path or of one cause, of a
#: rank, of a kernel of a rank, of when it is, of steps with some batches.
OF_ALL, OF_CLASS, OF_RANK, OF_KERNEL, OF_TIME, OF_BATCH = range(6)
#: What to record is as the rule says.
OF_RULE: Final = "of the rule"
#: Where the first sentence of a template ends.
_SENTENCE_END: Final = re.compile(r"(?<=\.)(?=[ \[])(?![^\[\]]*\])|(?=\[\. )")


class About(TypedDict, total=False):
    """What a finding is about: fields of `Finding` that no rule has."""

    cause: Cause | None
    change: Change | None
    price: Price | None
    evidence: tuple[Evidence, ...]
    numbers: Mapping[str, float]
    ranks: tuple[int, ...]
    rank: int | None
    device_id: int | None
    name: str | None
    window_ns: tuple[int, int] | None
    steps: tuple[int, int] | None
    ncu: str | None
    impact_ns: int


@dataclass(frozen=True)
class Case:
    """What a rule says in a special case; None for what it says otherwise."""

    title: str | None = None
    recommendation: str | None = None
    scope: str | None = None
    details: str | None = None


@dataclass(frozen=True)
class Rule:
    """What all findings of one rule have in common.

    Title, details, recommendation and `window_shows` are templates, see
    `nsys_llm.report.templates`. Their fields are those that a finding is given, then columns of its
    evidence (of several rows those that are alike), then what else it is about, `{rank}`, and
    `{others_n}`, how many ranks beside the first it is true of.

    Attributes:
        id: Name of the rule, the same in every run: `slow_gpu`.
        scope: What its findings are about, one of `SCOPES`.
        title: The finding in one line, without a full stop.
        threshold: When it fires and with which severity, in words with numbers.
        source: Where the numbers of the threshold come from.
        recommendation: What to do next, in one or two sentences.
        tables: Tables in which its numbers stand.
        details: The numbers, in sentences; empty where findings write their own.
        kind: What its findings tell, one of `KINDS`.
        record: What to record next time to know more: flags of `nsys profile`, and nothing else,
            so that they can be pasted.
        window_shows: What there is to see in the window of a finding, in few words.
        cases: What it says in special cases, by their names.
        specificity: How precisely it says why: `OF_ALL` to `OF_BATCH`. Of
            findings of one opportunity the highest speaks.
    """

    id: str
    scope: str
    title: str
    threshold: str
    source: str
    recommendation: str
    tables: tuple[str, ...]
    details: str = ""
    kind: str = PERFORMANCE
    record: str | None = None
    window_shows: str | None = None
    cases: Mapping[str, Case] = field(default_factory=dict)
    specificity: int = 0

    def finding(
        self,
        *,
        details: str = "",
        fields: Mapping[str, Any] = MappingProxyType({}),
        case: str | None = None,
        kind: str | None = None,
        tables: tuple[str, ...] = (),
        record: str | None = OF_RULE,
        **about: Unpack[About],
    ) -> Finding:
        """Return a finding of this rule.

        Args:
            details: Sentences, if the rule has no template of them.
            fields: Numbers, names and words of the templates that are in no evidence. Numbers whose
                names end with a unit are `Finding.numbers`, beside those that `about` has.
            case: One of `cases`, where it is one.
            kind: One of `KINDS`, if not that of the rule.
            tables: Where the numbers stand, if not in those of the rule.
            record: Flags, or None, if not those of the rule.

        Raises:
            ManifestError: The rule has no such case, or names a field that is not given.
        """
        if case is not None and case not in self.cases:
            raise ManifestError(f"rule {self.id}: there is no case {case}.")
        said = Case() if case is None else self.cases[case]
        others_n = max(len(about.get("ranks", ())) - 1, 0)
        subjects = {name: about.get(name) for name in ("rank", "device_id", "name")}
        counts = {"others_n": others_n, "ranks_n": others_n + 1}
        evident = {**counts, **subjects, **_evident(about.get("evidence", ()))}
        # Numbers that are read first are those of the rows that the title names.
        shown = evident | {name: word for name, word in fields.items() if not _is_number(word)}
        known = {**about, **evident, **fields}
        first, rest = _first_sentence(said.details or self.details)
        shows = self.window_shows if about.get("window_ns") is not None else None
        numbers = {name: n for name, n in fields.items() if unit_of(name) and _is_number(n)}
        about["numbers"] = {**numbers, **about.get("numbers", {})}
        return Finding(
            rule=self.id,
            kind=kind or self.kind,
            specificity=self.specificity,
            scope=said.scope or self.scope,
            title=self._filled(said.title or self.title, shown),
            details=details or self._filled(first, shown) + self._filled(rest, known),
            tables=tables or self.tables,
            recommendation=self._filled(said.recommendation or self.recommendation, known),
            window_shows=shows and self._filled(shows, known),
            record=self.record if record == OF_RULE else record,
            **about,
        )

    def _filled(self, template: str, fields: Mapping[str, object]) -> str:
        try:
            return filled(template, fields)
        except KeyError as error:
            raise ManifestError(f"rule {self.id}: field {error} is not given.") from error


def _is_number(value: object) -> bool:
    return not (value is None or isinstance(value, str))


def _first_sentence(details: str) -> tuple[str, str]:
    """Return the first sentence of a template, and what follows; a part in brackets is whole."""
    end = _SENTENCE_END.search(details)
    return (details, "") if end is None else (details[: end.start()], details[end.start() :])


def _evident(evidence: tuple[Evidence, ...]) -> dict[str, object]:
    """Return the columns of evidence that have one value, and those that choose its rows."""
    values: dict[str, set[object]] = {}
    for name, value in (
        pair for cell in evidence for pair in (*cell.where, (cell.field, cell.value))
    ):
        if not isinstance(value, tuple):
            values.setdefault(name, set()).add(value)
    return {name: some.pop() for name, some in values.items() if len(some) == 1}


def rules_by_id(*rules: Rule) -> Mapping[str, Rule]:
    """Return rules by their ids.

    Raises:
        ManifestError: Two have the same one.
    """
    by_id = {rule.id: rule for rule in rules}
    if len(by_id) < len(rules):
        raise ManifestError("two rules have the same id.")
    return MappingProxyType(by_id)
