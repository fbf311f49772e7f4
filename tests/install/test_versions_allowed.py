"""The versions that the package allows are those that are tested, and each has a reason."""

from __future__ import annotations

import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from nsys_llm.core.needed import requirements

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "pyproject.toml"


@pytest.fixture(scope="module")
def matrix():
    spec = importlib.util.spec_from_file_location("version_matrix", ROOT / "tests" / "matrix.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def oldest(matrix) -> dict[str, dict[str, Version]]:
    """The pinned version of each library by Python."""
    by_name = {}
    for line in matrix.pins():
        pin = Requirement(line)
        for python in matrix.PYTHONS:
            if pin.marker is None or pin.marker.evaluate({"python_version": python}):
                of_python = by_name.setdefault(pin.name, {})
                assert python not in of_python, f"two pins of {pin.name} for Python {python}"
                of_python[python] = Version(re.fullmatch(r"==([\d.]+)", str(pin.specifier))[1])
    return by_name


def test_the_oldest_that_is_tested_is_the_oldest_that_is_allowed(oldest, matrix):
    bounds = {name: Version(low) for name, (low, _) in requirements().items()}
    assert {name: min(pins.values()) for name, pins in oldest.items()} == bounds
    assert all(pins.keys() == set(matrix.PYTHONS) for pins in oldest.values())
    # A newer Python never gets an older library.
    assert all(list(pins.values()) == sorted(pins.values()) for pins in oldest.values())


def test_every_bound_is_found_and_has_a_reason():
    block = TABLE.read_text("utf-8").partition("\ndependencies = [")[2].partition("]")[0]
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    names = [re.match(r'"([\w-]+)', line)[1] for line in lines if line.startswith('"')]
    assert set(names) == requirements().keys()
    bare = [
        (line, other)
        for line, other in pairwise(lines)
        if line.startswith('"') and other.startswith('"')
    ]
    # These two pairs share a reason.
    assert [line[1:5] for pair in bare for line in pair] == ["adbc", "adbc", "dask", "dist"]
    assert lines[0].startswith("#")


def test_the_matrix_has_both_ends_and_every_library(matrix):
    known = {combination.name: combination for combination in matrix.combinations()}
    assert len(known) == len(matrix.combinations())
    assert set(known["oldest"].versions) == set(matrix.pins())
    assert {f"newest-{python}" for python in matrix.PYTHONS} <= known.keys()
    for line in (line for combination in known.values() for line in combination.versions):
        assert Requirement(line).name in requirements()
