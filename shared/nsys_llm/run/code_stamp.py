"""Which code has made a result: this package's version, and the manifest of the recipe."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final

from nsys_llm import __version__
from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.manifest import manifest_texts

_DIGITS_N: Final = 12


@lru_cache
def code_stamp(recipe: str) -> str:
    """Return what two processes have in common if they compute the same: `0.1.0 (3f9a2c81d0b4)`.

    The digits are of everything that is declared of the recipe, and for an overview of the recipes
    that it runs. Where the recipe is not known: `0.1.0 (without idle_gaps)`.
    """
    try:
        texts = manifest_texts(recipe)
    except UsageError:
        return f"{__version__} (without {recipe})"
    declared = sha256("\0".join(texts).encode()).hexdigest()
    return f"{__version__} ({declared[:_DIGITS_N]})"


def other_code(there: str, here: str) -> str:
    """Return the end of a sentence about a worker whose stamp is not ours."""
    return (
        f"has nsys-llm-recipes {there}, and this command is {here}; install the same version on "
        "all workers. Nothing was written."
    )


def refuse_other_code(made_by: frozenset[str], recipe: str) -> None:
    """Refuse a result that other code had a part in.

    Raises:
        UsageError: It had.
    """
    here = code_stamp(recipe)
    if others := sorted(made_by - {here}):
        raise UsageError(f"a worker {other_code(', '.join(others), here)}")
