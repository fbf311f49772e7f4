"""From what was typed to a list of profiles: folders, counts, twins, names, and each mistake."""

import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError, UsageError
from nsys_llm.profile.file_state import refuse_changed
from nsys_llm.profile.inputs import expand_inputs, label_profiles, natural_key, open_profile


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is also the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(folder, *names):
    """Make empty profiles; a name that ends in _pqtdir becomes a folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("_pqtdir"):
            path.mkdir()
        else:
            path.touch()
    return folder


def labels(*entries):
    return [profile.label for profile in expand_inputs([str(entry) for entry in entries])[0]]


def names(*entries):
    expanded, _ = expand_inputs([str(entry) for entry in entries])
    return [Path(profile.path).name for profile in expanded]


def notes(*entries):
    return expand_inputs([str(entry) for entry in entries])[1]


@pytest.mark.parametrize(
    ("files", "entries", "expected", "said"),
    [
        (
            "r10.sqlite r2.qdrep r1.nsys-rep r3_pqtdir notes.txt sub/r0.sqlite",
            ".",
            "r1.nsys-rep r2.qdrep r3_pqtdir r10.sqlite",
            [],
        ),
        ("ranks/r10.sqlite ranks/r2.sqlite ranks/r1.sqlite", "ranks:2", "r1.sqlite r2.sqlite", []),
        ("ranks/r10.sqlite ranks/r2.sqlite", "ranks:9", "r2.sqlite r10.sqlite", []),
        # A colon in a real path is part of the path.
        ("run:2/a.sqlite run:2/b.sqlite", "run:2", "a.sqlite b.sqlite", []),
        ("run:2/a.sqlite run:2/b.sqlite", "run:2:1", "a.sqlite", []),
        ("b:1.sqlite", "b:1.sqlite", "b:1.sqlite", []),
        # A profile and its exports are one; an export given alone is taken as it is.
        ("a.nsys-rep a.sqlite a_pqtdir b.sqlite b_pqtdir", ".", "a.nsys-rep b.sqlite", []),
        (
            "a.nsys-rep a.sqlite",
            "a.sqlite a.nsys-rep",
            "a.nsys-rep",
            ["a.sqlite: left out, a.nsys-rep is the same profile."],
        ),
        ("a.nsys-rep a.sqlite", "a.sqlite", "a.sqlite", []),
        ("a.nsys-rep a_pqtdir", "a_pqtdir", "a_pqtdir", []),
        ("a.sqlite", "a.sqlite ./a.sqlite", "a.sqlite", ["a.sqlite: given twice, read once."]),
        ("export/StringIds.parquet", "export", "export", []),
    ],
)
def test_what_was_typed_stands_for_profiles(folder, files, entries, expected, said):
    make(folder, *files.split())
    assert names(*entries.split()) == expected.split()
    assert notes(*entries.split()) == said


def test_the_same_name_in_two_folders_gets_two_labels(folder):
    make(folder, "n1/rank0.sqlite", "n2/rank0.sqlite", "n2/rank1.sqlite")
    assert labels("n1", "n2") == ["n1/rank0", "n2/rank0", "n2/rank1"]
    assert notes("n1", "n2") == ["profiles of the same name are labeled with their folders."]


def test_paths_are_absolute_and_a_link_keeps_its_own_name(folder):
    # The name may tell the rank, and what a link leads to may be called anything.
    make(folder, "store/blob")
    os.symlink(folder / "store" / "blob", folder / "rank3.sqlite")
    ((profile,), _) = expand_inputs(["rank3.sqlite"])
    assert (profile.path, profile.label) == (str(folder / "rank3.sqlite"), "rank3")


def test_a_link_and_what_it_leads_to_are_read_once(folder):
    make(folder, "a.sqlite")
    os.symlink(folder / "a.sqlite", folder / "b.sqlite")
    profiles, notes = expand_inputs(["b.sqlite", "a.sqlite"])
    assert [profile.label for profile in profiles] == ["b"]
    assert notes == ["a.sqlite: the same as b.sqlite, read once."]


def test_a_link_to_nowhere_in_a_folder_stays_a_profile(folder):
    make(folder, "ranks/rank0.sqlite")
    os.symlink(folder / "gone.sqlite", folder / "ranks" / "rank1.sqlite")
    assert names("ranks") == ["rank0.sqlite", "rank1.sqlite"]


def test_folders_in_a_folder_are_read_where_it_has_no_profiles(folder):
    files = ("job/node1/rank0.sqlite", "job/node1/notes.txt", "job/node2/rank0.sqlite")
    make(
        folder, *files, "job/node10/more/rank0.sqlite", "both/rank0.sqlite", "both/old/rank0.sqlite"
    )
    assert names("job") == ["rank0.sqlite"] * 3
    assert [profile.label for profile in expand_inputs(["job"])[0]] == [
        "node1/rank0",
        "node2/rank0",
        "more/rank0",
    ]
    assert len(names("both")) == 1


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("missing.sqlite", "missing.sqlite: does not exist"),
        ("missing:3", "missing:3: does not exist"),
        ("empty", "empty: no profiles in this folder"),
        ("deep", "deep: no profiles in this folder"),
        ("a.txt", "a.txt: not a profile"),
        ("a.sqlite:2", "':n' is for folders"),
        ("ranks:0", "':0' selects no profiles"),
        ("pipe.sqlite", "neither a file nor a folder"),
    ],
)
def test_each_mistake_has_its_line(folder, entry, said):
    os.mkfifo(folder / "pipe.sqlite")
    make(folder, "a.txt", "a.sqlite", "ranks/b.sqlite", "deep/1/2/3/4/c.sqlite", "empty/notes.txt")
    with pytest.raises(UsageError) as caught:
        expand_inputs(["a.sqlite", entry])
    assert said in caught.value.message
    assert caught.value.message.startswith(f"{entry}: ")
    assert "\n" not in caught.value.message


def test_nothing_is_made_for_a_path_that_does_not_exist(folder):
    with pytest.raises(UsageError):
        expand_inputs(["missing.sqlite"])
    with pytest.raises(ProfileError, match="all workers"), open_profile("missing.sqlite", ()):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("loop.sqlite", r"loop\.sqlite: cannot be accessed \("),
        ("gone.sqlite", r"^gone\.sqlite: a link to what is not there\.$"),
        ("x" * 300 + ".sqlite", r"x\.sqlite: cannot be accessed \("),
        ("pipe.sqlite", r"pipe\.sqlite: neither a file nor a folder"),
        ("pipe.nsys-rep", r"pipe\.nsys-rep: neither a file nor a folder"),
    ],
)
def test_a_profile_that_cannot_be_looked_at_or_never_ends_is_refused(folder, name, said):
    os.symlink("loop.sqlite", folder / "loop.sqlite")
    os.symlink("nowhere.sqlite", folder / "gone.sqlite")
    for pipe in ("pipe.sqlite", "pipe.nsys-rep"):
        os.mkfifo(folder / pipe)
    with pytest.raises(ProfileError, match=said), open_profile(str(folder / name), ()):
        pass


def test_a_database_with_a_pipe_for_its_journal_is_refused(folder):
    path = TraceBuilder().kernel("k", start_ns=5, duration_ns=9).write_sqlite(folder / "a.sqlite")
    os.mkfifo(folder / "a.sqlite-journal")
    said = r"a\.sqlite-journal beside it is not a file"
    with pytest.raises(ProfileError, match=said), open_profile(str(path), ()) as profile:
        profile.columns("kernels")


def test_each_kind_of_profile_is_opened_by_what_it_is(folder):
    builder = TraceBuilder().kernel("k", start_ns=1, duration_ns=2)
    paths = [builder.write_sqlite(folder / "a.sqlite"), builder.write_parquet(folder / "a_pqtdir")]
    for path in paths:
        with open_profile(str(path), ("kernels",)) as profile:
            assert profile.read("kernels", ["start_ns", "end_ns"])["end_ns"].tolist() == [3]


@given(st.lists(st.text("ab1/", max_size=6), min_size=1, max_size=5))
def test_any_two_names_can_be_compared(texts):
    ordered = sorted(texts, key=natural_key)
    keys = [natural_key(text) for text in ordered]
    assert all(key <= other for key, other in pairwise(keys))


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "rank1"]), min_size=1, max_size=4),
        max_size=5,
        unique_by=tuple,
    )
)
def test_labels_are_distinct_ends_of_their_paths(paths):
    # Two paths may be one path's end: /a/b.sqlite and /b.sqlite.
    labeled = label_profiles([Path("/top", *parts).with_suffix(".sqlite") for parts in paths])
    assert len(set(labeled)) == len(paths)
    for label, parts in zip(labeled, paths, strict=True):
        assert "/".join(["/top", *parts]).endswith(label)


def rank_with(kernels_n, **facts):
    trace = TraceBuilder(**facts)
    for number in range(kernels_n):
        trace.kernel("gemm", start_ns=100 * number, duration_ns=50)
    return trace


@pytest.fixture(params=["sqlite", "parquet"])
def written_rank(request, tmp_path):
    """Write a rank_with; return its profile and a function that writes another into its place."""

    def write(trace, name):
        path = tmp_path / name
        if request.param == "sqlite":
            return trace.write_sqlite(path.with_suffix(".sqlite"))
        return trace.write_parquet(path.with_name(f"{name}_pqtdir"))

    path = write(rank_with(3), "rank0")

    def replace(trace):
        other = write(trace, "other")
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(other, path)

    return path, replace


def mark(path):
    with open_profile(str(path), ()) as profile:
        return profile.fingerprint


def test_an_untouched_profile_is_the_same(written_rank):
    path, _ = written_rank
    refuse_changed(path.name, mark(path), mark(path))


@pytest.mark.parametrize("other", [rank_with(3), rank_with(4), rank_with(3, duration_ns=7)])
def test_another_profile_in_its_place_is_refused(written_rank, other):
    path, replace = written_rank
    known = mark(path)
    replace(other)
    with pytest.raises(ProfileError, match=r"changed since it was first read; run again\.$"):
        refuse_changed(path.name, known, mark(path))


def test_a_table_that_another_run_adds_to_an_export_changes_nothing(tmp_path):
    path = rank_with(3).write_parquet(tmp_path / "rank0_pqtdir")
    known = mark(path)
    shutil.copy(path / "StringIds.parquet", path / "ANOTHER.parquet")
    refuse_changed(path.name, known, mark(path))
