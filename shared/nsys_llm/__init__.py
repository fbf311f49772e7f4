"""Recipes for NVIDIA Nsight Systems that explain LLM traces, rank by rank.

    import nsys_llm
    result = nsys_llm.analyze("idle_gaps", ["ranks/"])
    result.tables["gaps"]               # a data frame
    nsys_llm.load("llm_overview-1")     # a result that was written before

The package is assembled from three folders of the repository: `shared` (this one), `recipes` and
`manifests`. Importing it does no work: `analyze`, `load` and `Result` come from `nsys_llm.run.api`
when they are used.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nsys_llm.run.api import Result, analyze, load

__all__ = ["Result", "__version__", "analyze", "load"]

__version__: Final = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import what the package offers when it is asked for.

    Raises:
        AttributeError: It offers no such name.
    """
    if name not in __all__:
        raise AttributeError(f"module 'nsys_llm' has no attribute '{name}'")
    from nsys_llm.run import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """List the names that are imported when they are asked for, too."""
    return sorted({*globals(), *__all__})
