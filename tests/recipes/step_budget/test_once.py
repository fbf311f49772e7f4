"""What happens once is told with its own time, what every step has as a mean step."""

from __future__ import annotations

from random import Random

import pytest
from judgement.jobs import job, layers
from machine import simulate, write_profiles
from machine.program import Pop, Push, Sync
from quick_run import quick_run

from nsys_llm.report.price import price_words
from nsys_llm.report.run_findings import all_findings
from nsys_llm.report.run_tables import run_tables


def host(tmp_path, steps, length_ns):
    """Return title and price of the host's finding, of 12 steps some of which save something."""

    def body(make, rank, step):
        saving = [Push("save"), make.host(length_ns), Pop()] if step in steps else []
        return [Sync("stream"), *saving, *layers(make, 2)]

    program = job(Random(1), body, ranks_n=1, steps_n=12)
    write_profiles(simulate(program), tmp_path)
    run = quick_run("step_budget", tmp_path)
    found = all_findings(run, run_tables(run))
    (made,) = (made for made in found if made.rule == "path_host")
    return made.title, price_words(made.price)


@pytest.mark.parametrize(
    ("steps", "length_ns", "title", "each"),
    [
        ((7,), 4_000_000, "Rank 0's host: 4.06 ms in `save`", False),
        (range(12), 400_000, "Rank 0's host: 398 us a step in `save`", True),
    ],
    ids=["once", "in every step"],
)
def test_one_event_is_told_as_one_event(steps, length_ns, title, each, tmp_path):
    said, price = host(tmp_path, steps, length_ns)
    assert said == title
    assert (" a step" in price) == each
