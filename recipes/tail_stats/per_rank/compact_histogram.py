"""Value counts in as few bytes as they need, for one set a rank of a thousand ranks. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.distributions import ValueCounts

_Unsigned = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class CompactHistogram:
    """The columns of `ValueCounts`, each in the narrowest unsigned integers that hold it."""

    group: _Unsigned
    value: _Unsigned
    count: _Unsigned

    @classmethod
    def of(cls, counts: ValueCounts) -> CompactHistogram:
        """Narrow; no value is negative."""
        return cls(*(narrowed(item) for item in (counts.group, counts.value, counts.count)))

    def widened(self) -> ValueCounts:
        """Return the counts again."""
        group, value, count = (
            item.astype(np.int64) for item in (self.group, self.value, self.count)
        )
        return ValueCounts(group, value, count)


def narrowed(values: npt.NDArray[np.int64]) -> _Unsigned:
    """Return whole numbers of 0 and more in the narrowest unsigned integers that hold them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
