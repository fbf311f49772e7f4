"""The first screen of an overview: one screen, numbers whole, names cut, gains in one unit."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from report_maker import FINDING, made_report, made_results

from nsys_llm.report.first_screen import first_screen_lines
from nsys_llm.report.price import Price
from nsys_llm.report.screen import Scale, Screen, subject
from nsys_llm.report.wall_line import Bound, WallLine, WallPart
from nsys_llm.trace.outcomes import ProfileOutcome
from nsys_llm.view.text import quoted

BOUND = "GPU-BOUND and COMMUNICATION-BOUND"
LONG = "void " + "x" * 60 + "<int>(a, b)"
SCREEN = Screen(
    facts="2 GPUs, 300 ms each, 17 layers, 17.74 ms a layer",
    whole_ns=17_740_000.0,
    whole="a layer",
    by_step=True,
    subject="before",
)
#: Share of the span of each finding that is made, in per mille: 300 is 30 %.
SPAN_NS = 300_000_000


def gained(per_mille, title="Kernels", *, is_bound=True, **others):
    gain_ns = SPAN_NS * per_mille // 1000
    usual = {} if is_bound else {"about_ns": gain_ns, "about_basis": "usual"}
    price = Price(SPAN_NS, ("compute",), bound_ns=gain_ns, **usual)
    return replace(FINDING, title=title, price=price, **others)


def screen_of(tmp_path, *findings, screen=SCREEN, width=80, height=24, **texts):
    manifest, _ = made_results(tmp_path, [("f", "gemm", 1, 1, 1.0)], [])
    report = made_report(manifest, *findings, screen=screen, **texts)
    return first_screen_lines(report, screen, width, height)


def items_of(lines):
    """Return number, sureness, value and share of each opportunity that is shown."""
    matches = (
        re.match(r" ?(\d+) (at most|about) +([\d.]+) +([\d.]+ %)  \S", line) for line in lines
    )
    return [match.groups() for match in matches if match]


def test_the_screen_says_facts_gains_advice_and_what_to_trust(tmp_path):
    lines = screen_of(
        tmp_path,
        gained(300, "Unfused kernels: 30.0 % of rank 1's span"),
        gained(92, "Host gaps", is_bound=False),
        screen=replace(SCREEN, trust="One."),
        caveats=("One.", "Two."),
    )
    assert lines == [
        "before: 2 GPUs, 300 ms each, 17 layers, 17.74 ms a layer",
        "could gain (not additive), ms of 17.74 a layer",
        " 1 at most 5.32  30.0 %  Unfused kernels: 30.0 % of rank 1's span",
        " 2 about   1.63   9.2 %  Host gaps",
        "   first: Look at its launches.",
        "trust  One (1 more note in the report)",
    ]


GROUPS = [f"{quoted(f'group-{n}-of-a-long-name')}: 250 GPUs, 300 ms each" for n in range(3)]
LOST = replace(
    FINDING,
    rule="lost_work",
    kind="capture",
    title="71 of 100 launches left no kernel on 8 of 1,000 ranks: buffers were lost",
    recommendation="Record again with fewer processes and `--cuda-event-trace=false`. " * 3,
)


@pytest.mark.parametrize("ranks_n", [1, 2, 8, 1000])
@pytest.mark.parametrize("lost", [(), (LOST,)])
def test_a_full_screen_has_24_lines_and_keeps_what_is_first(tmp_path, ranks_n, lost):
    screen = replace(
        SCREEN,
        facts=f"{ranks_n:,} GPUs in 7 groups; decode: 300 ms each, 17 layers, 17.74 ms a layer",
        lines=(*GROUPS, "and 4 more groups: `ranks` lists them", "vLLM: 25 steps, 1 request"),
        trust="Word " * 40,
        ranks=frozenset(range(ranks_n)),
    )
    long = f"{quoted(LONG)} takes 30.2 % of the time on {ranks_n:,} ranks, in steps that are slow"
    findings = [gained(500 - n, long, is_bound=False) for n in range(12)]
    parts = tuple(WallPart(f"class {n}", 12.0, " (host 8.0)") for n in range(8))
    wall = (WallLine("", ranks_n, parts, parts, Bound(BOUND, "")),)
    lines = screen_of(tmp_path, *lost, *findings, screen=screen, wall=wall, caveats=("A.",) * 3)
    assert len(lines) + 5 <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert text.startswith("71 of 100 launches") == bool(lost)
    assert text.count("  group-") == 3
    assert "  and 4 more groups: ranks lists them\n  vLLM: 25 steps" in text
    assert len(items_of(lines)) >= 2
    assert bool(lost) == ("(2 more notes in the report)" not in text)


def test_what_gives_way_on_a_full_screen_is_in_a_fixed_order(tmp_path):
    """Second lines of later opportunities, of the wall, of the remark, then of all, then advice."""
    long = "takes the time of all the ranks in the steps that are slow, and of others"
    parts = tuple(WallPart(f"class {n}", 12.0) for n in range(8))
    texts = {
        "wall": (WallLine("", 8, parts, parts, Bound("GPU-BOUND", "")),),
        "caveats": ("A.", "B."),
    }
    seen = []
    for lines_n in range(14):
        told = tuple(f"Line {n}." for n in range(lines_n))
        screen = replace(SCREEN, trust="Word " * 24 + "end", lines=told)
        findings = [gained(300 - n, long, recommendation="Do.") for n in range(4)]
        lines = screen_of(tmp_path, *findings, screen=screen, **texts)
        at = [row for row, line in enumerate(lines) if re.match(r" ?\d+ at most", line)]
        trust = next(row for row, line in enumerate(lines) if line.startswith("trust"))
        first_n = at[1] - at[0] if len(at) > 1 else 1
        later_n = at[3] - at[2] if len(at) > 3 else 1
        advice_n = sum(line == "   first: Do." for line in lines)
        wall_n = sum("class" in line for line in lines)
        seen.append((later_n, wall_n, len(lines) - trust, first_n, advice_n, len(at)))
    kept = list(dict.fromkeys(seen))
    assert kept[:6] == [
        (2, 2, 2, 2, 1, 4),
        (1, 2, 2, 2, 1, 4),
        (1, 1, 2, 2, 1, 4),
        (1, 1, 1, 2, 1, 4),
        (1, 1, 1, 1, 1, 4),
        (1, 1, 1, 1, 0, 4),
    ]


def test_without_steps_gains_are_of_a_gpus_time(tmp_path):
    whole = replace(SCREEN, whole_ns=float(SPAN_NS), whole="of one GPU", by_step=False)
    lines = screen_of(tmp_path, gained(300), screen=whole)
    assert "could gain (not additive), ms of 300.0 of one GPU" in lines
    assert items_of(lines) == [("1", "at most", "90.0", "30.0 %")]
    # Another GPU's time is longer: each share is of its own.
    longer = replace(whole, whole_ns=2.0 * SPAN_NS)
    lines = screen_of(tmp_path, gained(300), screen=longer)
    assert "could gain (not additive), ms of one GPU" in lines
    assert items_of(lines) == [("1", "at most", "90.0", "30.0 %")]


def test_facts_that_the_bound_leaves_no_room_for_stand_below(tmp_path):
    facts = "8 GPUs, 17.8 ms each, 19 steps of 649 us, 1 of 18 ms with more in it"
    part = (WallPart("GEMM", 99.0),)
    wall = (WallLine("", 8, part, part, Bound(BOUND, "")),)
    screen = replace(SCREEN, facts=facts, subject="training-of-a-large-model")
    first, second, *_ = screen_of(tmp_path, gained(300), screen=screen, wall=wall)
    assert first.split() == ["training-of-a-large-model:", "8", "GPUs,", *BOUND.split()]
    assert second == "  17.8 ms each, 19 steps of 649 us, 1 of 18 ms with more in it"


@pytest.mark.parametrize("seed", range(40))
def test_any_screen_fits_and_counts_every_opportunity(tmp_path, seed):
    chance = random.Random(seed)
    width, height = chance.choice([60, 80, 100, 120]), chance.choice([24, 30, 50])
    words = ["rank 12", quoted(LONG), "takes", "30.2 %", "of", quoted("ab"), "1,234 times"]
    shares = sorted((chance.randint(10, 600) for _ in range(chance.randint(1, 14))), reverse=True)
    findings = [
        gained(share, " ".join(chance.choices(words, k=chance.randint(2, 15))), is_bound=share % 2)
        for share in shares
    ]
    advice = " ".join(["Do this."] * chance.randint(1, 40))
    findings[0] = replace(findings[0], recommendation=advice)
    screen = replace(
        SCREEN,
        subject=LONG,
        trust=" ".join(["word"] * chance.randint(0, 90)),
        verdict="SLOWER. " * chance.randint(0, 99),
    )
    lines = screen_of(
        tmp_path, *findings, screen=screen, width=width, height=height, caveats=("a b. " * 60,) * 5
    )
    assert max(map(len, lines)) <= width
    assert not screen.trust or "(4 more notes in the report)" in " ".join(" ".join(lines).split())
    # A blank line, `Generated:`, the folder, what to run next, and the prompt.
    assert len(lines) + 5 <= height
    items = items_of(lines)
    assert [int(number) for number, *_ in items] == list(range(1, len(items) + 1))
    assert items
    for share, (_, sure, value, percent) in zip(shares, items, strict=False):
        assert sure == ("at most" if share % 2 else "about")
        assert float(value) == pytest.approx(17.74 * share / 1000, abs=0.0051)
        assert percent == f"{share / 10} %"
    more_lines = [line for line in lines if re.fullmatch(r" +and \d+ more in the report", line)]
    assert more_lines == [f"   and {len(shares) - len(items)} more in the report"] * (
        len(items) < len(shares)
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_give_way_to_numbers(tmp_path, width):
    title = f"{quoted(LONG)} takes 30.2 % of 1,234 ms"
    screen = replace(SCREEN, subject=LONG)
    lines = screen_of(tmp_path, gained(300, title), screen=screen, width=width)
    assert SCREEN.facts in lines[0]
    assert "takes 30.2 % of 1,234 ms" in " ".join(" ".join(lines).split())


def test_a_run_is_called_like_its_report_or_the_folder_of_its_reports():
    def read(*paths):
        return subject([ProfileOutcome(path, path.split("/")[-1], None) for path in paths])

    assert read("/data/run7/before") == "before"
    assert read("/data/run7/a", "/data/run7/b") == "run7"
    assert read("/data/job/node1/a", "/data/job/node2/a") == "job"
    assert read("/data/run7/a", "/home/run8/b") == "2 reports"


@pytest.mark.parametrize("exponent", range(12))
def test_a_scale_shows_a_hundredth_of_the_whole(exponent):
    for digits in (100, 101, 555, 999):
        whole_ns = digits * 10.0 ** (exponent - 2)
        scale = Scale.of(whole_ns)
        assert float(scale.number(whole_ns)) * scale.unit_ns == pytest.approx(whole_ns, rel=0.006)
        if whole_ns >= 1:
            assert float(scale.number(whole_ns)) < 1000 or scale.unit == "s"
            assert float(scale.number(whole_ns / 100)) > 0
