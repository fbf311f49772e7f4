"""What a sentence says in numbers, its finding has as fields."""

from __future__ import annotations

from finding_numbers import unexplained_numbers

from nsys_llm.report.findings import Finding, finding_record
from nsys_llm.report.numbers import Numbers


def sentence(numbers):
    return (
        f"{numbers.ns('a_ns', 1_234_567)} of {numbers.percent('b_pct', 12.345)}, "
        f"{numbers.bytes('c_bytes', 70_000)} in {numbers.count('d_n', 98_765)} copies by "
        f"{numbers.counted('e_n', 17, 'rank')} at {numbers.value('f_gb_s', 3.21, 'GB/s')}, "
        f"{numbers.ratio('g', 1.234)} times"
    )


def record(details, fields):
    finding = Finding("r", "run", "t", details, ("wall",), "Do.", numbers=fields)
    return finding_record(finding)


def test_a_sentence_reads_well_and_every_number_of_it_is_kept():
    numbers = Numbers()
    said = sentence(numbers)
    assert said == (
        "1.23 ms of 12.3 %, 70 kB in 98,765 copies by 17 ranks at 3.21 GB/s, 1.23 times"
    )
    assert numbers.fields == {
        "a_ns": 1_234_567,
        "b_pct": 12.345,
        "c_bytes": 70_000,
        "d_n": 98_765,
        "e_n": 17,
        "f_gb_s": 3.21,
        "g": 1.234,
    }
    assert unexplained_numbers(record(said, numbers.fields)) == []


def test_a_number_that_is_not_kept_is_noticed():
    numbers = Numbers()
    said = sentence(numbers)
    for name in ("b_pct", "c_bytes", "d_n", "e_n", "f_gb_s"):
        rest = {key: value for key, value in numbers.fields.items() if key != name}
        assert len(unexplained_numbers(record(said, rest))) == 1
