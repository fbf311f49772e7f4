"""Standard output that is closed, full or read no further: the results stand, and the exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from effort import nightly_but
from results import RECIPE, analyse, assert_same, environment
from trace_builder import TraceBuilder

pytestmark = pytest.mark.slow

COMMAND = f"{sys.executable} -m nsys_llm.run.cli"
FULL = "standard output cannot be written (No space left on device)"
CLOSED = "standard output cannot be written (closed)"


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Path:
    """Two ranks, of which the second is no report."""
    folder = tmp_path_factory.mktemp("reports")
    report = TraceBuilder().kernel("k", start_ns=5, duration_ns=9, launch=(0, 1))
    report.write_sqlite(folder / "rank0.sqlite")
    (folder / "rank1.sqlite").write_bytes(b"junk")
    return folder


@pytest.fixture(scope="module")
def expected(reports, tmp_path_factory) -> dict[str, Path]:
    """Return the outputs of whole runs over the good rank, and over both."""
    folder = tmp_path_factory.mktemp("expected")
    allowed = ["--allow-missing-ranks"]
    return {
        "rank0.sqlite": analyse(folder / "rank0", reports / "rank0.sqlite"),
        "": analyse(folder / "both", reports, options=allowed),
    }


def shell(words: str, cwd: Path) -> tuple[int, str, str]:
    """Return the exit code, and what is on standard output and error, as far as they are open."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {COMMAND} {words}"],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.nightly(">/dev/full-standard output cannot be written (No space left on device)--3")
@pytest.mark.parametrize(
    ("streams", "said", "file", "code"),
    nightly_but(
        [
            (">/dev/full", FULL, "rank0.sqlite", 0),
            (">/dev/full", FULL, "", 3),
            ("<&- >&-", CLOSED, "", 3),
            (">/dev/full 2>/dev/full", "", "", 3),
            ("2>&-", "", "", 3),
            ("| head -c 1 >/dev/null", "", "rank0.sqlite", 0),
        ],
        [(">/dev/full", FULL, "", 3), ("| head -c 1 >/dev/null", "", "rank0.sqlite", 0)],
    ),
)
def test_the_results_stand_and_the_code_is_that_of_the_run(
    reports, expected, streams, said, file, code, tmp_path
):
    words = f"{RECIPE} --mode none --input {reports / file} --output out {streams}"
    ended, printed, errors = shell(words, tmp_path)
    assert (ended, errors.count(said or "Traceback")) == (code, bool(said))
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= bool(said) + 2 * (code == 3)
    # What belongs to standard error never goes to the other one, and no report is hurt.
    assert "error:" not in printed
    assert_same(tmp_path / "out", expected[file])


@pytest.mark.nightly("show RESULT-/dev/full", "--help-&-")
@pytest.mark.parametrize("stream", ["&-", "/dev/full"])
@pytest.mark.parametrize("words", ["show RESULT", "--help"])
def test_what_is_only_printed_and_cannot_be_is_an_error(expected, words, stream, tmp_path):
    words = words.replace("RESULT", str(expected["rank0.sqlite"]))
    said = CLOSED if stream == "&-" else FULL
    assert shell(f"{words} >{stream}", tmp_path) == (2, "", f"error: {said}.\n")
