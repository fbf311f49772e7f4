"""What `nsys recipe serving_steps` loads; the work is done in `analysis.py` beside it."""

import sys
from importlib.util import find_spec

if find_spec("nsys_llm") is None:
    raise ImportError(
        f"nsys-llm-recipes is not installed in {sys.executable}; in its checkout, "
        f"run: {sys.executable} install.py --current"
    )

from nsys_llm.run.nsys_adapter import RankRecipe


class ServingSteps(RankRecipe, recipe="serving_steps", version="1.0.0"):
    """Entry point of the recipe under Nsight Systems."""
