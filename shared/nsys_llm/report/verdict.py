"""What gates decided: the exit code, verdict.json for machines, and lines for the log of a CI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode
from nsys_llm.manifest.gates import FAIL, NOT_COMPARABLE, PROBABLY_FAIL, blocks
from nsys_llm.report.records import first_record, records
from nsys_llm.report.run import Run
from nsys_llm.report.run_record import write_json

VERDICT_NAME: Final = "verdict.json"

_FORMAT: Final = 1
_WORDS: Final = {
    ExitCode.DONE: "pass",
    ExitCode.GATE_FAILED: "fail",
    ExitCode.INCOMPLETE: "not_comparable",
}
_BLOCKING: Final = ("all", "totals", "per_step")


def gated(code: ExitCode, results: Iterable[str], gate_if: str) -> ExitCode:
    """Return how a run ends that would end with `code` but for its gates; `gate_if` as typed.

    What is incomplete or not comparable weighs more than what failed.
    """
    results = set(results)
    if code is not ExitCode.DONE:
        return code
    if NOT_COMPARABLE in results:
        return ExitCode.INCOMPLETE
    return ExitCode.GATE_FAILED if blocks(results, gate_if) else ExitCode.DONE


def decide(
    folder: Path,
    run: Run,
    tables: Mapping[str, pd.DataFrame],
    code: ExitCode,
    answer: str,
    console: Console,
) -> list[str]:
    """Write verdict.json, show each gate that did not pass, and return the lines of the summary."""
    record = _record(run.manifest.name, tables, code, answer)
    write_json(folder / VERDICT_NAME, record)
    words = {FAIL: "gate failed", NOT_COMPARABLE: "gate not decided",
             PROBABLY_FAIL: "gate probably failed"}  # fmt: skip
    for gate in record["gates"]:
        if (result := gate["result"]) in words:
            is_said = result == PROBABLY_FAIL and not blocks([result], run.options["gate_if"])
            (console.warn if is_said else console.error)(f"{words[result]}: {_gate_text(gate)}")
    lines = _lines(record)
    return ["", *lines] if lines else []


def _record(
    recipe: str, tables: Mapping[str, pd.DataFrame], code: ExitCode, answer: str
) -> dict[str, Any]:
    """Return what verdict.json holds; its keys are those that the manifest explains."""
    gates, comparability = tables["gates"], tables["comparability"]
    results, word = set(gates["result"]), _WORDS.get(code, "fault")
    if code is ExitCode.INCOMPLETE and NOT_COMPARABLE not in results:
        word = "incomplete"
    is_decided = code in (ExitCode.DONE, ExitCode.GATE_FAILED)
    if is_decided and {FAIL, PROBABLY_FAIL} & results == {PROBABLY_FAIL}:
        word = PROBABLY_FAIL
    return {
        "format": _FORMAT,
        "recipe": recipe,
        "version": __version__,
        "exit_code": int(code),
        "verdict": word if len(gates) else "none",
        "answer": answer,
        "speed": first_record(tables["verdict"]),
        "gates": records(gates),
        "not_comparable": records(comparability[comparability["status"].isin(_BLOCKING)]),
        # How many further runs of the baseline noise is known from.
        "noise_runs": int(tables["runs"]["tells_noise"].sum()),
    }


def _lines(record: Mapping[str, Any]) -> list[str]:
    if not record["gates"]:
        return []
    width = max(len(gate["result"]) for gate in record["gates"])
    lines = [f"  {gate['result']:{width}}  {_gate_text(gate)}" for gate in record["gates"]]
    counts = [
        f"{sum(gate['result'] == result for gate in record['gates'])} {result}"
        for result in dict.fromkeys(gate["result"] for gate in record["gates"])
    ]
    word, exits = record["verdict"], f"exit {record['exit_code']}"
    if word == PROBABLY_FAIL and not record["exit_code"]:
        lines.append("  --gate-if probably ends such a run with exit 1")
    ending = f"{word[:-1]}; {exits})" if word == PROBABLY_FAIL else f"{word} ({exits})"
    return [f"Gates: {ending}, {', '.join(counts)}", *lines]


def _gate_text(gate: Mapping[str, Any]) -> str:
    if gate["told"] is None:
        return f"{gate['gate']}: {gate['reason']}"
    return f"{gate['gate']}: {gate['told']}" + (f" ({gate['reason']})" if gate["reason"] else "")
