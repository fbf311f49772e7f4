"""Recipes for NVIDIA Nsight Systems that explain LLM traces, rank by rank.

The package is assembled from three folders of the repository: `shared` (this one), `recipes` and
`manifests`. Importing it does no work; see `nsys_llm.run.cli` for the command and
`nsys_llm.run.nsys_adapter` for the class that NVIDIA's loader picks.
"""

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
