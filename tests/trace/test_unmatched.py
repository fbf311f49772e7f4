"""Options that match no name: what a rank says, what is refused, and the names beside it."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
from effort import seeds
from quick_run import resolved
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.profile.inputs import expand_sides
from nsys_llm.run.cli import main
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.taxonomy.names import normalize_range, step_key
from nsys_llm.trace.ranges import typed_name
from nsys_llm.trace.rank_sets import entries_by_side
from nsys_llm.trace.unmatched import Unmatched, nearest_names, refuse_unmatched


def rank(path, *names, kernel="gemm"):
    trace = TraceBuilder()
    for number, (name, domain) in enumerate(names):
        trace.nvtx(name, 100 * number, 100 * number + 90, domain=domain)
        launch = (100 * number + 5, 100 * number + 9)
        trace.kernel(kernel, start_ns=5_000 + 100 * number, duration_ns=50, launch=launch)
    if not names:
        trace.kernel(kernel, start_ns=5_000, duration_ns=50, launch=(5, 9))
    return trace.write_sqlite(path)


STEPS = [*((f"step {number}", "") for number in range(4)), ("comm", "NCCL")]


def mapped(recipe, *words):
    options = resolved(recipe, "--input", *words)
    inputs, _ = expand_sides(entries_by_side(options))
    parts = [map_profiles([profile], recipe=recipe, options=options) for profile in inputs]
    return parts, options


def refused(ranks, options):
    with pytest.raises(UsageError) as error:
        refuse_unmatched(ranks, options)
    assert "\n" not in error.value.message
    return error.value.message


@pytest.mark.parametrize(
    ("recipe", "flag", "text", "nearest"),
    [
        ("llm_hotspots", "--filter-nvtx", "stepp", ["step #", "comm"]),
        ("llm_hotspots", "--filter-projected-nvtx", "COMM", ["comm", "step #"]),
        ("llm_hotspots", "--filter-nvtx", "comm@NCC", ["comm@NCCL", "step #@default"]),
        ("llm_hotspots", "--filter-nvtx", "step #@NCCL", ["step #@default", "comm@NCCL"]),
        ("tail_stats", "--step-kernel", "gem_", ["gemm"]),
        ("tail_stats", "--step", "re:^stop", ["step #", "comm"]),
        ("nvtx_phase_attribution", "--step", "step", ["step #", "comm"]),
        ("idle_gaps", "--filter-nvtx", "re:COMM", ["comm", "step #"]),
    ],
)
def test_a_name_that_nothing_matches_comes_back_with_the_nearest(
    tmp_path, recipe, flag, text, nearest
):
    path = rank(tmp_path / "rank0.sqlite", *STEPS)
    (part,), options = mapped(recipe, str(path), flag, text)
    (outcome,) = part.profiles[0].ranks
    assert outcome.unmatched == (Unmatched(flag[2:].replace("-", "_"), tuple(nearest)),)
    assert any(text in note for note in outcome.notes)
    message = refused([outcome.unmatched], options)
    assert message.startswith(f"{flag}: no ")
    assert f"'{text}'" in message
    assert message.endswith("nearest: " + ", ".join(f"'{name}'" for name in nearest) + ".")


@pytest.mark.parametrize(
    "text",
    [
        *("step #", "step 2", "re:^step", r"re:\d$", "re:^step #$", "re:.@*/0"),
        *("comm@NCCL", "comm/0", "step #@default/3", "step 1/0"),
    ],
)
def test_a_name_that_something_matches_is_left_alone(tmp_path, text):
    path = rank(tmp_path / "rank0.sqlite", *STEPS)
    (part,), options = mapped("llm_hotspots", str(path), "--filter-nvtx", text)
    assert part.profiles[0].ranks[0].unmatched == ()
    refuse_unmatched([()], options)


@pytest.mark.parametrize("recipe", ["llm_hotspots", "nvtx_phase_attribution"])
def test_a_name_that_one_rank_has_is_a_note_of_the_others(tmp_path, recipe):
    paths = [rank(tmp_path / f"rank{number}.sqlite", *STEPS[:number]) for number in range(3)]
    flags = ["--filter-nvtx", "step 1", "--step", "step 1", "--steps", "0:1"]
    parts, options = mapped(recipe, *map(str, paths), *flags)
    merged = {
        tuple(profile.label for profile in result.profiles): [
            rank.unmatched for profile in result.profiles for rank in profile.ranks
        ]
        for order in itertools.permutations(parts)
        for result in (merge_results(order),)
    }
    assert len(merged) == 1
    (unmatched,) = merged.values()
    both = ("filter_nvtx", "step", "steps")
    assert [tuple(entry.option for entry in of_rank) for of_rank in unmatched] == [both, both, ()]
    refuse_unmatched(unmatched, options)
    notes = [note for part in parts for note in part.profiles[0].notes if "'step 1'" in note]
    assert len(notes) >= 2
    assert len(refused(unmatched[:2], options).split("; no")) == 1


def test_ranks_without_ranges_say_what_to_record(tmp_path):
    path = rank(tmp_path / "rank0.sqlite")
    (part,), options = mapped("llm_hotspots", str(path), "--filter-nvtx", "step")
    assert part.profiles[0].ranks[0].unmatched == (Unmatched("filter_nvtx", ()),)
    assert "--trace=nvtx" in refused([part.profiles[0].ranks[0].unmatched], options)


def numbered(path, counts):
    """Write ranges "inner" on several threads, so many on each; every one launches a kernel."""
    trace = TraceBuilder()
    for thread, count in enumerate(counts):
        for number in range(count):
            at_ns = 1_000 * thread + 100 * number
            trace.nvtx("inner", at_ns, at_ns + 90, tid=100 + thread)
            launch = (at_ns + 5, at_ns + 9)
            trace.kernel(
                "k", start_ns=50_000 + at_ns, duration_ns=9, launch=launch, tid=100 + thread
            )
    return str(trace.write_sqlite(path))


@pytest.mark.parametrize("seed", seeds(12, 4))
@pytest.mark.parametrize("flag", ["--filter-nvtx", "--filter-projected-nvtx", "--steps"])
def test_a_number_beyond_the_last_instance_comes_back_with_how_many_there_are(tmp_path, seed, flag):
    chance = random.Random(seed)
    counts = [[chance.randint(1, 6) for _ in range(chance.randint(1, 3))] for _ in range(3)]
    paths = [numbered(tmp_path / f"rank{rank}.sqlite", each) for rank, each in enumerate(counts)]
    most = [max(each) for each in counts]
    wanted = chance.randint(0, 7)
    text = f"{wanted}:" if flag == "--steps" else f"inner/{wanted}"
    step = ["--step", "inner"] if flag == "--steps" else []
    parts, options = mapped("llm_hotspots", *paths, flag, text, *step)
    outcomes = [part.profiles[0].ranks[0] for part in parts]
    for outcome, there_n in zip(outcomes, most, strict=True):
        few = wanted >= there_n
        assert [entry.there_n for entry in outcome.unmatched] == ([there_n] if few else [])
        said = [note for note in outcome.notes if f"'{text}'" in note]
        assert len(said) == len(outcome.notes) == few
        noun = "step" if flag == "--steps" else "instance"
        assert all(f" {there_n} {noun}" in note for note in said)
    unmatched = [outcome.unmatched for outcome in outcomes]
    if wanted < max(most):
        refuse_unmatched(unmatched, options)
    else:
        assert f" {max(most)} " in refused(unmatched, options)


def test_steps_that_are_partly_there_are_taken_and_the_rest_is_told(tmp_path):
    path = numbered(tmp_path / "rank0.sqlite", [3])
    (part,), options = mapped("llm_hotspots", path, "--steps", "1:9", "--step", "inner")
    (outcome,) = part.profiles[0].ranks
    assert outcome.unmatched == ()
    assert outcome.notes == ("--steps '1:9': there are 3 steps (0 to 2); 2 of them are selected",)
    refuse_unmatched([outcome.unmatched], options)
    for whole in ("1:3", ":3", "0:", ":1"):
        (part,), _ = mapped("llm_hotspots", path, "--steps", whole, "--step", "inner")
        assert part.profiles[0].ranks[0].notes == ()


def test_without_steps_none_can_be_chosen(tmp_path):
    path = rank(tmp_path / "rank0.sqlite")
    (part,), options = mapped("llm_hotspots", str(path), "--steps", "0:1")
    message = refused([part.profiles[0].ranks[0].unmatched], options)
    assert message.startswith("--steps '0:1': there are no steps")
    assert "--step" in message
    (part,), options = mapped("llm_hotspots", str(path), "--steps", "0:1", "--step", "nope")
    assert "there are no steps" not in refused([part.profiles[0].ranks[0].unmatched], options)


@pytest.mark.parametrize("seed", range(30))
def test_the_nearest_of_all_are_among_the_nearest_of_each(seed):
    chance = random.Random(seed)
    words = ["".join(chance.choices("abst", k=chance.randint(1, 7))) for _ in range(200)]
    parts = [chance.sample(words, 40) for _ in range(4)]
    typed = chance.choice(words) + "x"
    of_parts = [name for part in parts for name in nearest_names(typed, part, 10)]
    assert nearest_names(typed, of_parts, 5) == nearest_names(typed, itertools.chain(*parts), 5)


NAMES = [
    "step",
    "a@b",
    r"a\b",
    "model/7",
    "re:x",
    "two words",
    "a#b",
    "@",
    "/3",
    "7/",
    "it 12 of 3",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("domain", [None, "", "NCCL", "a@b/c"])
def test_a_name_that_is_offered_is_taken(name, domain):
    for text in (name, step_key(name)):
        choice = parse_choice(typed_name(text, domain))
        assert choice.names(name)
        assert choice.holds(domain or "")
        assert choice.index is None
        assert not choice.expression
        if domain is not None:
            assert not choice.holds("other")


@pytest.mark.parametrize("seed", range(20))
def test_the_placeholder_stands_for_numbers_alone(seed):
    chance = random.Random(seed)
    pieces = ["step", " ", "_", "(", ")", "#", "12", "0", "AllToAll4D", ", seq = 9", "."]
    for _ in range(200):
        raw = "".join(chance.choices(pieces, k=chance.randint(1, 6))).strip()
        typed = step_key(raw)
        if not typed:
            continue
        choice = parse_choice(typed_name(typed))
        assert choice.names(raw)
        other = re.sub(r"[0-9]+", "x", normalize_range(raw))
        assert choice.names(other) == (other == typed or "x" not in other)


def test_a_run_is_refused_in_one_line_and_publishes_nothing(tmp_path, capsys):
    path: Path = rank(tmp_path / "in.sqlite", *STEPS)
    words = ["--input", str(path), "--output", str(tmp_path / "out"), "--mode", "none"]
    assert main(["llm_hotspots", *words, "--filter-nvtx", "stepp"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line
        == "error: --filter-nvtx: no NVTX range 'stepp' on the rank; nearest: 'step #', 'comm'."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.sqlite"]


def test_launches_that_were_not_traced_are_named_where_a_range_is_asked_for(tmp_path):
    path = TraceBuilder().nvtx("s", 0, 5).kernel("a", start_ns=10, end_ns=15)
    path = path.write_sqlite(tmp_path / "a.sqlite")
    (part,), options = mapped("llm_hotspots", str(path), "--filter-nvtx", "s")
    message = "no API calls were traced on the rank, so no launch can be assigned to an NVTX range."
    assert refused([part.profiles[0].ranks[0].unmatched], options) == message


def busy(path, device, *starts_ns):
    trace = TraceBuilder()
    for start_ns in starts_ns:
        trace.nvtx("step", start_ns - 100, start_ns - 50)
        launch = (start_ns - 90, start_ns - 80)
        trace.kernel("k", start_ns=start_ns, duration_ns=50, device_id=device, launch=launch)
    return str(trace.write_sqlite(path))


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ["--device", "2-3", "--filter-time", "9ms/"],
            "--device: none of these has GPU work on any of 2 ranks; there is some on device 0, 1, "
            "as its process counts them (--ranks chooses ranks).",
        ),
        (
            ["--filter-time", "9ms/"],
            "--filter-time (in ns, or 5s, 60ms) leaves no GPU work on any of 2 ranks; there is "
            "some from 1000 to 2000050 ns (0.0 to 2.0 ms).",
        ),
        (
            ["--filter-time", "900us/", "--filter-nvtx", "step/0"],
            "the filters leave no GPU work on any of 2 ranks; there is some from 1000 to "
            "2000050 ns (0.0 to 2.0 ms).",
        ),
    ],
)
def test_what_leaves_no_work_of_any_rank_is_refused_with_what_there_is(
    tmp_path, capsys, flags, line
):
    busy(tmp_path / "rank0.sqlite", 0, 1_000, 1_000_000)
    busy(tmp_path / "rank1.sqlite", 1, 1_000, 2_000_000)
    words = ["--input", str(tmp_path), "--output", str(tmp_path / "out"), "--mode", "none"]
    assert main(["llm_hotspots", *words, *flags]) == 2
    assert capsys.readouterr().err == f"error: {line}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        (["--device", "1"], "--device: none of these has GPU work; there is some on device 0,"),
        (
            ["--start", "1500us"],
            "--filter-time (in ns, or 5s, 60ms) leaves no GPU work; there is some from 1000 to",
        ),
    ],
)
def test_a_device_or_window_that_one_rank_has_is_a_note_of_the_others(tmp_path, flags, note):
    paths = [busy(tmp_path / "a.sqlite", 0, 1_000), busy(tmp_path / "b.sqlite", 1, 2_000_000)]
    parts, options = mapped("llm_hotspots", *paths, *flags)
    first, second = (profile.notes for part in parts for profile in part.profiles)
    assert [text for text in first if text.startswith(note)]
    assert not [text for text in second if text.startswith(note)]
    refuse_unmatched([rank.unmatched for part in parts for rank in part.profiles[0].ranks], options)
