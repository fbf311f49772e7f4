"""From when on a copy is large, and alike copies are weights. Pure; the numbers are ours."""

from __future__ import annotations

from typing import Final

#: From here on the link's rate decides how long a copy takes, or the rate at which the driver
#: stages pageable memory, and not what any copy costs.
LARGE_BYTES: Final = 1 << 20
#: Large copies that every step makes alike: inputs of a step are few, weights one or more a layer.
LEAST_COPIES: Final = 8
#: Steps that have to agree.
LEAST_STEPS: Final = 3
