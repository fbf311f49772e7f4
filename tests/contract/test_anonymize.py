"""--anonymize: no byte of any output holds a host, a process, a file or a variable of a profile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import rows, run
from effort import nightly_but
from quick_run import quick_run
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report.anonymous import anonymous

pytestmark = pytest.mark.drawn

#: In everything that identifies somebody, and in nothing else.
MARKER = "zzowner4711"
#: Names that stay: a report is about them.
KERNEL, RANGE = "kernel_that_stays", "range_that_stays"
#: Files that stacks lie in: of no known library, and as those of known ones are named.
PATHS = (
    f"/home/{MARKER}/model.so",
    f"/opt/{MARKER}_kernels.so",
    f"/site-packages/torch/lib/{MARKER}.so",
    f"/usr/lib/libtorch_{MARKER}.so",
    f"/usr/lib/libcublas{MARKER}.so.12",
    f"/lib/libc-{MARKER}.so",
    f"[{MARKER}]",
)
#: No table of these has names of kernels.
WITHOUT_KERNELS = ("comm_stats", "roofline", "serving_steps")


def report(rank: int, duration_ns: int = 5_000) -> TraceBuilder:
    """Return a profile with the marker in the names of its host, processes and variables."""
    builder = TraceBuilder(duration_ns=400_000, hostname=f"{MARKER}-node{rank // 2}")
    builder.process(pid=4000 + rank, name=f"/home/{MARKER}/bin/server{rank}")
    builder.environment(**{f"{MARKER.upper()}_TOKEN": "x", "RANK": str(rank)})
    builder.process_environment(**{f"{MARKER.upper()}_KEY": MARKER, "HOME": f"/home/{MARKER}"})
    builder.thread_switch(start_ns=0, goes_on=True, pid=4000 + rank)
    for nth, path in enumerate(PATHS):
        stack = builder.call_stack([f"0x7f{nth}", "main"], module=path)
        api_ns = 40_000 * nth + 9_000  # in a gap
        builder.api(
            "cudaFree_v3020", start_ns=api_ns, duration_ns=200, callchain_id=stack, pid=4000 + rank
        )
        for sample in range(40):  # as many as a share needs
            stacked = [(f"function{nth}", path), ("main", path)]
            builder.cpu_sample(stacked, start_ns=api_ns + 4 * sample, pid=4000 + rank)
    for step in range(8):
        at_ns = 40_000 * step
        builder.nvtx(RANGE, at_ns, at_ns + 39_000, pid=4000 + rank)
        for kernel in range(3):
            launch_ns = at_ns + 1_000 + 9_000 * kernel
            builder.kernel(
                KERNEL,
                start_ns=launch_ns + 700,
                duration_ns=duration_ns + 100 * step * (rank + 1),
                launch=(launch_ns, launch_ns + 500),
                pid=4000 + rank,
            )
    return builder


def written(folder: Path, duration_ns: int = 5_000) -> list[Path]:
    """Write profiles whose folder and names hold the marker, one that cannot be read among them."""
    folder.mkdir(parents=True)
    for rank in range(3):
        report(rank, duration_ns).write_sqlite(folder / f"{MARKER}_rank{rank}.sqlite")
    (folder / f"{MARKER}_rank3.sqlite").write_bytes(b"junk")
    return sorted(folder.iterdir())


def content(path: Path) -> str:
    """Return all that a file says, its bytes, and what they are packed from."""
    packed = path.read_bytes()
    if path.suffix == ".gz":
        packed = gzip.decompress(packed)
    unpacked = ""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        unpacked = f"{table.schema.metadata} {table.to_pydict()}"
    return packed.decode("utf-8", "replace") + unpacked


def outputs(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def command(recipe: str, home: Path, output: Path, *options: str) -> list[object]:
    inputs = [home / MARKER / "ranks"]
    written(inputs[0])
    words: list[object] = ["--output", output, "--csv", "--html", "--perfetto", "--mode", "none"]
    words += ["--allow-missing-ranks", *options]
    if recipe in ("trace_diff", "llm_overview"):
        written(home / MARKER / "before", 9_000)
        words += ["--baseline", home / MARKER / "before"]
    return [*words, "--input", *inputs]


@pytest.mark.parametrize("recipe", nightly_but(recipe_names(), ["llm_overview"]))
def test_no_byte_of_any_output_names_the_owner(tmp_path, recipe):
    out = tmp_path / "out"
    ended = run(*command(recipe, tmp_path, out, "--anonymize"), recipe=recipe)
    assert ended.code == 0, ended.said
    texts = outputs(out)
    holding = [name for name, text in texts.items() if MARKER in (name + text).lower()]
    assert (len(texts) > 10, holding) == (True, [])
    assert not [line for line in ended.printed if MARKER in line]
    # That is no accident: the report is about these names, and labels stand for the others.
    assert KERNEL in texts["report.md"] or recipe in WITHOUT_KERNELS
    assert {row["environments_n"] for row in rows(out, "files")} <= {0, None}
    hosts = {row["host"] for row in rows(out, "files")} - {None}
    assert hosts == {"host-1", "host-2"}
    # What cannot be read is told to whoever runs the command, and to nobody else.
    assert [line for line in ended.errors if MARKER in line]


@pytest.mark.parametrize("recipe", nightly_but(["step_budget", "llm_overview"], ["step_budget"]))
def test_no_byte_of_any_output_has_a_name_typed_for_a_replay(tmp_path, recipe):
    out = tmp_path / "out"
    asked = [f"kernel:{MARKER}=0.5", f"rank:{MARKER}_rank0", "host=0.5", f"kernel:{KERNEL}=0.5"]
    words = [word for text in asked for word in ("--what-if", text)]
    ended = run(*command(recipe, tmp_path, out, "--anonymize", *words), recipe=recipe)
    assert ended.code == 0, ended.said
    texts = outputs(out)
    assert [name for name, text in texts.items() if MARKER in (name + text).lower()] == []
    assert not [line for line in ended.printed if MARKER in line]
    record = json.loads((out / "report.json").read_text("utf-8"))
    assert record["options"]["what_if"][:3] == ["kernel:text-1=0.5", "rank:text-2", "host=0.5"]


@pytest.mark.nightly("trace_diff")
@pytest.mark.parametrize("recipe", nightly_but(["llm_hotspots", "trace_diff"], ["trace_diff"]))
def test_labels_are_the_only_difference(tmp_path, recipe):
    words = command(recipe, tmp_path, tmp_path / "plain")
    assert run(*words, recipe=recipe).code == 0
    words[1] = tmp_path / "labels"
    assert run(*words, "--anonymize", recipe=recipe).code == 0
    for path in sorted((tmp_path / "plain").glob("*.parquet")):
        table, other = (pq.read_table(tmp_path / kind / path.name) for kind in ("plain", "labels"))
        assert table.schema == other.schema
        numbers = [
            field.name for field in table.schema if str(field.type) in ("int64", "double", "bool")
        ]
        if path.stem != "findings":  # variables that look like secrets are no finding of it
            numbers = [name for name in numbers if name != "environments_n"]
            assert table.select(numbers).equals(other.select(numbers)), path.stem


def test_equal_names_have_equal_labels_and_ranks_stay_in_order(tmp_path):
    paths = []
    for rank in (10, 2, 1):
        builder = TraceBuilder(hostname="a" if rank > 1 else "b")
        builder.kernel("k", start_ns=5, duration_ns=9, launch=(0, 1))
        paths.append(builder.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    shown = anonymous(quick_run("llm_hotspots", *paths))
    assert [(rank.number, rank.file, rank.facts.host) for rank in shown.ranks] == [
        (1, "profile-1", "host-1"),
        (2, "profile-2", "host-2"),
        (10, "profile-3", "host-2"),
    ]
    names = {name for rank in shown.ranks for name in rank.facts.processes.values()}
    assert names == {"process-1"}
