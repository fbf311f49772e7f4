"""The compiled decoder of SQLite's pages, used where it was built, and only there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest
from decoders import DECODERS
from effort import over_seeds

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.sqlite import pages
from nsys_llm.profile.sqlite.pages import PADDING_BYTES, Bytes, PageShape, UnexpectedCell

SOURCE = Path(__file__).parents[2] / "shared/nsys_llm/profile/sqlite/leaf.c"
HAMMER = Path(__file__).with_name("hammer_leaf.c")
PAGE_BYTES = (512, 4096)
FIELDS_N = 6
#: Serial types of every width, and those of texts, of numbers with a point, and of nothing.
ODD_BYTES = (0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 126, 127, 128, 129, 255)

compiled = pytest.mark.skipif("native" not in DECODERS, reason="the library was not built here")


@pytest.fixture(scope="module")
def leaves(tmp_path_factory) -> dict[int, bytes]:
    """Leaf pages by their size: integers of every width, NULL and texts."""
    return {size: leaf_pages(tmp_path_factory.mktemp("leaves"), size) for size in PAGE_BYTES}


def leaf_pages(folder: Path, page_bytes: int) -> bytes:
    random = Random(page_bytes)
    path = folder / "t.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page_bytes}")
        database.execute("CREATE TABLE t (a INT, b TEXT, c INT, d INT, e INT, f INT)")
        marks = ",".join("?" * FIELDS_N)
        for number in range(700):
            row = [random.choice((None, 0, 1, random.getrandbits(8 * k) - 99)) for k in range(1, 7)]
            row[1] = random.choice((None, "x" * random.randrange(90)))
            row[5] = random.getrandbits(64) - 2**63
            database.execute(f"INSERT INTO t VALUES ({marks})", row)
            if number % 50 == 0:
                database.execute("UPDATE t SET rowid = ? WHERE rowid = ?", (-number, number))
        database.commit()
    raw = path.read_bytes()
    pages = [raw[at : at + page_bytes] for at in range(page_bytes, len(raw), page_bytes)]
    return b"".join(page for page in pages if page[0] == 13)


def mutated(pages: bytes, page_bytes: int, random: Random) -> bytes:
    """Return one page of these with some bytes changed."""
    first = random.randrange(len(pages) // page_bytes) * page_bytes
    some = bytearray(pages[first : first + page_bytes])
    for _ in range(random.choice((0, 1, 1, 2, 9))):
        # Where cells begin is told at the begin of a page.
        reach = random.choice((12, len(some)))
        some[random.randrange(reach)] = random.choice((*ODD_BYTES, random.randrange(256)))
    return bytes(some)


def outcome(raw: Bytes, shape: PageShape, columns: list[int]) -> list[list[int]] | None:
    """Return the rows of some pages; None where they are refused."""
    try:
        read = pages.leaf_integers(raw, shape, FIELDS_N, columns)
    except UnexpectedCell:
        return None
    return [list(row) for row in zip(*(column.tolist() for column in read), strict=True)]


def said(path: Path, page: bytes, shape: PageShape, columns: list[int]) -> list[list[int]] | None:
    """Return what SQLite says of a table that is this page; None where it calls it damaged."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {shape.page_bytes}")
        database.execute("CREATE TABLE t (a INT, b TEXT, c INT, d INT, e INT, f INT)")
        database.commit()
    whole = bytearray(path.read_bytes())
    whole[20] = shape.page_bytes - shape.usable_bytes
    whole[shape.page_bytes :] = page
    path.write_bytes(whole)
    names = ", ".join(f"coalesce({'abcdef'[column]}, {NULL_INT})" for column in columns)
    try:
        with closing(sqlite3.connect(path)) as database:
            return [list(row) for row in database.execute(f"SELECT {names} FROM t")]
    except sqlite3.DatabaseError:
        return None


@compiled
@over_seeds(range(600), each_n=100)
def test_it_gives_the_numbers_of_sqlite_or_refuses_a_page(leaves, seed, tmp_path_factory):
    random = Random(seed)
    page_bytes = random.choice(PAGE_BYTES)
    shape = PageShape(page_bytes, page_bytes - random.choice((0, 0, 0, 8)) * (page_bytes > 512))
    page = mutated(leaves[page_bytes], page_bytes, random)
    columns = random.sample((0, 2, 3, 4, 5, 1) if random.random() < 0.1 else (0, 2, 3, 4, 5), 3)
    # What lies behind the page has no say.
    zeros, noise = (
        outcome(np.frombuffer(page + behind, dtype=np.uint8), shape, columns)
        for behind in (bytes(PADDING_BYTES), random.randbytes(PADDING_BYTES))
    )
    assert zeros == noise
    expected = said(tmp_path_factory.mktemp("page") / "t.sqlite", page, shape, columns)
    assert zeros is None or expected is None or zeros == expected


@compiled
def test_most_pages_of_these_are_read(leaves):
    for page_bytes, leaf in leaves.items():
        raw = np.frombuffer(leaf + bytes(PADDING_BYTES), dtype=np.uint8)
        shape = PageShape(page_bytes, page_bytes)
        assert len(pages.leaf_integers(raw, shape, FIELDS_N, [0, 5])[1]) > 600


@pytest.fixture
def forgotten(monkeypatch):
    pages.library.cache_clear()
    yield
    monkeypatch.undo()
    pages.library.cache_clear()


@pytest.mark.parametrize("word", ["0", "false", "OFF"])
def test_a_variable_switches_it_off(word, monkeypatch, forgotten):
    monkeypatch.setenv("NSYS_LLM_NATIVE", word)
    assert (pages.library(), pages.decoder()) == (None, "adbc")


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_without_a_library_that_loads_the_driver_reads(tmp_path, monkeypatch, forgotten, content):
    monkeypatch.setattr(pages, "__file__", str(tmp_path / "pages.py"))
    if content is not None:
        (tmp_path / "_leaf.so").write_bytes(content)
    assert pages.decoder() == "adbc"


@compiled
def test_a_library_of_another_version_is_left_alone(monkeypatch, forgotten):
    monkeypatch.setattr(pages, "_ABI", -1)
    assert pages.decoder() == "adbc"


@pytest.mark.skipif(not os.environ.get("NSYS_LLM_TEST_NATIVE"), reason="no compiler is promised")
def test_where_a_compiler_is_promised_it_was_built_and_is_used():
    assert pages.decoder() == "native"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_no_mutated_page_makes_it_touch_what_is_not_its(leaves, tmp_path):
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = ["gcc", *flags, str(SOURCE), str(HAMMER), "-o", str(tmp_path / "hammer")]
    subprocess.run(command, check=True, capture_output=True)
    for page_bytes, leaf in leaves.items():
        (tmp_path / "pages").write_bytes(leaf)
        words = [tmp_path / "hammer", tmp_path / "pages", page_bytes, FIELDS_N, 1_000_000, 1]
        done = subprocess.run([*map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        read_n, refused_n = map(int, done.stdout.split())
        assert min(read_n, refused_n) > 100_000
