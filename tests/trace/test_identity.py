"""Which rank is which: every rule in its turn, whatever the order of the inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.capture import RANK_VARIABLES, CaptureFacts
from nsys_llm.trace.identity import (
    RankEntry,
    RankKey,
    clock_offsets,
    machines,
    number_ranks,
    one_clock,
    read_rank_map,
)


def facts(variables=None, mpi=None, host="node1", utc=None, steady=None, session=None):
    return CaptureFacts(
        host=host,
        utc_epoch_ns=utc,
        system_clock_ns=steady,
        rank_variables=variables or {},
        mpi_ranks=mpi or {},
        session=session,
    )


def process(pid):
    return pid << 24


def entry(name, pid=1, *, variables=None, mpi=None):
    """Return a process with GPU work in the profile `name`."""
    mpi_ranks = None if mpi is None else {process(pid): mpi}
    key = RankKey(f"/ranks/{name}.sqlite", process(pid))
    return RankEntry(key, name, facts(variables, mpi_ranks), True)


def failed(name):
    """Return a profile that could not be read."""
    return RankEntry(RankKey(f"/ranks/{name}.sqlite", NULL_INT), name, None, False)


def idle(name, variables=None):
    """Return a valid profile without GPU work."""
    key = RankKey(f"/ranks/{name}.sqlite", NULL_INT)
    return RankEntry(key, name, facts(variables), False)


def shown(entries, rank_map=None):
    return [(rank.number, rank.file, rank.source) for rank in number_ranks(entries, rank_map)]


NOBODY = RankEntry(RankKey("/ranks/node.sqlite", NULL_INT), "node", facts(None, {}), True)
BY_RANK = {"RANK": 0}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            [entry("rank0", mpi=1, variables=BY_RANK), entry("rank1", mpi=0)],
            [(0, "0:rank1", "mpi_ranks"), (1, "1:rank0", "mpi_ranks")],
        ),
        (  # Work of no process breaks no rule, and comes last.
            [NOBODY, entry("node", 1, mpi=7), entry("node", 2, mpi=3)],
            [
                (3, "3:node.pid2", "mpi_ranks"),
                (7, "7:node.pid1", "mpi_ranks"),
                (8, "8:node", "index"),
            ],
        ),
        (  # Variables are those of the launched command, not of its children.
            [entry("rank3", pid, variables={"RANK": 9}) for pid in (11, 12)],
            [(0, "rank3.pid11", "index"), (1, "rank3.pid12", "index")],
        ),
        (  # A launcher's own environment says RANK=0 in every profile.
            [entry("rank5", variables=BY_RANK), entry("rank6", variables=BY_RANK)],
            [(5, "rank5", "file_name"), (6, "rank6", "file_name")],
        ),
        (
            [entry("rank5", variables=BY_RANK), entry("rank6", variables={"PMI_RANK": 1})],
            [(5, "rank5", "file_name"), (6, "rank6", "file_name")],
        ),
        (
            [entry("a/rank0"), entry("b/rank0")],
            [(0, "a/rank0", "index"), (1, "b/rank0", "index")],
        ),
        (  # As people count, and then by pid.
            [entry("n10"), entry("n9", 12), entry("n9", 3)],
            [(0, "0:n9.pid3", "index"), (1, "1:n9.pid12", "index"), (2, "2:n10", "index")],
        ),
        (  # A profile that cannot be read keeps its place,
            [entry("a"), failed("b"), entry("c")],
            [(0, "a", "index"), (1, "b", "index"), (2, "c", "index")],
        ),
        (  # has the number in its name, if that rule numbers the set,
            [entry("rank0"), failed("rank1")],
            [(0, "rank0", "file_name"), (1, "rank1", "file_name")],
        ),
        (  # or has none, and no source.
            [failed("a"), entry("b", variables={"RANK": 1})],
            [(1, "b", "env:RANK"), (None, "a", None)],
        ),
        (  # One without work never takes the number of a rank with work,
            [idle("z", BY_RANK), entry("a", variables=BY_RANK)],
            [(0, "a", "env:RANK"), (None, "z", None)],
        ),
        (  # and has one where no profile has any: else --world-size would call ranks absent.
            [idle("rank1"), idle("rank0")],
            [(0, "rank0", "file_name"), (1, "rank1", "file_name")],
        ),
    ],
)
def test_the_first_rule_that_numbers_all_is_taken(entries, expected):
    assert shown(entries) == expected


def test_a_rank_map_wins_and_tells_processes_of_one_profile_apart():
    entries = [entry("rank0", variables={"RANK": 5}, mpi=7), entry("rank1", 2, mpi=8)]
    mapped = {("rank0", None): 3, ("rank1", None): 2}
    assert shown(entries, mapped) == [(2, "2:rank1", "rank_map"), (3, "3:rank0", "rank_map")]
    mapped = {("node", 11): 1, ("node", 12): 0}
    ranks = number_ranks([entry("node", 11), entry("node", 12)], mapped)
    assert [rank.pid for rank in ranks] == [12, 11]


def test_variables_are_believed_in_their_order():
    left = {name: 10 + position for position, name in enumerate(RANK_VARIABLES)}
    for position, name in enumerate(RANK_VARIABLES):
        assert shown([entry("rank7", variables=left)]) == [(10 + position, "rank7", f"env:{name}")]
        del left[name]
    assert shown([entry("rank7")]) == [(7, "rank7", "file_name")]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("rank3", 3), ("Rank_12", 12), ("job7.rank-4.h100", 4), ("vllm_rank=05_of_8", 5)),
        *(("RANK.6", 6), ("localrank0_rank9", 9)),
        *((name, None) for name in ("local_rank2", "localrank2", "node3", "rank")),
    ],
)
def test_a_number_after_rank_in_the_file_name_counts_but_not_a_local_one(name, number):
    ((rank_number, _, source),) = shown([entry(name)])
    assert (rank_number, source) == ((0, "index") if number is None else (number, "file_name"))


names = st.sampled_from(
    ["a", "rank0", "rank1", "rank2", "rank02", "rank10", "b/rank1", "n01", "n1"]
)
ranks = st.integers(0, 3)
workers = st.builds(
    entry,
    names,
    st.integers(1, 2),
    variables=st.dictionaries(st.sampled_from(RANK_VARIABLES[:2]), ranks, max_size=2),
    mpi=st.one_of(st.none(), ranks),
)
sets = st.lists(workers, max_size=5, unique_by=lambda candidate: candidate.key)


@st.composite
def sets_with_failures(draw):
    """Draw ranks and profiles that failed; a profile that failed has no ranks."""
    entries = draw(sets)
    there = {candidate.label for candidate in entries}
    more = draw(st.lists(names, max_size=3, unique=True))
    return entries + [failed(name) for name in more if name not in there]


maps = st.one_of(
    st.none(), st.dictionaries(st.tuples(names, st.sampled_from([None, 1, 2])), ranks, max_size=4)
)


@given(sets_with_failures(), maps)
def test_numbers_are_distinct_and_labels_unique_and_sorted(entries, rank_map):
    ranked = number_ranks(entries, rank_map)
    assert sorted(rank.key for rank in ranked) == sorted(candidate.key for candidate in entries)
    numbered = [rank for rank in ranked if rank.number is not None]
    assert ranked[: len(numbered)] == numbered
    ordered = [rank.number for rank in numbered]
    assert ordered == sorted(set(ordered))
    labels = [rank.file for rank in numbered]
    assert labels == sorted(set(labels))
    assert {candidate.key for candidate in entries if candidate.has_work} <= {
        rank.key for rank in numbered
    }
    assert len({rank.source for rank in numbered}) <= 1


def test_one_host_is_aligned_by_its_steady_clock():
    captures = {"a": facts(steady=107, utc=1), "b": facts(steady=100, utc=2)}
    assert clock_offsets(captures) == ({"a": 7, "b": 0}, "systemClockNs")


@pytest.mark.parametrize(
    "other",
    [facts(host="node2", steady=100, utc=2), facts(utc=2), facts(host=None, steady=1, utc=2)],
    ids=["another host", "no steady clock", "host unknown"],
)
def test_otherwise_the_wall_clock_aligns(other):
    captures = {"a": facts(steady=107, utc=9), "b": other}
    assert clock_offsets(captures) == ({"a": 7, "b": 0}, "utcEpochNs")


def test_captures_that_name_no_host_may_be_of_two():
    captures = {"a": facts(host=None, steady=107, utc=3), "b": facts(host=None, steady=1, utc=2)}
    assert clock_offsets(captures) == ({"a": 1, "b": 0}, "utcEpochNs")


def test_one_capture_without_a_clock_leaves_all_unaligned():
    assert clock_offsets({"a": facts(utc=9), "b": facts()}) == ({}, None)
    assert clock_offsets({}) == ({}, None)


ONE_SESSION = {"utc": 1_700_000_000_000_000_123, "steady": 38_133_239_887, "session": "8a7c"}


@pytest.mark.parametrize(
    "other",
    [
        {"session": "77ff"},
        {"host": "node2"},
        {"host": None},
        {"utc": 1_700_000_000_000_000_124},
        {"steady": 38_133_239_888},
        {"steady": None},
    ],
)
def test_profiles_of_one_session_have_one_clock_and_all_others_their_own(other):
    first = facts(**ONE_SESSION)
    differs = facts(**{**ONE_SESSION, **other})
    profiles = {"/a": first, "/b": differs, "/c": facts(**ONE_SESSION), "/d": None}
    assert one_clock(profiles) == {"/a": 0, "/b": 1, "/c": 0, "/d": 2}
    assert one_clock({"/a": differs, "/b": None}) == {"/a": 0, "/b": 1}
    # Exports that lack the id of the session tell by the start, to the nanosecond.
    bare = facts(**{**ONE_SESSION, "session": None})
    assert one_clock({"/a": bare, "/b": bare}) == {"/a": 0, "/b": 0}
    assert one_clock({"/a": facts(), "/b": facts()}) == {"/a": 0, "/b": 1}


def test_machines_of_one_name_are_told_apart_by_their_boots():
    """Containers are all called `host`; wall clocks of one machine differ by less than 2 s."""
    second = 10**9
    given = {
        "a": facts(host="host", utc=1000 * second, steady=100 * second),
        "b": facts(host="host", utc=1000 * second, steady=300 * second),
        "c": facts(host="host", utc=1061 * second, steady=160 * second),
        "d": facts(host="host", utc=1000 * second),
        "e": facts(host=None, utc=1000 * second, steady=100 * second),
        "f": None,
    }
    known = {"a": "host", "b": "host (2)", "c": "host", "d": "host", "e": None, "f": None}
    assert machines(given) == known
    # A steady clock means something on one machine only.
    assert clock_offsets({name: given[name] for name in "ab"}) == ({"a": 0, "b": 0}, "utcEpochNs")
    one = clock_offsets({name: given[name] for name in "ac"})
    assert one == ({"a": 0, "c": 60 * second}, "systemClockNs")
    ranks = number_ranks([RankEntry(RankKey(name, 1), name, given[name], True) for name in "ab"])
    assert [rank.host for rank in ranks] == ["host", "host (2)"]


FILE = "map.csv"


def test_a_rank_map_names_profiles_with_or_without_suffix():
    text = "file,pid,rank\na.sqlite,11,1\na.sqlite,12, 0\n b ,,2\nc_pqtdir,,3\n"
    expected = {("a", 11): 1, ("a", 12): 0, ("b", None): 2, ("c", None): 3}
    # It may list profiles that are not there.
    assert read_rank_map(FILE, text, ["a", "b"]) == expected


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
        ("file,rank\na,9999999999\n", "'9999999999'"),
        ("file,rank\nb,0\n", "gives no rank to a"),
    ],
)
def test_a_rank_map_that_does_not_number_the_set_is_refused(text, hint):
    with pytest.raises(UsageError) as caught:
        read_rank_map(FILE, text, ["a"])
    assert hint in caught.value.message
    assert FILE in caught.value.message


@pytest.mark.parametrize("rows", ["a,0\nb,0\n", "a,0\na,1\nb,2\n"], ids=["one rank", "one profile"])
def test_a_rank_map_that_contradicts_itself_is_refused(rows):
    # Falling through to another rule would number the ranks against the user's word.
    with pytest.raises(UsageError, match="--rank-map"):
        read_rank_map(FILE, "file,rank\n" + rows, ["a", "b"])
