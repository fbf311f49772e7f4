"""Damaged payloads and schemas: each is counted by a reason, none is an exception or a guess.

`python tests/facts/test_payload_fuzz.py SECONDS [SEED]` goes on for so long.
"""

from __future__ import annotations

import sys
import time
from random import Random

import numpy as np
import pytest
from nccl_payloads import BYTES, COMM, FORMATS, PEER, REDOP, STATIC, blob, structure

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nccl import payloads
from nsys_llm.facts.nccl.payloads import Schemas
from nsys_llm.profile.tables import Table

REASONS = {"ok", "no_schema", "bad_header", "short", "conflict"}
LABELS = (COMM, BYTES, "Bytes", PEER, "Root", REDOP, "Rank", "", "odd", None)


def random_table(dice):
    """Return entries of a few schemas, some of which mean nothing."""
    rows_n = dice.randrange(12)
    kinds = (*FORMATS, 0, 1, 3, 19, 20, 21, 23, 99, -1, NULL_INT, 1 << 40)
    columns = {
        "domain_id": [dice.choice((7, 8, NULL_INT)) for _ in range(rows_n)],
        "schema_id": [STATIC + dice.randrange(3) for _ in range(rows_n)],
        "place": [dice.choice((0, 1, 2, 3, -1, NULL_INT)) for _ in range(rows_n)],
        "entry_type": [dice.choice(kinds) for _ in range(rows_n)],
        "offset": [dice.choice((NULL_INT, 0, 8, 12, 16, -4, 1 << 50)) for _ in range(rows_n)],
    }
    table = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    labels = [dice.choice(LABELS) for _ in range(rows_n)]
    return Table({**table, "text": np.array([*labels, None], dtype=object)[:-1]})


def random_digits(dice):
    """Return a cell: a payload that may be damaged, digits of digits, or anything."""
    raw = blob(dice.randrange(4), dice.randbytes(dice.randrange(64)))
    raw = raw[: dice.randrange(len(raw) + 1)] if dice.random() < 0.3 else raw
    if dice.random() < 0.5 and raw:
        at = dice.randrange(len(raw))
        raw = raw[:at] + dice.randbytes(1) + raw[at + 1 :]
    if dice.random() < 0.2:
        raw = dice.randbytes(dice.randrange(100))
    digits = raw.hex()
    if dice.random() < 0.3:
        digits = dice.choice((digits, f"0x{digits}", digits[:-1])).encode().hex()
    return dice.choice((digits, digits, digits[:-1], digits + "zz", ""))


def fuzz_once(dice):
    """Decode payloads by random schemas; each ends with a reason."""
    schemas = Schemas(dice.choice((random_table(dice), random_table(dice), None)))
    for _ in range(5):
        said = schemas.decoded(random_digits(dice))
        assert said.reason in REASONS
        assert said.reason == "ok" or not said.fields
        assert all(isinstance(value, int) for value in said.fields.values())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_damaged_payloads_are_no_exception(seed):
    dice = Random(seed)
    for _ in range(300 if not seed else 20_000):
        fuzz_once(dice)


def test_every_fault_is_found():
    entries = ((18, COMM), (22, BYTES))
    columns = {"domain_id": 7, "schema_id": STATIC + 4, "place": 0, "entry_type": 0, "offset": 0}
    rows = {name: np.full(2, value) for name, value in columns.items()}
    rows |= {"place": np.arange(2), "entry_type": np.array([18, 22]), "offset": np.array([0, 8])}
    schemas = Schemas(Table({**rows, "text": np.array([COMM, BYTES], dtype=object)}))
    raw = structure(entries, (5, 1234))
    assert schemas.decoded(blob(4, raw).hex()).fields == {"comm": 5, "size_bytes": 1234}
    # The header may say where the structure ends, too; and digits may be digits of digits.
    assert schemas.decoded(blob(4, raw, last=48).hex().encode().hex()).reason == payloads.OK
    assert schemas.decoded(blob(4, raw, last=47).hex()).reason == payloads.BAD_HEADER
    assert schemas.decoded(blob(5, raw).hex()).reason == payloads.NO_SCHEMA
    assert schemas.decoded(blob(4, raw, domain=8).hex()).reason == payloads.NO_SCHEMA
    assert schemas.decoded(blob(4, raw, size=17).hex()).reason == payloads.SHORT
    assert schemas.decoded(blob(4, raw).hex()[:40]).reason == payloads.SHORT
    assert schemas.decoded("zz").reason == payloads.BAD_HEADER
    twice = {name: np.concatenate((values, values)) for name, values in rows.items()}
    labels = np.array([COMM, BYTES, COMM, BYTES], dtype=object)
    assert Schemas(Table({**twice, "text": labels})).decoded(blob(4, raw).hex()).reason == "ok"
    twice["offset"] = np.array([0, 8, 0, 16])
    odd = Schemas(Table({**twice, "text": labels}))
    assert odd.decoded(blob(4, raw).hex()).reason == payloads.CONFLICT


if __name__ == "__main__":
    until, dice, count = time.monotonic() + float(sys.argv[1]), Random(int(sys.argv[2])), 0
    while time.monotonic() < until:
        fuzz_once(dice)
        count += 1
    print(f"{count} rounds of 5 payloads, no exception")
