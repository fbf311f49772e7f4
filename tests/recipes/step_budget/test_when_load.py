"""All GPUs that compute longer from a step on: nothing is said where names tell of more work."""

from __future__ import annotations

import pytest
from quick_run import quick
from serving_plants import Server, _Maker

STEPS_N, AT = 160, 80


class Decoding(_Maker):
    """A server that generates for four requests, and for others or elsewhere from a step on."""

    more_keys, more_requests, slower = 0, 0, 1.0

    def _arrive(self):
        if not self.every:
            self.generating = [[3000, 1000] for _ in range(4)]

    def _step(self, number):
        if number == AT:
            self.generating = [[keys + self.more_keys, left] for keys, left in self.generating]
            self.generating += [[8000, 1000] for _ in range(self.more_requests)]
        return super()._step(number)

    def _taken(self, ns):
        return super()._taken(ns * (self.slower if len(self.every) > AT else 1.0))


def when_of(folder, engine="vllm_sums", **change):
    server = Server(engine, steps_n=STEPS_N, graphs=(8,))
    maker = type("Changed", (Decoding,), change)(server, 3)
    return quick("step_budget", maker.made().write(folder / "rank0.sqlite"))["when"]


@pytest.mark.parametrize(
    "change", [{"more_keys": 8000}, {"more_requests": 4}, {"engine": "vllm", "more_requests": 4}]
)
def test_more_work_is_no_slow_gpu(tmp_path, change):
    assert when_of(tmp_path, **change).empty


@pytest.mark.parametrize("engine", ["vllm_sums", "vllm"])
def test_as_much_work_that_takes_longer_is(tmp_path, engine):
    (row,) = when_of(tmp_path, engine, slower=1.3).query("of_job").to_dict("records")
    assert (row["about"], row["kind"]) == ("all_compute", "from")
    assert abs(row["first_step"] - AT) <= 1
