"""The files of options: what no program may be made to wait for, or to hold."""

import os
import threading
import time

import pytest

from nsys_llm.core import option_files
from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.run.cli import main

TEXT = "file,rank\na,0\n"


@pytest.fixture
def soon(monkeypatch):
    """Wait less for a pipe."""
    monkeypatch.setattr(option_files, "_SECONDS", 0.2)


def test_a_file_and_a_pipe_are_read_whole(tmp_path):
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.write_text(f"\ufeff{TEXT}", encoding="utf-8")
    assert read_option_file(str(file)) == TEXT
    os.mkfifo(pipe)

    def write():
        with pipe.open("w", buffering=1) as opened:
            for line in TEXT.splitlines(keepends=True):
                opened.write(line)
                time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_option_file(str(pipe)) == TEXT
    writer.join()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"x" * (1 << 20), None),
        (b"x" * ((1 << 20) + 1), "holds more than 1 MB"),
        ("/", "cannot be read"),
        ("/dev/zero", "holds more than 1 MB"),
    ],
)
def test_what_is_no_text_of_a_usual_size_is_refused(tmp_path, content, said):
    path = content if isinstance(content, str) else tmp_path / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    if said is None:
        assert len(read_option_file(str(path))) == len(content)
        return
    with pytest.raises(UsageError, match=said):
        read_option_file(str(path))


@pytest.mark.parametrize("begins", [False, True])
def test_a_pipe_that_does_not_end_is_given_up(soon, tmp_path, begins):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    if begins:
        os.write(held, b"file,")
    with pytest.raises(UsageError, match="did not end within"):
        read_option_file(str(pipe))
    os.close(held)


@pytest.mark.parametrize(
    "words",
    [
        ["roofline", "--model", "{}"],
        ["llm_hotspots", "--weights", "{}"],
        ["llm_hotspots", "--rank-map", "{}"],
        ["nvtx_phase_attribution", "--phase-map", "{}"],
        ["trace_diff", "--gate", "@{}"],
        ["llm_hotspots", "--mode", "dask-futures", "--scheduler-file", "{}"],
    ],
    ids=lambda words: words[-2],
)
def test_no_option_waits_for_a_pipe_or_takes_what_has_no_end(soon, tmp_path, capsys, words):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, said in ((pipe, "did not end within"), ("/dev/zero", "holds more than 1 MB")):
        given = [word.format(path) for word in words]
        assert main([*given, "--input", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert not (tmp_path / "out").exists()
