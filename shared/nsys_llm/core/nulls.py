"""How integer columns write NULL."""

from __future__ import annotations

from typing import Final

#: What NULL becomes in an integer column.
NULL_INT: Final = -(2**63)
