"""The built-in phase maps: each is a map, and names its engine."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from nsys_llm.taxonomy.phase_maps import BUILT_IN, built_in_pairs, phase_map

FOLDER = resources.files("nsys_llm.taxonomy") / "data" / "phase_maps"


def test_there_is_a_file_for_each_engine_and_no_other():
    assert {item.name for item in FOLDER.iterdir()} == {f"{engine}.json" for engine in BUILT_IN}


@pytest.mark.parametrize("engine", BUILT_IN)
def test_a_built_in_map_names_its_engine_and_holds_phases(engine):
    content = json.loads((FOLDER / f"{engine}.json").read_text("utf-8"))
    assert content["engine"] == engine
    assert {phase for phase, _ in built_in_pairs([engine])} == content["phases"].keys()


def test_all_built_in_maps_are_one_map():
    assert phase_map(None) == phase_map(built_in_pairs(BUILT_IN))
