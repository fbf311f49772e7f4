"""What the names of serving engines' steps tell of their batch: formats, and what is none."""

import pytest

from nsys_llm.taxonomy.step_names import Composition, engine_steps, parse_step, range_key

SUMS = "sq5sk40sqsq9sqsk70"


@pytest.mark.parametrize(
    ("name", "composition"),
    [
        ("execute_context_4(8192)_generation_2(2)", Composition(4, 8192, gen_reqs=2, gen_tokens=2)),
        (
            f"execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_3({SUMS})",
            Composition(0, 0, 0, 0, 0, 3, 5, 40, 9, 70),
        ),
        ("execute_new_1_cached_8", Composition(others=(("new", 1), ("cached", 8)))),
        ("execute_new_2_cached_0",
         Composition(2, None, None, None, None, 0, 0, 0, 0, 0, (("new", 2), ("cached", 0)))),
        ("step[EXTEND bs=2 toks=107]", Composition(2, 107, None, None, None, 0, 0, 0, 0, 0)),
        ("step[DECODE bs=8]", Composition(0, 0, 0, 0, 0, 8, 8)),
        ("step[DECODE bs=8 g_sq=8 g_sqsq=8 g_sqsk=90 g_sk=90]",
         Composition(0, 0, 0, 0, 0, 8, 8, 90, 8, 90)),
        ("step[EXTEND bs=1 toks=7 c_sq=7 c_sqsq=49 c_sqsk=63 c_sk=9]",
         Composition(1, 7, 9, 49, 63, 0, 0, 0, 0, 0)),
        ("step[MIXED bs=5]", Composition(others=(("reqs", 5),))),
        ("step[MIXED bs=5 c=1 g=4]", Composition(1, gen_reqs=4, others=(("reqs", 5),))),
        ("step[TARGET_VERIFY bs=4 g_sq=20]", Composition(0, 0, 0, 0, 0, 4, 20)),
        ("step[TARGET_VERIFY bs=4]", Composition(0, 0, 0, 0, 0, 4)),
        ("[Executor] _forward_step 12: 0 ctx reqs, 30 gen reqs",
         Composition(0, 0, 0, 0, 0, 30, 30)),
        ("_forward_step: 2 ctx reqs, 512 ctx tokens, 8 gen reqs",
         Composition(2, 512, gen_reqs=8, gen_tokens=8)),
    ],
)  # fmt: skip
def test_formats_of_engines_are_read(name, composition):
    assert parse_step(name) == composition


@pytest.mark.parametrize(
    "name",
    [
        "execute_context_\u0661(5)_generation_0(0)",  # an Arabic digit
        "execute_context_1(5)_generation_0(0) ",
        "execute_context_-1(5)_generation_0(0)",
        f"execute_context_1({10**15})_generation_0(0)",
        "step[DECODE bs=8 g_xy=3]",
        "step[DECODE]",
        "_forward_step 3",
        "decode bs=8",
        "",
        # Names that contradict themselves.
        "step[DECODE bs=8 g=3]",
        "step[DECODE bs=8 g_sk=3 g_sk=9]",
        "step[EXTEND bs=1 toks=5 c_sq=7]",
        "step[EXTEND bs=1 toks=5 g_sq=7]",
        "step[MIXED bs=9 c=1 g=3]",
        "execute_context_0(7)_generation_1(1)",
        "[Executor] _forward_step 7: 0 ctx reqs, 9 ctx tokens, 1 gen reqs",
    ],
)
def test_other_names_are_no_format(name):
    assert parse_step(name) is None


def test_the_finder_takes_ascii_digits_alone():
    patterns = [kind.pattern for kind in engine_steps() if kind.name.startswith("execute_context")]
    assert patterns[0].matches("execute_context_1(5)_generation_0(0)")
    assert not patterns[0].matches("execute_context_\u0661(5)_generation_0(0)")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (f"execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_3({SUMS})",
         "execute_#_context_#(sq#sk#sqsq#sqsk#)_generation_#(sq#sk#sqsq#sqsk#)"),
        ("step[DECODE bs=8 g_sk=90]", "step[DECODE bs=# g_sk=#]"),
        ("AllToAll4D 7", "AllToAll4D #"),
    ],
)  # fmt: skip
def test_all_steps_of_a_format_share_a_name(name, key):
    assert range_key(name) == range_key(key) == key
