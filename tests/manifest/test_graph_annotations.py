"""Files of --graph-annotations: what they say by node, and that no pickle can do anything."""

from __future__ import annotations

import builtins
import gzip
import json
import os
import pickle
from collections import OrderedDict
from fractions import Fraction

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.graph_annotations import read_annotations

KEY = (3 << 32) | 10


def said(path):
    """Return part and source by key."""
    (read,) = read_annotations([str(path)])
    texts = [*read.texts, None]
    codes = zip(read.key.tolist(), read.part.tolist(), read.source.tolist(), strict=True)
    return {key: (texts[part], texts[source]) for key, part, source in codes}


def written(folder, content, name="a.json"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@pytest.mark.parametrize("key", [str(KEY), hex(KEY), hex(KEY).upper(), f"{KEY:x}"])
def test_keys_are_decimal_or_hexadecimal(tmp_path, key):
    path = written(tmp_path, {key: [{"name": "layers.12.mlp.fc1", "odd": [1]}], "note": "mine"})
    assert said(path) == {KEY: ("layers.*.mlp.fc1", None)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "layers.0.mlp"}, ("layers.*.mlp", None)),
        ("layers.0.mlp", ("layers.*.mlp", None)),
        ([{"name": "layers.0"}, {"name": "layers.0.mlp"}], ("layers.*.mlp", None)),
        ([{"name": "layers.0", "autograd_phase": "backward"}], ("layers.* (backward)", None)),
        ([{"name": "a", "stack": [["model.py", 214, "forward"]]}], ("a", "model.py:214")),
        ([{"stack": [["/x/torch/nn/f.py", 1], ["model.py", 2]]}], (None, "model.py:2")),
        ("/v/torch/nn/f.py:9:g\n/v/site-packages/vllm/m.py:5:forward\n", (None, "vllm/m.py:5")),
        ("/home/me/work/app/src/m.py:5:forward", (None, "app/src/m.py:5")),
        ([{"name": None, "Collective name": "allreduce"}], None),
    ],
)
def test_what_a_node_says(tmp_path, value, expected):
    path = written(tmp_path, {"1": {"name": "other"}, str(KEY): value})
    assert said(path).get(KEY) == expected


def test_maps_by_name_in_one_file_join(tmp_path):
    maps = {"annotations": {str(KEY): {"name": "a"}}, "stacks": {str(KEY): "m.py:2:f"}}
    assert said(written(tmp_path, maps)) == {KEY: ("a", "m.py:2")}


def test_compressed_and_pickled_files_are_read(tmp_path):
    stacks = {str(KEY): "m.py:2:f"}
    assert said(written(tmp_path, gzip.compress(json.dumps(stacks).encode()), "a.gz")) == {
        KEY: (None, "m.py:2")
    }
    plain = {KEY: [{"name": "layers.1", "x": (1, 2.5, None, {3}, b"b")}]}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = {KEY: [{"name": "layers.1"}]} if protocol < 4 else plain
        path = written(tmp_path, pickle.dumps(content, protocol), f"{protocol}.pkl")
        assert said(path) == {KEY: ("layers.*", None)}


class Calls:
    """Pickled, a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "harm",
    [
        lambda mark: Calls(os.system, f"touch {mark}"),
        lambda mark: Calls(builtins.eval, f"open({str(mark)!r}, 'w')"),
        lambda mark: Calls(os.mkdir, str(mark)),
        lambda mark: Calls(getattr, Calls(__import__, "os"), "system"),
        lambda mark: OrderedDict(a=1),
        lambda mark: Fraction(1, 3),
        lambda mark: os.system,
        lambda mark: Calls,
    ],
)
def test_a_pickle_can_do_nothing(tmp_path, harm, protocol):
    mark = tmp_path / "mark"
    content = {KEY: [{"name": "a", "deep": [[harm(mark)]]}]}
    path = written(tmp_path, pickle.dumps(content, protocol), "bad.pkl")
    with pytest.raises(UsageError) as error:
        read_annotations([str(path)])
    assert not mark.exists()
    assert error.value.message.startswith(f"{path}: is no pickle of plain containers, numbers")
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x02cos\nsystem\n)\x81.",  # NEWOBJ
        b"\x80\x02}Pany\n.",  # a persistent id
        b"\x80\x02\x82\x01.",  # an extension
        b"\x80\x04}(\x8c\x01ab",  # cut
        b"\x80\x02K\x01}b.",  # a state for a number
        b"\x80\x09garbage",
        b"\x80\x04\x8c\x04o\ns\n\x8c\x01x\x93.",  # a name of several lines
    ],
)
def test_odd_opcodes_are_refused(tmp_path, content):
    with pytest.raises(UsageError, match=r"bad\.pkl: is no pickle") as error:
        read_annotations([str(written(tmp_path, content, "bad.pkl"))])
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[1]", "must be an object by node"),
        (b"{}", "names no node"),
        (b'{"' + b"9" * 5000 + b'": "layers.0"}', "names no node"),
        (b'{"a": 1, "-3": {"name": "x"}, "1": {"stack": 7}}', "names no node"),
        (b"\x1f\x8bnothing", "cannot be unpacked"),
    ],
)
def test_what_is_no_map_is_said_in_one_line(tmp_path, content, words):
    path = written(tmp_path, content)
    with pytest.raises(UsageError) as error:
        read_annotations([str(path)])
    assert error.value.message.startswith(f"{path}: ")
    assert words in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize("opcode", [b"r\x00\x00\x00\x08", b"p134217728\n"])
def test_a_pickle_cannot_reserve_memory(tmp_path, opcode):
    path = written(tmp_path, b"\x80\x02}" + opcode + b".", "large.pkl")
    with pytest.raises(UsageError, match="object 134217728 is in ") as error:
        read_annotations([str(path)])
    assert "\n" not in error.value.message


@pytest.mark.parametrize("name", ["a.json", "a.pkl"])
def test_half_a_character_becomes_a_question_mark(tmp_path, name):
    content = {str(KEY): [{"name": "layers.0.\ud800x", "stack": [["m\udfff.py", 2]]}]}
    raw = json.dumps(content).encode() if name.endswith("json") else pickle.dumps(content)
    assert said(written(tmp_path, raw, name)) == {KEY: ("layers.*.?x", "m?.py:2")}
