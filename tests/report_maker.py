"""A report on one small table, for tests of what renders reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsys_llm.manifest.declared import Column, Section, TableWrite
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.report.findings import Finding
from nsys_llm.report.outputs import declared_frame, write_tables
from nsys_llm.report.price import Price
from nsys_llm.report.report import Report
from nsys_llm.view.results import Results

COLUMNS = (
    Column("name", "string", "Name.", nullable=True),
    Column("category", "string", "Category.", nullable=False),
    Column("launches_n", "int64", "Launches.", nullable=True, unit="count"),
    Column("busy_ns", "int64", "Time.", nullable=False, unit="ns"),
    Column("p99_ns", "float64", "Tail.", nullable=True, unit="ns"),
)
KERNELS = TableWrite("kernels", "one kernel", COLUMNS)
SECTION = Section(
    table="kernels",
    title="Top kernels",
    shows="Every kernel.",
    columns=tuple(column.name for column in COLUMNS),
    rows_n=3,
    lead=True,
    summary=tuple(column.name for column in COLUMNS),
)
#: Of a second, by severity.
_ABOUT_NS = {"high": 200_000_000, "medium": 50_000_000, "low": 20_000_000, "tail": 5_000_000}


def price_of(severity: str) -> Price:
    gain_ns, rare_pct = _ABOUT_NS[severity], 50.0 if severity == "tail" else None
    return Price(10**9, ("compute",), None, gain_ns, "usual", tail_pct=rare_pct)


FINDING = Finding(
    price=price_of("high"),
    rule="dominant_kernel",
    scope="kernel",
    title="`gemm` takes 60.0 % of the kernel time",
    details="3 s of 5 s.",
    tables=("kernels", "devices"),
    recommendation="Look at its launches.",
)


def made_results(
    folder: Path, rows: Sequence[Sequence[Any]], sections: Sequence[Section] = (SECTION,)
) -> tuple[Manifest, Results]:
    """Write the table, and return it with a manifest that shows it."""
    manifest = Manifest(
        name="made",
        title="Made hotspots",
        question="Where does it go?",
        class_name="Made",
        description="",
        type=None,
        tags=(),
        options=(),
        reads=(),
        writes=(KERNELS,),
        sections=tuple(sections),
    )
    values = {column.name: [row[i] for row in rows] for i, column in enumerate(COLUMNS)}
    frame = declared_frame(KERNELS, values)
    facts = {"rows": len(rows), "reason": "nothing ran", "record": "--trace=cuda"}
    (folder / "report.json").write_text(json.dumps({"tables": {"kernels": facts}}), "utf-8")
    return manifest, Results(folder, write_tables(folder, manifest, {"kernels": frame}, csv=False))


def made_report(manifest: Manifest, *findings: Finding, **others: Any) -> Report:
    plain = Report(
        manifest=manifest,
        answer="It goes to `gemm` and `norm`.",
        findings=findings,
        facts=(("ranks", "2 with GPU work"), ("hosts", "`node1`"), ("GPUs", "`H100`")),
        caveats=(),
        unrecorded=(),
        sections=manifest.sections,
    )
    return replace(plain, **others)
