"""`nsys-llm trend FOLDER...`: results of earlier runs as one table, and a verdict on the newest.

Read are report.json and ranks.parquet of results of llm_overview, and no profiles. Step time is
the mean of the steps of each GPU, then of the GPUs. The band of a run is the 95 % prediction
interval of one more value after those of the last runs before it that are comparable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pandas as pd
import pyarrow.parquet as pq

from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, OutputError, UsageError
from nsys_llm.manifest.declared import Column, Metric, TableWrite
from nsys_llm.manifest.gates import (
    FAIL,
    NOT_COMPARABLE,
    PASS,
    PROBABLY_FAIL,
    Gate,
    Judgement,
    gate_texts,
    judge,
    parse_gates,
)
from nsys_llm.numeric.two_samples import LEAST_RUNS, prediction_half
from nsys_llm.report.findings import PERFORMANCE
from nsys_llm.report.outputs import arrow_table, declared_frame
from nsys_llm.report.run_record import REPORT_NAME, VERDICT_NAME, gated, write_json
from nsys_llm.run.api import Result, load
from nsys_llm.run.guard import RunOutcome
from nsys_llm.run.publish import OutputFolder
from nsys_llm.run.show import aligned
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES
from nsys_llm.view.results import CONFIG, Results
from nsys_llm.view.text import cleaned, format_change, format_ns, shortened

_RECIPE: Final = "llm_overview"
#: Words of the verdict, as trace_diff has them.
FASTER, SLOWER, SAME, UNCERTAIN = "FASTER", "SLOWER", "SAME", "UNCERTAIN"
#: A smaller change of a step is none, however quiet the runs before (as in trace_diff), in percent.
_LEAST_PCT: Final = 1.0
#: Options that choose another part of a run.
_SELECTING: Final = (
    *("filter_time", "filter_nvtx", "filter_projected_nvtx", "step", "step_kernel", "steps"),
    *("skip_warmup", "phase", "device", "ranks"),
)
_MOST_NS: Final = 1 << 63
_TITLE_LENGTH: Final = 56
_NAME_LENGTH: Final = 24

_TIMES: Final = {"step_ns": "Mean step time of all GPUs; the span for runs without steps."} | {
    f"{name}_ns": f"Part of that in class {name} of the wall split; the classes add up to it."
    for name in WALL_CLASSES
}
METRICS: Final = tuple(
    Metric(name.removesuffix("_ns"), "ns", meaning) for name, meaning in _TIMES.items()
)


_column: Final = partial(Column, nullable=True)
TABLE: Final = TableWrite(
    "trend",
    "one run, the newest last",
    (
        Column("run", "string", "Name of its folder.", False),
        _column("version", "string", "Package version that wrote the result."),
        _column("not_comparable", "string", "Why it is not compared with the newest."),
        _column("unit", "string", "What a step is; run if no steps are known."),
        _column("gpus_n", "int64", "GPUs.", unit="count"),
        _column("steps_n", "int64", "Full steps of all GPUs.", unit="count"),
        *(_column(name, "float64", text, unit="ns") for name, text in _TIMES.items()),
        _column("first_finding", "string", "Title of the first finding on time."),
        _column("first_gain_pct", "float64", "What it could gain.", unit="%"),
        _column("steps", "string", "Steps that it concerns. Null for all."),
        _column("band_n", "int64", "Earlier runs in its noise band.", unit="count"),
        _column("mean_ns", "float64", "Mean step of those.", unit="ns"),
        _column(
            "band_low_ns", "float64", "95 % of further runs like those are above this.", unit="ns"
        ),
        _column(
            "band_high_ns",
            "float64",
            "And below this. Null with fewer than 3 earlier runs.",
            unit="ns",
        ),
        _column("change_pct", "float64", "How much longer its step is than mean_ns.", unit="%"),
        _column("verdict", "string", "FASTER, SLOWER, SAME, or UNCERTAIN without a band."),
    ),
)


@dataclass(frozen=True)
class Band:
    """What runs before tell of the next one, in ns; `half_ns` is None with fewer than 3 of them."""

    runs_n: int
    mean_ns: float
    half_ns: float | None

    @classmethod
    def of(cls, values_ns: Sequence[float]) -> Band | None:
        """Return the band after some values; None without any."""
        n = len(values_ns)
        if not n:
            return None
        return cls(n, fmean(values_ns), prediction_half(values_ns))

    def verdict(self, value_ns: float) -> str:
        """Return the word on a run that takes so long."""
        change_ns = value_ns - self.mean_ns
        if self.half_ns is None:
            return UNCERTAIN
        if abs(change_ns) <= max(self.half_ns, _LEAST_PCT / 100 * self.mean_ns):
            return SAME
        return SLOWER if change_ns > 0 else FASTER


def trend(given: Mapping[str, Any], console: Console) -> RunOutcome:
    """Print the table and the verdict; with `output` write them, and the figure, to a new folder.

    Raises:
        UsageError: A folder is no result of an overview, or fewer than two are given.
        OutputError: A result is damaged, or the folder cannot be written.
    """
    texts = [text for word in given["gate"] for text in gate_texts(word)]
    gates = parse_gates(texts, METRICS)
    if given["last"] < 1:
        raise UsageError("--last: at least 1.")
    folders = [folder for text in given["folders"] for folder in _results_in(Path(text))]
    if len(folders) < 2:
        raise UsageError("trend compares two results or more; give their folders, oldest first.")
    results = [load(folder) for folder in folders]
    table = declared_frame(TABLE, _table(results, given["last"]))
    judgements = [(gate, _judged(table, gate, given["last"])) for gate in gates]
    is_whole = results[-1].report["exit_code"] != ExitCode.INCOMPLETE
    code = ExitCode.DONE if is_whole else ExitCode.INCOMPLETE
    code = gated(code, [told.result for _, told in judgements], given["gate_if"])
    verdict = verdict_line(table)
    gate_lines = [
        f"  {told.result}  {gate.text}{f': {told.reason}' if told.reason else ''}"
        for gate, told in judgements
    ]
    console.show(*_screen(table), "", verdict, *gate_lines)
    folder = None
    if given["output"] is not None:
        record = {
            "exit_code": int(code),
            "answer": verdict,
            "gates": [
                {"gate": gate.text, "result": told.result, "reason": told.reason}
                for gate, told in judgements
            ],
        }
        folder = write_trend(given["output"], TABLE, table, record, list(_TIMES)[1:], console)
        console.show("", "Generated:", f"    {folder}")
    return RunOutcome(code, None)


def _results_in(folder: Path) -> list[Path]:
    """Return the folder of a result, or the results in a folder of results by name."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder.")
    if (folder / REPORT_NAME).exists():
        return [folder]
    inside = sorted(entry.parent for entry in folder.glob(f"*/{REPORT_NAME}"))
    if not inside:
        raise UsageError(f"{folder}: no result of a recipe, and none in it ({REPORT_NAME}).")
    return inside


def _table(results: Sequence[Result], last_n: int) -> dict[str, list[Any]]:
    """Return the columns of the table."""
    rows, kinds = zip(*map(_read, results), strict=True)
    for row, kind, result in zip(rows, kinds, results, strict=True):
        row["not_comparable"] = _difference(kind, kinds[-1], result)
    alike: list[float] = []
    for row in rows:
        band = Band.of(alike[-last_n:]) if row["not_comparable"] is None else None
        row |= _against(band, row["step_ns"])
        if row["not_comparable"] is None:
            alike.append(row["step_ns"])
    return {column.name: [row[column.name] for row in rows] for column in TABLE.columns}


def _read(result: Result) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a result says by itself, and of what kind it is; see `trend`."""
    try:
        return _row(result), _kind(result)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise OutputError(f"{result.folder}: damaged; run the recipe again.") from error


def _row(result: Result) -> dict[str, Any]:
    if result.recipe != _RECIPE:
        raise UsageError(f"{result.folder}: of {result.recipe}; trend takes results of {_RECIPE}.")
    ranks = result.tables["ranks"]
    if "fused_ns" not in ranks:
        # Results of older versions do not have it.
        ranks = ranks.assign(fused_ns=0)
    classes = {f"{name}_ns": _sum_ns(ranks, f"{name}_ns") for name in WALL_CLASSES}
    span_ns = _sum_ns(ranks, "span_ns")
    if not span_ns:
        raise UsageError(f"{result.folder}: no GPU work in it.")
    has_steps = bool(ranks["step_ns"].notna().all())
    step_ns = _sum_ns(ranks, "step_ns" if has_steps else "span_ns") / len(ranks)
    if step_ns < 1:
        raise ValueError("steps that take no time")
    first = next((item for item in result.findings if item["kind"] == PERFORMANCE), None)
    return {
        "run": cleaned(result.folder.resolve().name),
        "version": str(result.report["version"]),
        "unit": str(ranks["step_unit"].iloc[0]) if has_steps else "run",
        "gpus_n": len(ranks),
        "steps_n": int(ranks["steps_n"].sum()) if has_steps else None,
        "step_ns": step_ns,
        **{name: time_ns / span_ns * step_ns for name, time_ns in classes.items()},
        "first_finding": None if first is None else cleaned(first["title"]),
        "first_gain_pct": None if first is None else first["gain_pct"],
        # Results of earlier versions do not have it.
        "steps": None if first is None else first.get("steps"),
    }


def _sum_ns(ranks: pd.DataFrame, column: str) -> float:
    """Return a time of all GPUs in ns; a ValueError where one is negative, or beyond any clock."""
    times_ns = ranks[column].astype(float)
    if not times_ns.between(0, _MOST_NS).all():
        raise ValueError(f"{column}: no time")
    return float(times_ns.sum())


def _kind(result: Result) -> dict[str, Any]:
    """Return what has to be the same in runs that are compared, by its name."""
    ranks, options = result.tables["ranks"], result.report["options"]
    of_ranks = result.report["ranks"]
    return {
        "GPUs": sorted(gpu for rank in of_ranks for gpu in rank["gpus"]),
        "ranks": len(of_ranks),
        "what a step is": (
            sorted(set(ranks["step_name"].fillna("").tolist())),
            bool(ranks["step_ns"].notna().all()),
        ),
        "tracing of CUDA graphs": sorted({str(rank["cuda_graph_trace"]) for rank in of_ranks}),
        "filters": {name: options.get(name) for name in _SELECTING},
    }


def _difference(kind: Mapping[str, Any], newest: Mapping[str, Any], result: Result) -> str | None:
    if result.report["exit_code"] == ExitCode.INCOMPLETE:
        return "incomplete"
    other = [name for name, value in kind.items() if value != newest[name]]
    return f"other {', '.join(other)}" if other else None


def _against(band: Band | None, step_ns: float) -> dict[str, Any]:
    if band is None:
        names = ("band_n", "mean_ns", "band_low_ns", "band_high_ns", "change_pct", "verdict")
        return dict.fromkeys(names)
    half_ns = band.half_ns
    return {
        "band_n": band.runs_n,
        "mean_ns": band.mean_ns,
        "band_low_ns": None if half_ns is None else band.mean_ns - half_ns,
        "band_high_ns": None if half_ns is None else band.mean_ns + half_ns,
        "change_pct": 100.0 * (step_ns / band.mean_ns - 1.0),
        "verdict": band.verdict(step_ns),
    }


def _judged(table: pd.DataFrame, gate: Gate, last_n: int) -> Judgement:
    """Return what a gate says of the newest run; a change within the band of its metric passes."""
    rows = table[table["not_comparable"].isna()]
    values_ns = rows[f"{gate.metric}_ns"].tolist()
    newest = table.iloc[-1]
    band = Band.of(values_ns[:-1][-last_n:]) if pd.isna(newest["not_comparable"]) else None
    if band is None:
        return Judgement(NOT_COMPARABLE, None, "no earlier run is comparable with the newest")
    noise = None if band.half_ns is None else Fraction(band.half_ns)
    judgement = judge(gate, Fraction(band.mean_ns), Fraction(values_ns[-1]), noise)
    if judgement.result == PASS and judgement.reason:
        return Judgement(PASS, judgement.allowed, "above the limit, but within the noise band")
    if judgement.result == FAIL:
        reason = f"{format_ns(band.mean_ns)} -> {format_ns(values_ns[-1])}"
        if band.half_ns is None:
            few = f"{reason}; noise needs {LEAST_RUNS} runs before it"
            return Judgement(PROBABLY_FAIL, judgement.allowed, few)
        return Judgement(FAIL, judgement.allowed, reason)
    return judgement


def verdict_line(table: pd.DataFrame) -> str:
    """Return the verdict on the newest run, and which class of it changed most."""
    rows = table[table["not_comparable"].isna()]
    newest = table.iloc[-1]
    if pd.isna(newest["mean_ns"]):
        return f"NOT COMPARABLE: no earlier run is like {newest['run']}."
    unit, runs_n = newest["unit"], int(newest["band_n"])
    change = f"{format_ns(newest['mean_ns'])} -> {format_ns(newest['step_ns'])} a {unit}"
    if pd.isna(newest["band_low_ns"]):
        band = f"a noise band needs {LEAST_RUNS} comparable runs before it, here are {runs_n}"
    else:
        low, high = (format_ns(newest[name]) for name in ("band_low_ns", "band_high_ns"))
        band = f"noise band of the last {runs_n}: {low} to {high}"
    parts_ns = {
        name: newest[f"{name}_ns"] - rows[f"{name}_ns"].iloc[:-1].tail(runs_n).mean()
        for name in WALL_CLASSES
    }
    most = max(parts_ns, key=lambda name: abs(parts_ns[name]))
    moved = f"{'+' if parts_ns[most] >= 0 else '-'}{format_ns(abs(parts_ns[most]))}"
    is_part = newest["verdict"] == SLOWER and pd.notna(newest["steps"])
    since = f" {newest['first_finding']}." if is_part else ""
    return (
        f"{newest['verdict']}: {newest['run']}, {change} ({format_change(newest['change_pct'])}; "
        f"{band}). Most of it: {most} {moved}.{since}"
    )


def _screen(table: pd.DataFrame) -> list[str]:
    """Return a line a run: step, classes that any run has, verdict, first finding."""
    shown = [name for name in _TIMES if (table[name] >= 0.005 * table["step_ns"]).any()]
    heads = ["run", *(name.removesuffix("_ns") for name in shown), "change", "", "first finding"]
    rows = [
        [
            shortened(row["run"], _NAME_LENGTH),
            *(format_ns(row[name]) for name in shown),
            "" if pd.isna(row["change_pct"]) else format_change(row["change_pct"]),
            next(text for text in (row["not_comparable"], row["verdict"], "") if pd.notna(text)),
            "" if pd.isna(row["first_finding"]) else shortened(row["first_finding"], _TITLE_LENGTH),
        ]
        for row in table.to_dict("records")
    ]
    return aligned([heads, *rows])


FIGURE_NAME: Final = "trend.html"


def write_trend(
    output: str,
    declared: TableWrite,
    table: pd.DataFrame,
    verdict: Mapping[str, Any],
    parts: Sequence[str],
    console: Console,
) -> Path:
    """Write a new folder, whole or not at all, and return it; the figure stacks `parts`.

    Without plotly there is no figure, as the console says.

    Raises:
        OutputError: The folder exists, or cannot be written.
    """
    data = arrow_table(declared, table)
    results = Results(None, {declared.file: data})
    title = f"A step of each run. {str(verdict['answer']).partition(' (')[0]}"
    chart = results.chart(declared.file, kind="parts", title=title, y="run", parts=[*parts])
    with OutputFolder(output, declared.file, replace=None) as folder:
        with folder.writing():
            pq.write_table(data, folder.path / f"{declared.file}.parquet")
            write_json(folder.path / VERDICT_NAME, verdict)
            try:
                page = chart.figure().to_html(include_plotlyjs=True, config=CONFIG)
                (folder.path / FIGURE_NAME).write_text(page, encoding="utf-8")
            except ImportError:
                console.warn(f"no {FIGURE_NAME} was made: pip install plotly.")
        return folder.publish(None)
