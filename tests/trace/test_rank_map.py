"""The file behind --rank-map: what it may say, and each mistake in it."""

from __future__ import annotations

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.trace.identity import read_rank_map


def rank_map_file(tmp_path, text):
    path = tmp_path / "map.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_rank_map_names_profiles_with_or_without_suffix(tmp_path):
    path = rank_map_file(
        tmp_path, "\ufefffile,pid,rank\na.sqlite,11,1\na.sqlite,12, 0\n b ,,2\nc_pqtdir,,3\n"
    )
    expected = {("a", 11): 1, ("a", 12): 0, ("b", None): 2, ("c", None): 3}
    assert read_rank_map(path, ["a", "b", "c"]) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "file,rank"),
        ("file,rank\n", "file,rank"),
        ("name,number\na,0\n", "file,rank"),
        ("file,rank\na,\n", "'a' has the rank ''"),
        ("file,rank\na\n", "'a' has the rank ''"),
        ("file,rank\na,-1\n", "'-1'"),
        ("file,rank\na,zero\n", "'zero'"),
        ("file,pid,rank\na,main,0\n", "'a'"),
        ("file,rank\nb,0\n", "gives no rank to a"),
    ],
)
def test_a_rank_map_that_does_not_number_the_set_is_refused(tmp_path, text, hint):
    path = rank_map_file(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_rank_map(path, ["a"])
    assert hint in caught.value.message
    assert path in caught.value.message


@pytest.mark.parametrize("rows", ["a,0\nb,0\n", "a,0\na,1\nb,2\n"], ids=["one rank", "one profile"])
def test_a_rank_map_that_contradicts_itself_is_refused(tmp_path, rows):
    # Falling through to another rule would number the ranks against the user's word.
    path = rank_map_file(tmp_path, "file,rank\n" + rows)
    with pytest.raises(UsageError, match="--rank-map"):
        read_rank_map(path, ["a", "b"])


def test_a_rank_map_may_list_profiles_that_are_not_there(tmp_path):
    path = rank_map_file(tmp_path, "file,rank\na,0\nelsewhere,0\n")
    assert read_rank_map(path, ["a"])["a", None] == 0


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_rank_map_that_cannot_be_read_is_told(tmp_path, content):
    path = tmp_path / "map.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        read_rank_map(str(path), ["a"])
