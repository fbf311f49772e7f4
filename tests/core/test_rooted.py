"""What lies outside of a folder is not opened, whatever names and links say, and at any moment."""

import os
import threading
from pathlib import PurePath

import pytest

from nsys_llm.core.rooted import EVERYWHERE, Roots, open_below


@pytest.fixture
def places(tmp_path):
    """Return a folder with a file in a folder, and a file outside of it."""
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    return root, tmp_path / "outside"


def test_a_file_below_is_opened_also_of_a_root_that_is_a_link(places, tmp_path):
    root, _ = places
    (tmp_path / "link").symlink_to(root)
    for place in (root, tmp_path / "link"):
        with open_below(place, PurePath("a/b/file")) as file:
            assert file.read() == b"inside"


@pytest.mark.parametrize("name", ["", ".", "..", "../outside/file", "a/../../outside/file", "/etc"])
def test_a_name_that_leads_out_is_refused(places, name):
    with pytest.raises(OSError, match="name"):
        open_below(places[0], PurePath(name))


@pytest.mark.parametrize("part", ["a", "a/b", "a/b/file"])
def test_a_link_anywhere_on_the_way_is_refused(places, part):
    root, outside = places
    target = outside / "file" if part.endswith("file") else root / "kept"
    os.rename(root / part, root / "kept")
    (root / part).symlink_to(target)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        open_below(root, PurePath("a/b/file"))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(places, make):
    make(places[0] / "odd")
    with pytest.raises(OSError, match=r"regular|directory"):
        open_below(places[0], PurePath("odd"))


def test_links_inside_lead_where_they_say_and_out_of_the_folders_nowhere(places):
    root, outside = places
    (root / "inside").symlink_to("a/b/file")
    (root / "out").symlink_to(outside / "file")
    (root / "circle").symlink_to("circle")
    roots = Roots((root,))
    with roots.opened(root / "inside") as place:
        assert place.read_text() == "inside"
    for name in ("out", "circle", "absent"):
        with pytest.raises(OSError, match=r"."), roots.opened(root / name):
            pass
    with EVERYWHERE.opened(root / "out") as place:
        assert place.read_text() == "outside"


def test_who_opens_another_file_by_the_same_name_is_noticed(places):
    root, outside = places
    roots, name = Roots((root,)), root / "a" / "b" / "file"
    roots.made(name, name.open, lambda file: file.close()).close()
    closed = []

    def another():
        name.unlink()
        name.symlink_to(outside / "file")
        return name.open()

    def close(file):
        file.close()
        closed.append(file)

    with pytest.raises(OSError, match="another file"):
        roots.made(name, another, close)
    assert closed
    assert all(file.closed for file in closed)


def test_a_folder_that_becomes_a_link_and_back_all_the_time_leads_nowhere_else(places):
    root, outside = places
    (outside / "b").mkdir()
    (outside / "b" / "file").write_text("outside")
    stopped, read = threading.Event(), set()

    def exchange():
        while not stopped.is_set():
            os.rename(root / "a", root / "kept")
            (root / "a").symlink_to(outside)
            (root / "a").unlink()
            os.rename(root / "kept", root / "a")

    thread = threading.Thread(target=exchange)
    thread.start()
    for _ in range(1_500):
        try:
            with Roots((root,)).opened(root / "a" / "b" / "file") as place:
                read.add(place.read_text())
        except OSError:
            read.add("refused")
    stopped.set()
    thread.join()
    assert read == {"inside", "refused"}
