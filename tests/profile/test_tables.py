"""What stands for nothing in an export is nothing here, whichever table it stands in."""

from __future__ import annotations

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import is_set


def test_null_and_0_are_no_ids():
    ids = np.array([NULL_INT, 0, 1, -1, 2**62], dtype=np.int64)
    assert is_set(ids).tolist() == [False, False, True, True, True]
