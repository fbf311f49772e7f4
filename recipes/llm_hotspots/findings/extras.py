"""What few captures hold beside operations: memory, whole graphs, metrics, variables; its findings.

Each rule on memory speaks once, of the worst rank, and says how many ranks are like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pandas as pd

from nsys_llm.facts.device.gpus import BY_ORDER
from nsys_llm.report.findings import CAPTURE, UNRECORDED_WORK, Finding, cells, claim
from nsys_llm.report.records import Record, Tables, first_record, percent, records
from nsys_llm.report.rules import OURS, Rule, rules_by_id
from nsys_llm.report.walls import span_of
from nsys_llm.view.text import format_bytes, quoted

#: Share of the windows from which graphs that were traced whole hide what takes the time.
WHOLE_GRAPHS_PCT: Final = 10.0
#: vLLM and SGLang reserve 88 to 92 % by default (gpu_memory_utilization, mem_fraction_static), so
#: that much is intended; from here on less than a twentieth is left for everything else.
NEAR_FULL_PCT: Final = 95.0
#: Growth of memory in use, quarter by quarter, that is reported. PyTorch's allocator takes blocks
#: of 2 and 20 MiB, so a single one is no growth.
GROWTH_BYTES: Final = 64 << 20
GROWTH_PCT: Final = 2.0
#: SMs are active so many points of the time more than recorded operations take.
UNRECORDED_PCT: Final = 50.0

#: Time shown around an instant.
_AROUND_NS: Final = 1_000_000
_MOST_NAMED: Final = 6
_KEYS: Final = ("rank", "device_id", "kind")
_REPLAYS: Final = ("replays_n", "p50_ns", "between_p50_ns", "min_ns", "max_ns")
_QUARTERS: Final = ("quarter_bytes", "half_bytes", "three_quarter_bytes", "end_bytes")
_METRIC: Final = ("rank", "device_id", "scope", "metric", "gpu_id", "gpu_source")
#: Whether any warp was on an SM, as releases up to 2022.4 and later ones call it.
_ACTIVE: Final = r"SMs? Active\b"
#: Sentences that several rules share.
_OTHERS: Final = "[ {others_n:other rank} affected; rank {rank} is the worst.]"
_ALLOCATED_BY: Final = "[ {from_api_bytes} of it came from {api:quoted}.]"

_remark: Final = partial(Rule, kind=CAPTURE, source=OURS)

EXTRA_RULES: Final = rules_by_id(
    Rule(
        "memory_near_full",
        kind=CAPTURE,
        scope="device",
        title="Rank {rank} fills {peak_pct} of its GPU's memory",
        details="At its peak this process had {peak_bytes} of {total_bytes} allocated. "
        "That leaves {left_bytes} for the CUDA context, libraries and other processes, which are "
        "not counted."
        f"{_ALLOCATED_BY}{_OTHERS}",
        threshold=f"from {NEAR_FULL_PCT:g} % of the GPU's memory at the peak",
        source="above the 88 to 92 % that vLLM and SGLang reserve by default",
        recommendation="Leave more room: a smaller key-value cache "
        "(gpu_memory_utilization in vLLM, mem_fraction_static in SGLang, free_gpu_memory_fraction "
        "in TensorRT-LLM; torch.cuda.memory_summary() lists what PyTorch caches), smaller batches, "
        "or activation checkpointing in training. A peak like this turns the next longer sequence "
        "into an out-of-memory error or into allocator retries.",
        tables=("memory_watermarks", "memory_allocators", "memory"),
    ),
    _remark(
        "memory_growth",
        scope="device",
        title="Memory in use on rank {rank} grows in every quarter of the run",
        details="In use at the end of each quarter of the GPU work: {quarter_bytes}, {half_bytes}, "
        "{three_quarter_bytes}, {end_bytes} ({kind} memory). In all {grown_bytes} more."
        f"{_ALLOCATED_BY}{_OTHERS}",
        threshold=f"more in use at the end of every quarter, {format_bytes(GROWTH_BYTES)} in all "
        f"and {GROWTH_PCT:g} % after the first",
        recommendation="Distinguish warm-up from a leak: capture later and longer. If memory still "
        "grows, look for tensors kept in lists, shapes that never repeat (each a new allocation or "
        "library workspace), and CUDA graphs captured again. In PyTorch, "
        "torch.cuda.memory._record_memory_history names the lines.",
        record="--cuda-memory-usage=true --cudabacktrace=memory:0 --sample=process-tree",
        tables=("memory_watermarks", "memory_allocators", "memory"),
    ),
    _remark(
        "whole_graphs",
        scope="run",
        title="{replays_n:replay} of a whole CUDA graph {replays_n:=takes|take} {p50_ns} each"
        "[, {between_p50_ns} apart]: --cuda-graph-trace=node shows what is "
        "in them",
        details="{graphs_n:whole graph} {graphs_n:=takes|take} {share_pct} of the time; replays of "
        "this one {min_ns} to {max_ns}.",
        threshold=f"CUDA graphs traced whole take at least {WHOLE_GRAPHS_PCT:g} % of the devices' "
        "windows",
        recommendation="Compare replays only by their length: which kernels take the time is "
        "unknown. Trace a few replays node by node, which lengthens them.",
        tables=("cuda_graphs", "devices"),
        record="--cuda-graph-trace=node",
    ),
    _remark(
        "stored_secrets",
        scope="run",
        title="The profiles contain likely secrets",
        details="In {profiles_n:profile} of {all_n}: {shown}. A "
        "profile stores the whole environment of the profiled command, in two places[, and in its "
        "strings that of {environments_n:process|processes} on the machine]. These results contain "
        "only the names.",
        threshold="a variable in the stored environment whose name suggests a secret",
        recommendation="Share these results instead of the profiles, or profile again without "
        "these variables (`env -u NAME nsys profile ...`). Rotate every secret in a profile that "
        "you have shared.",
        tables=("files",),
    ),
    _remark(
        UNRECORDED_WORK,
        scope="device",
        title="Most GPU work is not recorded: SMs are active {mean_pct} of the time",
        details="Recorded kernels, copies and fills take {recorded_pct} of it. The bottleneck is "
        "unknown, and time that looks idle may not be.",
        threshold=f"SMs active for {UNRECORDED_PCT:g} points more of the time than the recorded "
        "operations of all ranks on the GPU",
        recommendation="Another process uses the GPU, or its kernels were not traced: profile all "
        "of its processes, from before they start to use it.",
        record="--trace=cuda,nvtx --trace-fork-before-exec=true",
        tables=("gpu_metrics", "coverage"),
    ),
)


def measured_findings(tables: Tables) -> list[Finding]:
    """Return the findings on memory_watermarks and memory_allocators."""
    marks = tables["memory_watermarks"]
    full = marks[marks["peak_pct"].fillna(0.0) >= NEAR_FULL_PCT]
    grown = marks["end_bytes"] - marks["quarter_bytes"]
    rises = (marks[[*_QUARTERS]].diff(axis=1).iloc[:, 1:] > 0).all(axis=1) & (grown >= GROWTH_BYTES)
    rises &= (marks["kind"] != "host") & (100 * grown >= GROWTH_PCT * marks["quarter_bytes"])
    growing = marks[rises].assign(grown_bytes=grown[rises])
    peak = ("peak_pct", "peak_bytes", "total_bytes")
    return [
        *_on_memory(tables, "memory_near_full", full, "peak_pct", "peak_bytes", peak),
        *_on_memory(tables, "memory_growth", growing, "grown_bytes", "end_bytes", _QUARTERS),
    ]


def _on_memory(
    tables: Tables, rule: str, rows: pd.DataFrame, by: str, size: str, said: Sequence[str]
) -> Iterator[Finding]:
    """Yield the finding on the worst of some rows, if there are any."""
    if rows.empty:
        return
    worst = first_record(rows.sort_values(by, ascending=False, kind="stable"))
    peak_ns = int(worst["peak_ns"])
    around = max(peak_ns - _AROUND_NS, 0), peak_ns + _AROUND_NS
    run = int(worst["window_start_ns"]), int(worst["window_end_ns"])
    of_peak = {"left_bytes": int((worst["total_bytes"] or 0) - worst["peak_bytes"])}
    is_peak = size == "peak_bytes"
    yield EXTRA_RULES[rule].finding(
        evidence=cells("memory_watermarks", worst, _KEYS, said),
        fields={**(of_peak if is_peak else {by: worst[by]}), **_source(tables, worst, size)},
        ranks=tuple(sorted(set(rows["rank"].tolist()))),
        rank=worst["rank"],
        device_id=worst["device_id"],
        window_ns=around if is_peak else run,
    )


def _source(tables: Tables, worst: Record, size: str) -> dict[str, Any]:
    """Return which API function most of the memory came from, and how much; None: not recorded."""
    rows = tables["memory_allocators"]
    for key in _KEYS:
        rows = rows[rows[key] == worst[key]]
    rows = rows[rows["api"].notna()].sort_values(size, ascending=False, kind="stable")
    most = first_record(rows) if len(rows) else {"api": None, size: None}
    return {"api": most["api"], "from_api_bytes": most[size]}


def graph_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the graph that takes most time, where graphs take much of it."""
    graphs = tables["cuda_graphs"]
    graphs = graphs[graphs["nodes_n"].isna()]  # the most time first
    whole = claim(tables, "window_ns", "devices", "window_ns")
    of = partial(claim, tables, nodes_n=None)
    share = of("share_pct", "cuda_graphs", "span_ns", "sum", whole)
    if (share.value or 0.0) < WHOLE_GRAPHS_PCT:
        return []
    row = first_record(graphs)
    return [
        EXTRA_RULES["whole_graphs"].finding(
            evidence=(
                *cells("cuda_graphs", row, ["rank", "device_id", "graph"], _REPLAYS),
                of("graphs_n", "cuda_graphs", "graph", "count"),
                share,
            ),
            rank=row["rank"],
            device_id=row["device_id"],
            impact_ns=int(row["span_ns"]),
        )
    ]


def secret_findings(tables: Tables) -> list[Finding]:
    """Return a finding if reports store variables that look like secrets; by name only."""
    files = tables["files"]
    with_secrets = files[files["secret_variables"].notna()]
    if with_secrets.empty:
        return []
    listed = with_secrets["secret_variables"].str.split(", ").explode()
    names = sorted(set(listed))
    return [
        EXTRA_RULES["stored_secrets"].finding(
            fields={
                "shown": ", ".join(quoted(name) for name in names[:_MOST_NAMED])
                + " and others" * (len(names) > _MOST_NAMED),
                "environments_n": int(with_secrets["environments_n"].max()),
            },
            evidence=(
                claim(tables, "profiles_n", "files", "secret_variables", "count"),
                claim(tables, "all_n", "files", "File", "count"),
            ),
        )
    ]


def unrecorded_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the GPU whose SMs were active longest beyond what is recorded.

    Metrics are of a GPU with all of its processes: all that its ranks recorded, selected or not, is
    added up, so that it is never too little.
    """
    rows = tables["gpu_metrics"]
    rows = rows[(rows["scope"] == "window") & rows["metric"].str.match(_ACTIVE)]
    rows = rows[(rows["gpu_source"] != BY_ORDER) & rows["mean_pct"].notna()]
    recorded_ns = tables["coverage"].groupby("rank")["total_ns"].sum()
    spans_ns = tables["wall"].groupby(["rank", "device_id"])["span_ns"].first()
    findings = []
    for row in records(rows):
        ranks = rows.loc[rows["gpu_id"] == row["gpu_id"], "rank"].unique()
        span_ns = spans_ns.get((row["rank"], row["device_id"]))
        recorded_pct = percent(int(recorded_ns.reindex(ranks).sum()), span_ns)
        if span_ns and row["mean_pct"] - recorded_pct >= UNRECORDED_PCT:
            finding = EXTRA_RULES[UNRECORDED_WORK].finding(
                evidence=(
                    *cells("gpu_metrics", row, _METRIC, ("mean_pct",)),
                    claim(
                        *(tables, "recorded_pct", "coverage", "total_ns", "sum"),
                        span_of(tables, (row["rank"], row["device_id"])),
                        rank=tuple(ranks.tolist()),
                    ),
                ),
                rank=row["rank"],
                device_id=row["device_id"],
                ranks=(row["rank"],),
            )
            findings.append((row["mean_pct"] - recorded_pct, finding))
    return [max(findings, key=lambda item: item[0])[1]] if findings else []
