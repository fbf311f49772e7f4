"""Exports: which one is used, when a new one is made, and what is said when that fails."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import run
from fake_nsys import (
    FAKE_NSYS,
    aged,
    calls,
    executable,
    failure,
    kernel_ns,
    write_exports,
    written,
)
from trace_builder import TraceBuilder

from nsys_llm.profile.export import ALWAYS_EXPORTED, _export, _name_elsewhere, open_export
from nsys_llm.profile.tables import table_source

pytestmark = pytest.mark.slow

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> Path:
    return write_exports(tmp_path_factory.mktemp("exports"), 3, 4, 5)


@pytest.fixture
def fake(tmp_path, exports) -> str:
    text = FAKE_NSYS.format(python=sys.executable, kernel=KERNEL, exports=exports)
    return executable(tmp_path, text)


@pytest.fixture
def profile(tmp_path) -> Path:
    """Make a profile whose one kernel takes 5 ns, an hour old."""
    (tmp_path / "in").mkdir()
    return written(tmp_path / "in" / "r.nsys-rep", 5)


def test_a_profile_is_exported_once_beside_itself(profile, fake):
    assert kernel_ns(profile, fake) == 5
    assert sorted(os.listdir(profile.parent)) == ["r.nsys-rep", "r_pqtdir"]
    assert kernel_ns(profile, fake) == 5
    assert calls(fake) == 1


def test_an_export_beside_a_profile_is_named_on_stderr(profile, fake, tmp_path, monkeypatch):
    monkeypatch.setattr("nsys_llm.profile.export.find_nsys", lambda given=None: fake)
    for number, expected in enumerate([[str(profile.parent / "r_pqtdir")], []]):
        ended = run("--input", profile, "--output", tmp_path / f"out{number}", "--mode", "none")
        assert ended.code == 0, ended.said
        told = [line for line in ended.said if "exported, and kept" in line]
        assert told == [f"exported, and kept for the next run: {path}." for path in expected]


def test_a_profile_of_a_host_whose_clock_is_ahead_is_exported_once(profile, fake):
    then_ns = time.time_ns() + 3_600 * 10**9
    os.utime(profile, ns=(then_ns, then_ns))
    assert kernel_ns(profile, fake) == kernel_ns(profile, fake) == 5
    with open_export(profile, ("kernels",), export_dir=None, nsys=fake, again=True):
        assert calls(fake) == 1
    os.utime(profile, ns=(then_ns + 10**9, then_ns + 10**9))  # profiled anew
    assert kernel_ns(profile, fake) == 5
    assert calls(fake) == 2


def test_only_the_needed_tables_are_exported(profile, fake):
    kernel_ns(profile, fake)
    files = {path.stem for path in (profile.parent / "r_pqtdir").iterdir()}
    assert files <= {table_source(name).nsys for name in ("kernels", *ALWAYS_EXPORTED)}
    assert {KERNEL, "StringIds", "META_DATA_EXPORT"} <= files


@pytest.mark.parametrize(
    ("table", "spoil"),
    [
        (KERNEL, lambda table: os.truncate(table, 0)),
        (KERNEL, lambda table: os.truncate(table, 300)),
        (KERNEL, lambda table: aged(table, 7200)),
        ("StringIds", lambda table: aged(table, 7200)),
    ],
)
def test_a_table_that_is_cut_off_or_older_than_the_profile_is_exported_again(
    profile, fake, table, spoil
):
    kernel_ns(profile, fake)
    spoil(profile.parent / "r_pqtdir" / f"{table}.parquet")
    assert kernel_ns(profile, fake) == 5
    assert calls(fake) == 2


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
@pytest.mark.parametrize("how", ["cut off", "a part of the time"])
def test_a_bad_export_beside_a_good_profile_is_not_used(profile, fake, kind, how):
    builder = TraceBuilder(lazy=False).kernel("k", start_ns=1, duration_ns=7)
    if how == "a part of the time":
        # So records Nsight Systems 2023.4 what was asked of `nsys export --times`.
        builder.raw("META_DATA_EXPORT", name="EXPORT_PARAM_TIMES_TO_EXPORT", value="0/1s")
    if kind == "sqlite":
        file = builder.write_sqlite(profile.with_name("r.sqlite"))
    else:
        file = builder.write_parquet(profile.with_name("r_pqtdir")) / f"{KERNEL}.parquet"
    if how == "cut off":
        os.truncate(file, file.stat().st_size - 50)
    assert kernel_ns(profile, fake) == 5


@pytest.mark.parametrize("suffix", [".sqlite", "_pqtdir"])
def test_a_valid_export_of_any_kind_is_used_without_nsys(profile, suffix):
    builder = TraceBuilder(lazy=False).kernel("k", start_ns=1, duration_ns=7)
    target = profile.with_name(f"r{suffix}")
    (builder.write_sqlite if suffix == ".sqlite" else builder.write_parquet)(target)
    assert kernel_ns(profile, "/nonexistent/nsys", "memcpys") == 7


@pytest.mark.parametrize("suffix", [".sqlite", "_pqtdir"])
@pytest.mark.parametrize("with_nsys", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_export_beside_an_empty_profile_is_used(
    profile, fake, tmp_path, suffix, with_nsys, elsewhere
):
    # NVIDIA's users do so where only the export was copied: touch r.nsys-rep
    profile.write_bytes(b"")
    aged(profile, 3600)
    folder = tmp_path / "exports" if elsewhere else None
    if folder is not None:
        folder.mkdir()
    target = (folder / _name_elsewhere(profile) if folder else profile).with_suffix("")
    builder = TraceBuilder(lazy=False).kernel("k", start_ns=1, duration_ns=7)
    target = target.with_name(f"{target.name}{suffix}")
    (builder.write_sqlite if suffix == ".sqlite" else builder.write_parquet)(target)
    nsys = fake if with_nsys else "/nonexistent/nsys"
    assert kernel_ns(profile, nsys, export_dir=folder) == 7
    assert calls(fake) == 0


@pytest.mark.parametrize("how", ["older", "cut", "a part"])
def test_an_empty_profile_does_not_make_a_bad_export_good(profile, fake, how):
    # An older export is of another capture: the profile may be one that is just being written.
    profile.write_bytes(b"")
    aged(profile, 60)
    builder = TraceBuilder().kernel("k", start_ns=1, duration_ns=7)
    if how == "a part":
        builder.raw("META_DATA_EXPORT", name="EXPORT_PARAM_TIMES_TO_EXPORT", value="0/1s")
    export = builder.write_sqlite(profile.with_suffix(".sqlite"))
    if how == "cut":
        export.write_bytes(export.read_bytes()[:5000])
    if how == "older":
        aged(export, 3600)
    message = failure(profile, fake)
    assert "r.nsys-rep: the file is empty; profile again" in message
    assert calls(fake) == 0


def test_parquet_wins_over_sqlite(profile):
    TraceBuilder().kernel("k", start_ns=1, duration_ns=7).write_parquet(
        profile.with_name("r_pqtdir")
    )
    TraceBuilder().kernel("k", start_ns=1, duration_ns=8).write_sqlite(
        profile.with_name("r.sqlite")
    )
    assert kernel_ns(profile, None) == 7


def test_a_table_that_was_not_exported_is_exported_later(profile, fake):
    kernel_ns(profile, fake)
    assert kernel_ns(profile, fake, "memcpys") == 5
    assert calls(fake) == 2
    assert (profile.parent / "r_pqtdir" / "CUPTI_ACTIVITY_KIND_MEMCPY.parquet").is_file()
    kernel_ns(profile, fake, "memcpys")
    kernel_ns(profile, fake)
    assert calls(fake) == 2


def test_exports_go_to_the_export_dir_and_are_found_there(tmp_path, profile, fake):
    target = tmp_path / "new" / "exports"
    assert kernel_ns(profile, fake, export_dir=target) == 5
    assert os.listdir(profile.parent) == ["r.nsys-rep"]
    assert len(os.listdir(target)) == 1
    assert kernel_ns(profile, None, export_dir=target) == 5
    assert calls(fake) == 1


def test_profiles_of_one_name_do_not_share_an_export(tmp_path, fake):
    profiles = []
    for node, duration_ns in (("n1", 3), ("n2", 4)):
        (tmp_path / node).mkdir()
        profiles.append(written(tmp_path / node / "rank0.nsys-rep", duration_ns))
    for _ in range(2):
        durations_ns = [
            kernel_ns(profile, fake, export_dir=tmp_path / "exports") for profile in profiles
        ]
        assert durations_ns == [3, 4]
    assert calls(fake) == 2


def test_without_nsys_one_line_says_how_to_export_elsewhere(profile, monkeypatch):
    monkeypatch.setattr("nsys_llm.profile.export.find_nsys", lambda given=None: None)
    assert "nsys export --type sqlite --lazy false r.nsys-rep" in failure(profile, None)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Processing...'; echo 'Wrong file.' >&2; echo '[==] 50%'; exit 3", "exit 3: Wrong"),
        ("exit 1", "exit 1: no message"),
        ("exit 0", "exit 0: no message"),
        ("printf 'bad \\377 byte\\n' >&2; exit 1", "bad"),
        ("kill -9 $$", "exit -9"),
        # It loses the folders of this machine.
        ('for last; do :; done\necho "cannot $last" >&2; exit 1', "exit 1: cannot r.nsys-rep)"),
    ],
)
def test_an_export_that_fails_gives_the_reason_of_nsys_in_one_line(
    tmp_path, profile, script, words
):
    nsys = executable(tmp_path, f"#!/bin/sh\n{script}\n")
    message = failure(profile, nsys)
    assert "nsys export failed" in message
    assert words in message


def test_a_failed_export_leaves_the_old_one_as_it_was(tmp_path, profile, fake):
    kernel_ns(profile, fake)
    before = {path.name: path.read_bytes() for path in (profile.parent / "r_pqtdir").iterdir()}
    aged(profile, -60)
    failure(profile, executable(tmp_path, "#!/bin/sh\nexit 1\n"))
    after = {path.name: path.read_bytes() for path in (profile.parent / "r_pqtdir").iterdir()}
    assert after == before


def test_a_profile_that_is_gone_is_not_exported(tmp_path, fake):
    assert "cannot be read" in failure(tmp_path / "r.nsys-rep", fake)
    assert calls(fake) == 0


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_reader_never_sees_half_a_table(profile, fake):
    hold, held = Path(fake).with_name("hold"), Path(fake).with_name("held")
    hold.touch()
    durations_ns: list[int] = []
    writer = threading.Thread(target=lambda: durations_ns.append(kernel_ns(profile, fake)))
    writer.start()
    try:
        wait_for(held)
        # Half of the table is written by now, but not where a reader looks.
        assert held.exists()
        assert not (profile.parent / "r_pqtdir").exists()
    finally:
        hold.unlink()
        writer.join()
    assert durations_ns == [5]
    assert pq.read_table(profile.parent / "r_pqtdir" / f"{KERNEL}.parquet").num_rows == 1
    assert sorted(os.listdir(profile.parent)) == ["r.nsys-rep", "r_pqtdir"]


@pytest.mark.nsys
@pytest.mark.traces
def test_a_real_profile_is_exported_once_and_again_for_one_more_table(tmp_path, nsys, traces):
    profile = tmp_path / "r.nsys-rep"
    shutil.copyfile(traces / "a100_vector_add" / "vector_add_profile_v2.nsys-rep", profile)
    before = (profile.read_bytes(), profile.stat().st_mtime_ns)
    written_ns = []
    for tables in (("kernels",), ("kernels",), ("kernels", "nvtx_events"), ("nvtx_events",)):
        with open_export(profile, tables, export_dir=None, nsys=nsys) as opened:
            assert opened.kind == "parquet"
            counts = {table: len(opened.read(table, ("start_ns",))) for table in tables}
            assert opened.texts(opened.read("kernels", ("demangled_name_id",))["demangled_name_id"])
        assert counts["kernels"] > 0 if "kernels" in counts else counts["nvtx_events"] > 0
        record = tmp_path / "r_pqtdir" / "META_DATA_EXPORT.parquet"
        written_ns.append(record.stat().st_mtime_ns)
    # The second use finds the first's export; the third needs one more table; the fourth has it.
    first, second, third, fourth = written_ns
    assert first == second < third == fourth
    assert sorted(os.listdir(tmp_path)) == ["r.nsys-rep", "r_pqtdir"]
    assert (profile.read_bytes(), profile.stat().st_mtime_ns) == before


@pytest.mark.nsys
def test_junk_is_told_by_what_the_real_nsys_says(tmp_path, nsys):
    profile = tmp_path / "r.nsys-rep"
    profile.write_bytes(b"junk" * 999)
    assert "nsys export failed" in failure(profile, nsys)


def test_an_export_that_does_not_end_is_ended(profile, tmp_path, monkeypatch):
    monkeypatch.setattr("nsys_llm.profile.export._EXPORT_SECONDS", 0.2)
    hanging = executable(tmp_path, "#!/bin/sh\nexec sleep 600\n")
    begun = time.monotonic()
    line = failure(profile, hanging)
    assert "nsys export was stopped after 0 s; export it by hand: nsys export" in line
    assert time.monotonic() - begun < 30


def test_an_export_that_another_run_made_meanwhile_stays_as_it_may_be_read(profile, fake):
    target = profile.parent / "r_pqtdir"
    assert kernel_ns(profile, fake) == 5
    made = {file.name: file.stat().st_ino for file in target.iterdir()}
    _export(profile, target, ("kernels",), fake)
    assert {file.name: file.stat().st_ino for file in target.iterdir()} == made


@pytest.mark.parametrize("left_bytes", [0, 300])
def test_an_export_with_an_unusable_table_is_not_kept(profile, fake, exports, left_bytes):
    # As where the disk fills up and nsys notices nothing; the table is not one that is read.
    cut = exports / "5" / "StringIds.parquet"
    whole = cut.read_bytes()
    cut.write_bytes(whole[:left_bytes])
    assert "nsys export failed (exit 0" in failure(profile, fake)
    assert os.listdir(profile.parent) == ["r.nsys-rep"]
    cut.write_bytes(whole)
    assert kernel_ns(profile, fake) == 5


def test_a_full_disk_is_named(profile, fake, monkeypatch):
    usage = shutil.disk_usage(profile)._replace(free=4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    said = failure(profile, fake)
    assert "r.nsys-rep: cannot be exported, the disk is full (in); make room" in said
    assert os.listdir(profile.parent) == ["r.nsys-rep"]
    monkeypatch.undo()
    assert kernel_ns(profile, fake) == 5
