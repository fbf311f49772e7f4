"""Runs overviews of random jobs, and counts what they say of the wrong owner, or do not say.

    python tests/campaigns/sentences.py --machines 0:300 --seconds 60
    python tests/campaigns/sentences.py --machines 0:0 --plants 0:25     jobs with one slow rank
    python tests/campaigns/sentences.py --machines 7 --plants 0:0 --show    and the first screen

A job fails where a number of a title or first sentence is not that of what the title names, where
the first screen does not name a rank with a verdict that is no chance and worth 5 % of a GPU, and
where it says beside one that nothing would gain.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest import mock

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

from judgement.truth import planted  # noqa: E402
from machine import random_program, simulate, write_profiles  # noqa: E402
from machine.program import Program  # noqa: E402
from quick_run import quick_run  # noqa: E402
from title_claims import check_title  # noqa: E402

from nsys_llm.report import run_findings  # noqa: E402
from nsys_llm.report.building import finished  # noqa: E402
from nsys_llm.report.findings import Finding, finding_record  # noqa: E402
from nsys_llm.report.first_screen import first_screen_lines  # noqa: E402
from nsys_llm.report.part import Part  # noqa: E402
from nsys_llm.report.records import records  # noqa: E402

#: Jobs of which one rank or stage is slow, or that only seem so.
PLANTS: Final = ("context_ring", "slewing_clocks", "slow_in_stage", "uneven_stages", "even_stages")
#: What must be on the first screen: chance below, and share of a GPU from.
CHANCE: Final = 0.01
WORTH: Final = 0.05
_ITEM: Final = re.compile(r" ?(\d+) (?:about|at most|unknown|tail)\b")


def jobs(machines: range, plants: range) -> Iterator[tuple[str, Program]]:
    """Yield random jobs, every third with hosts that run ahead, and then planted ones."""
    for seed in machines:
        yield f"machine {seed}", random_program(seed, ahead=seed % 3 == 0)
    for seed, kind in itertools.product(plants, PLANTS):
        yield f"{kind} {seed}", planted(kind, seed)[0]


def problems(program: Program, *, show: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the overview of a job: its kind, and what it says."""
    false: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(run_findings, "priced", _kept(false)),
    ):
        write_profiles(simulate(program), Path(folder))
        whole = finished(quick_run("llm_overview", Path(folder)))
    yield from (("false number", text) for text in false)
    screen = whole.report.screen
    lines = [] if screen is None else first_screen_lines(whole.report, screen)
    if show:
        print(*lines, sep="\n")
    drawn_n = max((int(found[1]) for line in lines if (found := _ITEM.match(line))), default=0)
    shown = [made for made in whole.report.opportunities if made.price][:drawn_n]
    for rank, verdict in _sure(whole.parts):
        if not any(rank in (made.rank, *made.ranks) and _is_of_ranks(made) for made in shown):
            yield "not on the screen", f"rank {rank} {verdict}"
        if not shown:
            yield "nothing would gain", f"{whole.report.answer} (rank {rank} {verdict})"


def _kept(false: list[str]) -> Any:
    """Return what prices findings and keeps what is false in those that it prices."""
    priced = run_findings.priced

    def checked(findings: Iterable[Finding], tables: Mapping[str, Any]) -> list[Finding]:
        every = priced(findings, tables)
        for finding in every:
            try:
                check_title(finding_record(finding), tables)
            except AssertionError as error:
                false.append(f"{finding.rule}: {finding.title}: {error}")
        return every

    return checked


def _is_of_ranks(made: Finding) -> bool:
    return made.cause is not None and made.cause.kind in ("rank", "stage", "host")


def _sure(parts: Mapping[str, Part]) -> Iterator[tuple[int, str]]:
    """Yield ranks with verdicts that are no chance and worth something, of any recipe's table."""
    part = parts["step_budget"]
    for row in records(part.tables["rank_verdicts"]):
        if row["verdict"] in (None, "profiler") or (row["chance"] or 1.0) >= CHANCE:
            continue
        wall = part.tables["wall"]
        wall = wall[(wall["rank"] == row["rank"]) & (wall["device_id"] == row["device_id"])]
        share = max(row["more_pct"] or 0.0, 0.0) / 100.0
        more_ns = wall.loc[wall["wall_class"] == "compute", "time_ns"].sum() * share / (1 + share)
        late_ns = (row["late_ns"] or 0.0) * row["steps_n"]
        if max(more_ns, late_ns) >= WORTH * wall["span_ns"].max():
            yield row["rank"], row["verdict"]


def main() -> int:
    """Run the command; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--machines", type=_range, default=range(300), help="FIRST:END, or one")
    parser.add_argument("--plants", type=_range, default=range(20), help="likewise, of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then no more begins")
    parser.add_argument("--show", action="store_true", help="print first screens")
    given = parser.parse_args()
    began, wrong, jobs_n, name = time.monotonic(), Counter[str](), 0, ""
    for name, program in jobs(given.machines, given.plants):
        if time.monotonic() - began > given.seconds:
            print(f"stopped before {name}")
            break
        found = list(problems(program, show=given.show))
        for kind, text in found:
            print(f"{name}: {kind}: {text}", flush=True)
        wrong.update({kind for kind, _ in found})
        jobs_n += 1
    print(
        f"{jobs_n} jobs in {time.monotonic() - began:.0f} s; with {dict(wrong) or 'nothing wrong'}"
    )
    return int(bool(wrong))


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


if __name__ == "__main__":
    sys.exit(main())
