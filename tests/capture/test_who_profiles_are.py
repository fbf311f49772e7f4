"""Who profiles are: groups, earlier runs, and what must be taken for neither."""

import time

import pytest

from nsys_llm.capture.identity import (
    Member,
    Session,
    earlier_runs,
    folded,
    gpu_neighbors,
    groups_of,
)
from nsys_llm.trace.identity import RankKey

S = 1_000_000_000
VLLM = ("vllm", None)
PROMPTS, TOKENS, BOTH = (("vllm", batch) for batch in ("prompts", "tokens", "both"))


def member(name, start_s=0, **known):
    given = {
        "program": "serve",
        "host": "node1",
        "gpus": frozenset(),
        "rank": None,
        "session": None if start_s is None else Session(start_s * S, (start_s + 10) * S),
        "busy_ns": S,
        **known,
    }
    return Member(RankKey(f"/ranks/{name}.sqlite", 1), **given)


def groups(members, *met, matched=True, unplaced=""):
    """Return the names of each group's members, the group with most GPU time first."""
    by_name = {one.key.path[7:-7]: one for one in members}
    together = [{by_name[name].key for name in some} for some in met]
    talking = {by_name[name].key for name in unplaced}
    if not matched:
        talking = {one.key for one in members if one.communicates}
    found = groups_of(members, together, talking)
    return [
        "".join(name for name, one in by_name.items() if found[one.key] == number)
        for number in range(len(set(found.values())))
    ]


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("VLLM::EngineCore_DP3", "VLLM::EngineCore"),
        ("VLLM::Worker_TP0_EP12", "VLLM::Worker"),
        ("/usr/bin/python3.10", "python#.#"),
        ("ray::Worker [rank7]", "ray::Worker"),
        ("sglang::scheduler_DP0_TP1", "sglang::scheduler"),
        ("", None),
        (None, None),
    ],
)
def test_a_program_is_called_the_same_on_all_ranks(name, program):
    assert folded(name) == program


def test_who_has_collectives_together_is_one_group_whatever_it_is_called():
    members = [member("a", program="trtllm"), member("b", program="mpi", step=VLLM), member("c")]
    assert groups(members, "ab", "bc") == ["abc"]


def test_ranks_whose_partners_are_not_known_may_be_each_others():
    members = [member(name) for name in "abcd"]
    assert groups(members, "ab", "cd", unplaced="bd") == ["abcd"]
    assert groups(members, "ab", "cd", unplaced="b") == ["ab", "cd"]
    apart = [*members[:2], member("c", step=("vllm", "decode")), member("d", step=VLLM)]
    assert groups(
        [member("a", step=("vllm", "prefill")), *apart[1:]], "ab", "cd", unplaced="ac"
    ) == ["ab", "cd"]


def test_two_servers_with_collectives_of_their_own_are_two_groups():
    members = [member("a"), member("b"), member("c", busy_ns=3 * S), member("d")]
    assert groups(members, "ab", "cd") == ["cd", "ab"]


@pytest.mark.parametrize(
    "others",
    [
        {"step": PROMPTS},  # reads prompts for others
        {"program": "frontend"},
        {"start_s": 100},  # and says no rank
    ],
)
def test_who_has_nothing_in_common_is_a_group_of_its_own(others):
    members = [member("a", step=TOKENS), member("b", step=TOKENS)]
    one = member("c", **{"step": TOKENS, **others})
    assert groups([*members, one]) == ["ab", "c"]
    assert groups([*members, one], "ab") == ["ab", "c"]


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"program": None},
        {"start_s": None},
        {"start_s": 9},  # the ends overlap
        {"step": VLLM},  # a rank of empty batches
        {"step": None},
    ],
)
def test_engines_without_collectives_are_one_group(others):
    members = [member("a", step=TOKENS), member("b", **{"step": TOKENS, **others})]
    assert groups(members) == ["ab"]


def test_ranks_that_started_minutes_apart_are_one_group_as_they_say_so():
    members = [member("a", rank=0), member("b", rank=1, start_s=300)]
    assert groups(members) == ["ab"]
    assert earlier_runs(members) == []


def test_a_server_whose_ranks_read_and_write_is_no_worker_of_one_kind():
    members = [member("a", step=BOTH), member("b", step=BOTH)]
    assert groups(members) == ["ab"]
    assert groups([*members, member("c", step=PROMPTS)]) == ["ab", "c"]


def test_where_nothing_is_matched_whoever_communicates_may_be_one_job():
    members = [member("a", communicates=True), member("b", program="x", communicates=True)]
    assert groups(members, matched=False) == ["ab"]
    apart = [member("a", step=PROMPTS, communicates=True), member("b", step=TOKENS)]
    assert len(groups(apart, matched=False)) == 2


def test_who_tells_nothing_of_its_steps_makes_no_group_of_two():
    read, write = (
        [member(name, step=step) for name in names]
        for names, step in (("ab", PROMPTS), ("cd", TOKENS))
    )
    unknown = [member("e", step=None), member("f", step=VLLM)]
    assert groups([*read, *write, *unknown], unplaced="abcdef") == ["abef", "cd"]


def test_thousands_of_ranks_are_grouped_at_once():
    members = [member(f"m{number}", step=TOKENS, rank=number % 9) for number in range(2_000)]
    begin = time.process_time()
    for unplaced in ({one.key for one in members}, ()):
        assert set(groups_of(members, [], unplaced).values()) == {0}
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ({}, True),
        ({"start_s": 60}, False),
        ({"start_s": None}, False),  # nobody knows when
        ({"gpus": frozenset({"uuid2"})}, False),
    ],
)
def test_a_gpu_is_shared_by_who_surely_has_it_at_one_time(other, shared):
    known = {"gpus": frozenset({"uuid1"}), "host": "pod1"}
    members = [member("a", **known), member("b", **{**known, "host": "pod2", **other})]
    assert [one.key.path for one, _ in gpu_neighbors(members)] == (
        [one.key.path for one in members] if shared else []
    )


@pytest.mark.parametrize(
    ("known", "later"),
    [
        ({"gpus": frozenset({"uuid1"})}, {}),
        ({}, {}),  # one host, and nobody says a rank
        ({"rank": 1}, {}),
        ({"gpus": frozenset({"uuid1"}), "rank": 1}, {"rank": 0}),  # the GPU tells more
    ],
)
def test_what_ran_before_on_the_same_gpu_is_an_earlier_run(known, later):
    members = [member("after", 60, **known | later), member("before", 0, **known)]
    assert earlier_runs(members) == [["/ranks/before.sqlite"]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"rank": 0}, {"rank": 1}),
        ({"gpus": frozenset({"uuid1"})}, {"gpus": frozenset({"uuid2"})}),
        ({}, {"host": "node2"}),
        ({"host": None}, {"host": None}),
        ({}, {"program": "bench"}),
        ({}, {"start_s": 5}),  # at the same time
        ({}, {"start_s": None}),
    ],
)
def test_what_may_be_a_rank_of_the_job_is_no_earlier_run(first, second):
    assert earlier_runs([member("a", **first), member("b", **{"start_s": 60, **second})]) == []


def test_an_earlier_run_is_all_that_was_recorded_with_it():
    members = [
        member(f"{run}{n}", start, rank=n)
        for run, start in (("a", 0), ("b", 60), ("c", 120))
        for n in (0, 1)
    ]
    members.append(member("a9", 3, rank=9))  # which the newest has not
    found = [[path[7:-7] for path in run] for run in earlier_runs(members)]
    assert found == [["a0", "a1", "a9"], ["b0", "b1"]]
