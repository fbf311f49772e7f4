"""Output folders: named as asked for, there whole or not at all, and never in another's place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from nsys_llm.core.errors import OutputError
from nsys_llm.core.scratch import scratch_place
from nsys_llm.run.publish import OutputFolder

RECIPE = "llm_hotspots"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fill(work, wanted="out", *, replace=False):
    """Do something with an open output folder."""
    with OutputFolder(wanted, RECIPE, replace=replace) as folder:
        return work(folder)


def publish(wanted="out", *, replace=False, content="new"):
    """Publish one file under a name and return where it went."""

    def work(folder):
        (folder.path / "kernels.parquet").write_text(content)
        return folder.publish({"RecipeName": RECIPE, "EndTime": "now"})

    return fill(work, wanted, replace=replace)


def raises(error, touch=None):
    """Return work that fails, after it touched a path."""

    def work(folder):
        if touch is not None:
            touch.write_text("mine")
        (folder.path / "part").mkdir()
        (folder.path / "part" / "kernels.parquet").write_text("half")
        raise error

    return work


def refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(wanted="out", *, replace=True):
    """Return why a folder cannot be written; nothing may change by it."""
    before = tree(Path.cwd())
    with pytest.raises(OutputError) as caught:
        publish(wanted, replace=replace)
    assert tree(Path.cwd()) == before
    return caught.value.message


def test_a_published_folder_holds_its_files_and_their_list(place):
    assert publish() == place / "out"
    assert sorted(path.name for path in (place / "out").iterdir()) == [
        "kernels.parquet",
        "out.nsys-analysis",
    ]
    record = json.loads((place / "out" / "out.nsys-analysis").read_text())
    assert record == {
        "RecipeName": RECIPE,
        "EndTime": "now",
        "Files": ["kernels.parquet", "out.nsys-analysis"],
    }
    assert [path.name for path in place.iterdir()] == ["out"]


def test_a_published_folder_can_be_read_by_those_whom_the_umask_lets():
    before = os.umask(0o027)
    try:
        assert publish().stat().st_mode & 0o777 == 0o750
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_an_exception(place, error):
    with pytest.raises(error):
        fill(raises(error), "a/b/out")
    assert list(place.iterdir()) == []


def test_parents_that_were_there_or_that_others_use_meanwhile_are_not_removed(place):
    (place / "a").mkdir()
    with pytest.raises(RuntimeError):
        fill(raises(RuntimeError, place / "a" / "b" / "note.txt"), "a/b/c/out")
    assert tree(place) == {"a": None, "a/b": None, "a/b/note.txt": "mine"}


def test_until_it_is_published_a_result_is_not_in_its_place(place):
    def work(folder):
        assert folder.final == place / "out"
        assert not folder.final.exists()
        # Beside it, so that moving is a rename.
        assert folder.path.parent == place
        folder.publish({})
        assert folder.final.exists()

    fill(work)


def test_a_place_without_write_permission_is_told_in_one_line(place, monkeypatch):
    monkeypatch.setattr(Path, "mkdir", refuse)
    message = refused("new/out", replace=False)
    assert message == f"{place / 'new'}: cannot write there (Permission denied); " + (
        "choose another --output."
    )


def test_a_disk_that_fills_up_leaves_nothing(place, monkeypatch):
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OutputError, match="No space left"):
        fill(lambda folder: folder.publish({}))
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_exists_is_refused_without_force(place, kind):
    out = place / "out"
    if kind == "folder":
        publish()
    elif kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(place / "nowhere")
    assert "exists already; give --force-overwrite" in refused(replace=False)
    assert os.path.lexists(out)


def test_force_replaces_a_result_of_ours_whole(place):
    def work(folder):
        (folder.path / "old.parquet").write_text("old")
        folder.publish({"RecipeName": RECIPE})

    fill(work)
    publish(replace=True)
    assert set(tree(place)) == {"out", "out/kernels.parquet", "out/out.nsys-analysis"}


def test_force_leaves_a_folder_with_a_foreign_file_as_it_is(place):
    publish(content="old")
    (place / "out" / "thesis.tex").write_text("mine")
    assert "it also holds thesis.tex" in refused()


def test_force_leaves_a_result_of_another_recipe_as_it_is(place):
    (place / "out").mkdir()
    for name in ("all_stats.parquet", "analysis.ipynb"):
        (place / "out" / name).write_text("theirs")
    record = {"RecipeName": "cuda_gpu_kern_sum", "Outputs": {"all_stats.parquet": None}}
    (place / "out" / "out.nsys-analysis").write_text(json.dumps(record))
    assert "it is a result of 'cuda_gpu_kern_sum'" in refused()


@pytest.mark.parametrize(
    "record",
    ["", "no json", "[]", "7", '{"RecipeName": "llm_hotspots", "Files": 3}', "\x00", "[" * 100_000],
    ids=lambda record: record[:30],
)
def test_force_leaves_a_folder_with_a_record_that_says_nothing_as_it_is(place, record):
    (place / "out").mkdir()
    (place / "out" / "out.nsys-analysis").write_text(record)
    assert "out.nsys-analysis cannot be read" in refused()


def test_force_leaves_a_folder_without_a_record_or_with_two_as_it_is(place):
    (place / "out").mkdir()
    (place / "out" / "kernels.parquet").write_text("whose?")
    assert "it is not a result of this package (0 .nsys-analysis files)" in refused()
    for name in "ab":
        record = {"RecipeName": RECIPE, "Files": ["kernels.parquet"]}
        (place / "out" / f"{name}.nsys-analysis").write_text(json.dumps(record))
    assert "it is not a result of this package (2 .nsys-analysis files)" in refused()


def test_force_leaves_links_and_files_as_they_are(place):
    publish("real")
    (place / "out").symlink_to(place / "real")
    assert "it is not a folder" in refused()
    assert (place / "out").is_symlink()
    (place / "file").write_text("mine")
    assert "it is not a folder" in refused("file")


def test_a_replacement_that_cannot_be_moved_in_puts_the_old_result_back(place, monkeypatch):
    publish(content="old")
    before = tree(place)
    rename = Path.rename

    def fail_for_the_new(path, target):
        return full_disk() if ".partial-" in path.name else rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(OutputError, match="No space left"):
        publish(replace=True)
    assert tree(place) == before


def test_an_old_result_that_cannot_be_deleted_does_not_undo_the_new_one(place, monkeypatch):
    publish(content="old")
    remove = shutil.rmtree

    def fail_for_the_old(path, *arguments, **options):
        if ".replaced-" in str(path) and not options.get("ignore_errors"):
            refuse()
        remove(path, *arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", fail_for_the_old)
    assert publish(replace=True) == place / "out"
    assert (place / "out" / "kernels.parquet").read_text() == "new"


def test_a_place_that_was_taken_meanwhile_is_refused(place):
    def work(folder):
        folder.final.mkdir()
        folder.publish({})

    with pytest.raises(OutputError, match="exists already"):
        fill(work)
    assert tree(place) == {"out": None}


def set_aside(place):
    """Leave a result as a run that is killed between the two renames does."""
    publish(content="old")
    aside = scratch_place(place, "out", "replaced")
    (place / "out").rename(aside)
    return aside


def test_a_result_that_a_killed_run_had_set_aside_goes_back(place):
    aside = set_aside(place)
    with pytest.raises(OutputError, match="exists already"):
        publish()
    assert (place / "out" / "kernels.parquet").read_text() == "old"
    assert not aside.exists()
    assert os.listdir(place) == ["out"]


def test_a_result_set_aside_goes_where_the_new_one_stands(place):
    aside = set_aside(place)
    shutil.copytree(aside, place / "out")
    (place / "out" / "kernels.parquet").write_text("new")
    publish(replace=True, content="newer")
    assert os.listdir(place) == ["out"]
    assert (place / "out" / "kernels.parquet").read_text() == "newer"


def test_of_two_runs_with_the_same_number_both_are_kept(place, monkeypatch):
    rename, taken, ours = Path.rename, place / f"{RECIPE}-1", place / f"{RECIPE}-2"

    def late(path, target):
        taken.mkdir(exist_ok=True)
        (taken / "theirs").touch()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert publish(None) == ours
    assert os.listdir(taken) == ["theirs"]
    record = f"{ours.name}.nsys-analysis"
    assert sorted(os.listdir(ours)) == ["kernels.parquet", record]
    assert json.loads((ours / record).read_text())["Files"] == ["kernels.parquet", record]


def test_what_is_put_into_a_result_while_it_is_replaced_stays(place, monkeypatch):
    publish(content="old")
    rename = Path.rename

    def late(path, target):
        if path.name == "out":
            (path / "mine.txt").write_text("mine")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(OutputError, match=r"not replaced, it also holds mine\.txt"):
        publish(replace=True)
    assert (place / "out" / "mine.txt").read_text() == "mine"
    assert (place / "out" / "kernels.parquet").read_text() == "old"
    assert os.listdir(place) == ["out"]


def test_what_was_replaced_never_takes_the_place_of_the_new_result(place, monkeypatch):
    """A run is stopped before it has deleted the old one, while another replaces the new one."""
    publish(content="old")
    monkeypatch.setattr("nsys_llm.run.publish.discard", lambda *_: None)

    def work(folder):
        (folder.path / "kernels.parquet").write_text("new")
        folder.publish({"RecipeName": RECIPE})
        (place / "out").rename(place / "aside of another")

    fill(work, replace=True)
    assert not (place / "out").exists()
