"""What a report records of its owner - environment, arguments, folders - reaches no output."""

from __future__ import annotations

import gzip
import json
import os
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from command_line import run
from effort import nightly_but
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import recipe_names

pytestmark = pytest.mark.drawn

#: In every value that no output may hold.
MARKER = "planted4711"
KINDS = ("sqlite", "parquet")
#: An nsys that fails, and tells of folders as the real one does.
FAILING_NSYS = """#!{python}
import sys
report, made = sys.argv[-1], sys.argv[sys.argv.index("--output") + 1]
sys.exit(f"Failed to create '{{made}}': Error on file '{{report}}': unknown format.")
"""


def marked(rank: int, duration_ns: int = 500) -> TraceBuilder:
    """Return a report with the marker wherever a report tells of its owner."""
    report = TraceBuilder(duration_ns=9_000).environment(
        HF_TOKEN=f"hf_{MARKER}",
        WANDB_API_KEY=f"{MARKER};more={MARKER}",
        HOME=f"/home/{MARKER}",
        USER=MARKER,
        RANK=str(rank),
        PATH=f"/home/{MARKER}/bin",
    )
    report.process_environment(HOME=f"/home/{MARKER}", VAULT_TOKEN=f"x={MARKER}\n{MARKER}_KEY=1")
    report.process_environment(AWS_SECRET_ACCESS_KEY=MARKER, EMPTY_KEY="", RANK="99")
    for key, value in {
        "PROCESS_0:COMMAND": f"/home/{MARKER}/venv/bin/python",
        "PROCESS_0:ARGUMENT_1": f"--api-key={MARKER}",
        "PROCESS_0:WORKING_DIR": f"/home/{MARKER}/work",
        "DEVICE_DISPLAY_NAME": MARKER,
    }.items():
        report.capture_option(key, value)
    for step in range(4):
        at_ns = 2_000 * step
        report.nvtx("step", at_ns, at_ns + 1_900)
        report.kernel(
            "gemm", start_ns=at_ns + 60, duration_ns=duration_ns, launch=(at_ns + 1, at_ns + 9)
        )
    return report


def written(folder: Path, kind: str, duration_ns: int = 500) -> Path:
    """Write two ranks below a folder whose name holds the marker."""
    folder.mkdir(parents=True)
    for rank in range(2):
        report = marked(rank, duration_ns)
        if kind == "sqlite":
            report.write_sqlite(folder / f"rank{rank}.sqlite")
        else:
            report.write_parquet(folder / f"rank{rank}_pqtdir")
    return folder


def holding(folder: Path) -> list[str]:
    """Return the files below that hold the marker, but for the one that holds paths by design."""
    return [
        path.name
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not path.name.endswith(".nsys-analysis")
        and MARKER.encode() in content(path)
    ]


def content(path: Path) -> bytes:
    """Return what a file holds, unpacked."""
    packed = path.read_bytes()
    return gzip.decompress(packed) if path.suffix == ".gz" else packed


# How a report is stored is seen by what reads it alone, which is the same for all recipes.
@pytest.mark.parametrize(
    ("recipe", "kind"),
    nightly_but(
        product(recipe_names(), KINDS), [("tail_stats", "sqlite"), ("trace_diff", "parquet")]
    ),
)
def test_no_output_of_any_recipe_holds_what_was_recorded_of_the_owner(tmp_path, recipe, kind):
    ranks = written(tmp_path / f"home-{MARKER}" / "ranks", kind)
    inputs = [ranks]
    if recipe == "trace_diff":
        inputs.append(written(tmp_path / f"home-{MARKER}" / "later", kind, 900))
    out = tmp_path / "out"
    words = ["--output", out, "--csv", "--html", "--perfetto", "--mode", "none"]
    words += ["--export-dir", tmp_path, "--input", *inputs]
    ended = run(*words, recipe=recipe)
    assert ended.code == 0, ended.said
    assert [line for line in [*ended.printed, *ended.said] if MARKER in line] == []
    assert holding(out) == []
    for path in (path for path in out.rglob("*") if path.is_file()):
        held = os.fsencode(tmp_path) in content(path)
        assert held == (path.name == "out.nsys-analysis"), path.name
    analysis = json.loads((out / "out.nsys-analysis").read_text("utf-8"))
    assert MARKER in str(analysis["InputFiles"])
    assert MARKER not in str({**analysis, "InputFiles": []})


def test_variables_that_look_like_secrets_are_told_by_name_alone(tmp_path):
    ranks = written(tmp_path / "ranks", "sqlite")
    out = tmp_path / "out"
    assert run("--input", ranks, "--output", out).code == 0
    files = pd.read_parquet(out / "files.parquet")
    names = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "VAULT_TOKEN", "WANDB_API_KEY")
    assert files["secret_variables"].tolist() == [", ".join(names)] * 2
    assert files["environments_n"].tolist() == [2, 2]
    findings = pd.read_parquet(out / "findings.parquet")
    (finding,) = findings[findings["rule"] == "stored_secrets"].to_dict("records")
    assert ", ".join(f"`{name}`" for name in names) in finding["details"]
    assert "in its strings that of 2 processes on the machine" in finding["details"]
    assert MARKER not in str(finding)
    report = (out / "report.md").read_text("utf-8")
    assert "HF_TOKEN" in report


def test_what_is_told_of_reports_that_cannot_be_read_names_no_folder(tmp_path, monkeypatch):
    # As many ways to fail as there are readers; the good rank makes an output.
    home = tmp_path / f"home-{MARKER}"
    ranks = written(home / "ranks", "sqlite")
    (ranks / "junk.sqlite").write_bytes(b"junk")
    torn = (ranks / "rank0.sqlite").read_bytes()
    (ranks / "torn.sqlite").write_bytes(torn[:4096] + b"\xff" * (len(torn) - 4096))
    (ranks / "gone.sqlite").symlink_to(home / "nowhere.sqlite")
    for name in ("cut_pqtdir", "twice_pqtdir"):
        marked(0).write_parquet(ranks / name)
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    (ranks / "cut_pqtdir" / kernels).write_bytes(b"PAR1junkPAR1")
    (ranks / "twice_pqtdir" / kernels).unlink()
    (ranks / "twice_pqtdir" / kernels).symlink_to(home / "nowhere.parquet")
    nsys = home / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(FAILING_NSYS.format(python=sys.executable))
    nsys.chmod(0o755)
    monkeypatch.setattr("nsys_llm.profile.export.find_nsys", lambda given=None: str(nsys))
    (ranks / "bad.nsys-rep").write_bytes(b"junk")
    out = tmp_path / "out"
    ended = run("--input", ranks, "--output", out, "--csv", "--html", "--allow-missing-ranks")
    assert ended.code == 0
    assert len(ended.errors) >= 5, ended.said
    assert [line for line in ended.said if MARKER in line] == []
    assert holding(out) == []
    assert os.fsencode(tmp_path) not in (out / "report.json").read_bytes()
