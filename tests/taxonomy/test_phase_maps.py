"""The built-in phase maps: each is a map, and names its engine."""

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


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("speculator: precompute_context_kv", "speculation"),
        ("gpu_model_runner: eplb", "bookkeeping"),
        ("scheduler.event_loop_overlap", "scheduling"),
        ("scheduler._pp_launch_batch", "scheduling"),
        ("_can_queue", "scheduling"),
        ("_check_disagg_gen_transfer_status", "scheduling"),
        ("_pad_attention_dp_dummy_request", "scheduling"),
        ("rl/rollout-collection", "rollout"),
        ("rl/get-logprobs", "log probabilities"),
        ("preprocess.tokenize", "tokenizing"),
        ("codec.encode", "tokenizing"),
        ("detokenize", "tokenizing"),
        ("mm:encode", "multimodal"),
        ("unpreprocess.tokenize", None),
        ("world/get-logs", None),
    ],
)
def test_markers_of_2026_have_their_phase(name, phase):
    maps = phase_map(None)
    place = maps.phase_of(name)
    assert (None if place < 0 else maps.phases[place]) == phase
