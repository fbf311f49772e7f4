"""Communication is the same for every engine, so a rank can tell it before the engine is known."""

from __future__ import annotations

import pytest

from nsys_llm.taxonomy.categories import COMMUNICATION, ENGINES, load_rules
from nsys_llm.taxonomy.communication import is_communication

EXAMPLES = sorted({rule.example for engine in ENGINES for rule in load_rules(engine).rules})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_agrees_on_the_examples_of_all_rules(engine):
    rules = load_rules(engine)
    communication = {name for name in EXAMPLES if rules.classify(name).category == COMMUNICATION}
    assert communication == {name for name in EXAMPLES if is_communication(name)}
    assert len(communication) > 10


@pytest.mark.parametrize(
    "name", ["void at::native::reduce_kernel<512, 1>(int)", "nvjet_tst_192x192", "all", ""]
)
def test_reductions_on_one_gpu_are_no_communication(name):
    assert not is_communication(name)
