"""Parts of the model on planted servers: each kernel's module is known, every ns is counted."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter

import pandas as pd
import pytest
from model_world import FILES, LAYER, ModelWorld
from phase_run import quick

LINES = {f"model.layers.*.{module}": line for module, _, _, line in LAYER} | {"lm_head": 201}
SHORT = FILES.partition("site-packages/")[2]


def written(world, folder, name="rank0"):
    return world.trace.write_sqlite(folder / f"{name}.sqlite")


def annotated(said, *paths, name="map.json", words=()):
    """Return the tables of profiles with a file of annotations beside them."""
    file = paths[0].with_name(name)
    file.write_text(json.dumps(said))
    return quick(*paths, "--graph-annotations", str(file), *words)


def times(tables):
    """Return the kernel time by part, None for no part."""
    sums = tables["model_parts"].groupby("model_part", dropna=False)["total_ns"].sum()
    return {None if pd.isna(part) else part: int(ns) for part, ns in sums.items()}


def ways(tables):
    return set(tables["model_parts"]["found_by"].dropna())


def server(seed=0, replays_n=3):
    """Two graphs, whose nodes have the same numbers, by turns."""
    world = ModelWorld(seed)
    for _ in range(replays_n):
        world.replay(3)
        world.replay(5, scale=2)
    return world


@pytest.mark.parametrize("hexadecimal", [False, True])
def test_annotations_give_part_and_line_of_each_kernel(tmp_path, hexadecimal):
    world = server()
    tables = annotated(world.annotations(hexadecimal=hexadecimal), written(world, tmp_path))
    assert times(tables) == world.truth
    assert ways(tables) == {"annotation"}
    named = tables["model_parts"].dropna(subset=["model_part"])
    assert {
        part: source for part, source in zip(named["model_part"], named["source"], strict=True)
    } == {part: f"{SHORT}:{line}" for part, line in LINES.items()}
    marks = tables["marks"].iloc[0]
    assert marks["graph_kernels_n"] == marks["annotated_n"] == 6 * len(world.modules())
    assert marks["annotation_key"] == "graphNodeId"


def test_an_anonymous_result_names_no_line(tmp_path):
    world = server()
    path = written(world, tmp_path)
    tables = annotated(world.annotations(), path, words=["--anonymize"])
    assert times(tables) == world.truth
    assert tables["model_parts"]["source"].isna().all()


def test_nodes_of_one_number_in_two_graphs_are_told_apart(tmp_path):
    """The second graph's nodes are called otherwise: its kernels must not take the first's."""
    world = server()
    said = world.annotations()
    for key, (entry,) in said.items():
        if int(key) >> 32 == 5:
            entry["name"] = f"draft.{entry['name']}"
    found = times(annotated(said, written(world, tmp_path)))
    draft = {part for part in found if part and part.startswith("draft.")}
    assert len(draft) == len(LINES)
    for part in draft:
        # It takes twice as long, but for chance.
        assert found[part] == pytest.approx(2 * found[part.removeprefix("draft.")], rel=0.1)


@pytest.mark.parametrize("map_is", ["of another run", "of few nodes", "empty of this rank"])
def test_a_map_that_does_not_fit_names_nothing(tmp_path, map_is):
    world = server()
    said = world.annotations()
    if map_is == "of another run":
        said = {str(int(key) + (9 << 32)): value for key, value in said.items()}
    elif map_is == "of few nodes":
        said = dict(list(said.items())[: int(0.89 * len(said))])
    name = "rank1.json" if map_is.startswith("empty") else "map.json"
    tables = annotated(said, written(world, tmp_path), name=name)
    assert tables["model_parts"].empty
    marks, findings = tables["marks"].iloc[0], tables["findings"]
    assert marks["annotated_n"] < 0.9 * marks["graph_kernels_n"]
    share = 100 * marks["annotated_n"] / marks["graph_kernels_n"]
    (title,) = findings.loc[findings["rule"] == "few_annotated", "title"]
    assert f"fit {share:.1f} % of the kernels in CUDA graphs on rank 0" in title


def with_ids(path, graph_id, exec_ids=()):
    """Write node ids as a newer export: the node's number alone, and its graph beside it."""
    with sqlite3.connect(path) as data:
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        data.execute(f"UPDATE {kernels} SET graphId = ({graph_id}) WHERE graphNodeId IS NOT NULL")
        data.execute(f"UPDATE {kernels} SET graphNodeId = graphNodeId & 4294967295")
        columns = "start, end, eventClass, globalTid, nameId, graphId, graphExecId"
        tid, name = data.execute(
            "SELECT globalTid, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        ).fetchone()
        for graph, made in exec_ids:
            data.execute(
                f"INSERT INTO CUDA_GRAPH_EVENTS ({columns}) VALUES (1, 2, 0, ?, ?, ?, ?)",
                (tid, name, graph, made),
            )


@pytest.mark.parametrize("key", ["graphId", "graphExecId", "captured twice"])
def test_other_ways_to_a_key(tmp_path, key):
    world = server()
    world.trace.graph_node(1, start_ns=1)  # the tables of graphs are there
    world.trace.raw("CUDA_GRAPH_EVENTS", start=1, end=2, nameId="Graph", graphId=99)
    path = written(world, tmp_path)
    execs = {"graphId": [], "graphExecId": [(103, 3), (105, 5)]}
    # Of a graph that was captured twice, the trace's kernels are of either executable one.
    pairs = execs.get(key, [(103, 3), (103, 5), (105, 3), (105, 5)])
    with_ids(path, "graphNodeId >> 32" if key == "graphId" else "(graphNodeId >> 32) + 100", pairs)
    tables = annotated(world.annotations(), path)
    assert times(tables) == world.truth
    assert tables["marks"]["annotation_key"][0] == (
        "graphId" if key == "graphId" else "graphExecId"
    )


@pytest.mark.parametrize("column", ["graphNodeId", "graphId"])
def test_the_number_of_a_graph_is_not_taken_for_that_of_another_one_s_instance(tmp_path, column):
    """Graph 2 is instantiated as 3, and graph 3 as 4: each kernel's number is some key's."""
    world, took_ns = ModelWorld(), Counter()
    for _ in range(3):
        for exec_id in range(3, 16):
            world.truth.clear()
            world.replay(exec_id)
            took_ns[f"size{exec_id}x"] += sum(ns for part, ns in world.truth.items() if part)
    world.trace.raw("CUDA_GRAPH_EVENTS", start=1, end=2, nameId="Graph", graphId=99)
    path = written(world, tmp_path)
    with_ids(path, "(graphNodeId >> 32) - 1", [(number - 1, number) for number in range(3, 16)])
    if column == "graphNodeId":
        with sqlite3.connect(path) as data:
            change = "graphNodeId = (graphId << 32) | graphNodeId, graphId = NULL"
            data.execute(
                f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {change} WHERE graphId IS NOT NULL"
            )
    said = world.annotations()
    for key, (entry,) in said.items():
        entry["name"] = f"size{int(key) >> 32}x.{entry['name']}"
    tables = annotated(said, path)
    assert tables["marks"]["annotation_key"][0] == "graphExecId"
    rows = tables["model_parts"].dropna(subset=["model_part"])
    size = rows["model_part"].str.partition(".")[0]
    assert rows.groupby(size)["total_ns"].sum().to_dict() == took_ns
    assert tables["marks"]["annotated_n"][0] == 39 * len(world.modules())


def test_executable_graphs_that_contradict_each_other_name_nothing(tmp_path):
    world = server()
    world.trace.raw("CUDA_GRAPH_EVENTS", start=1, end=2, nameId="Graph", graphId=99)
    path = written(world, tmp_path)
    with_ids(path, "103", [(103, 3), (103, 5)])
    said = world.annotations()
    for key, (entry,) in said.items():
        entry["name"] += f".of_{int(key) >> 32}x"
        del entry["stack"]
    assert annotated(said, path)["model_parts"].empty


def test_each_rank_has_the_file_of_its_number(tmp_path):
    paths, files = [], []
    for rank in (0, 1):
        world = server(rank)
        said = world.annotations()
        for (entry,) in said.values():
            entry["name"] = f"stage{'ab'[rank]}.{entry['name']}"
        files.append(tmp_path / f"notes_rank{rank}.json")
        files[-1].write_text(json.dumps(said))
        paths.append(written(world, tmp_path, f"rank{rank}"))
    rows = quick(*paths, "--graph-annotations", *map(str, files))["model_parts"]
    for rank, stage in ((0, "stagea."), (1, "stageb.")):
        parts = rows.loc[rows["rank"] == rank, "model_part"].dropna()
        assert len(parts) == len(LINES)
        assert parts.str.startswith(stage).all()


def test_the_eager_run_tells_the_parts_of_its_kernels_in_graphs(tmp_path):
    """Two modules run one GEMM, and two one pointwise kernel: their neighbors tell them apart."""
    world = ModelWorld()
    world.eager()
    for _ in range(4):
        world.replay(3)
    tables = quick(written(world, tmp_path))
    assert times(tables) == world.truth
    assert ways(tables) == {"range", "eager_run"}


def test_an_eager_run_without_ranges_tells_nothing(tmp_path):
    world = ModelWorld()
    world.eager(marked=False)
    world.replay(3)
    assert quick(written(world, tmp_path))["model_parts"].empty


def test_a_kernel_that_runs_outside_of_layers_too_is_of_none_alone(tmp_path):
    """Its name says nothing, and where it runs in the graph nothing like it ran before."""
    world = ModelWorld()
    world.eager()
    world.eager(marked=False)
    world.replay(3, named=False)
    assert times(quick(written(world, tmp_path))) == world.truth


def test_ranges_in_a_layer_that_are_words_are_modules(tmp_path):
    world = ModelWorld(layers_n=0)
    for number in range(3):
        start_ns = world.host_ns
        for word in ("attn", "aten::mm"):
            inner_ns = world.host_ns
            world._kernel("gemm", 5_000, None)
            world.trace.nvtx(word, inner_ns, world.host_ns)
            world.host_ns += 100
        world.trace.nvtx(f"layer_{number}", start_ns, world.host_ns)
        world.host_ns += 100
    found = times(quick(written(world, tmp_path)))
    assert set(found) == {"layer_*.attn", "layer_*"}
    assert sum(found.values()) == world.truth[None]


def test_the_range_of_a_node_s_capture_names_its_part(tmp_path):
    world = ModelWorld(layers_n=1)
    for number, (path, _, _, _) in enumerate(world.modules(), 1):
        world.trace.graph_node((3 << 32) | number, start_ns=100 * number)
        text = f"{{'Module': '{path}'}}"
        world.trace.nvtx(text, 100 * number - 10, 100 * number + 10)
    world.replay(3)
    tables = quick(written(world, tmp_path))
    assert times(tables) == world.truth
    assert ways(tables) == {"capture_range"}


@pytest.mark.parametrize("seed", range(6))
def test_every_ns_of_kernels_is_in_one_row(tmp_path, seed):
    """Whatever the annotations, ranges and filters: parts and the rest are the kernel time."""
    chance = random.Random(seed)
    world = ModelWorld(seed, layers_n=chance.randint(1, 3))
    world.replay(3)  # some are neither annotated nor near a range
    for _ in range(4):
        if chance.random() < 0.5:
            world.eager(marked=chance.random() < 0.7)
        world.replay(chance.choice((3, 5)), scale=chance.randint(1, 2))
    said = world.annotations()
    kept = chance.choice((0.2, 0.93, 1.0))
    said = {key: value for key, value in said.items() if chance.random() < kept}
    words = ()
    if chance.random() < 0.5:
        words = ["--filter-time", f"{world.gpu_ns // 3}/{2 * world.gpu_ns // 3}"]
    tables = annotated(said, written(world, tmp_path), words=words)
    parts = tables["model_parts"]
    if not parts.empty:
        assert parts["total_ns"].sum() == tables["phases"]["kernel_ns"].sum()
        assert parts["launches_n"].sum() == tables["phases"]["kernels_n"].sum()
        assert parts["kernel_pct"].sum() == pytest.approx(100)


class OtherStage(ModelWorld):
    """A rank whose graphs run the same modules in another order."""

    def modules(self):
        modules = super().modules()
        return modules[3:] + modules[:3]


def refused(tables):
    rows = tables["findings"][tables["findings"]["rule"] == "few_annotated"]
    return rows["title"].tolist()


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_map_whose_ids_coincide_and_whose_parts_contradict_names_nothing(tmp_path, is_marked):
    """Without ranges, attention in a projection tells."""
    world = ModelWorld()
    if is_marked:
        world.eager()
    for _ in range(4):
        world.replay(3)
    said = {str(int(key) + 1): value for key, value in world.annotations().items()}
    tables = annotated(said, written(world, tmp_path))
    assert "annotation" not in ways(tables)
    (title,) = refused(tables)
    assert title.startswith("The annotations cannot be right for ")
    assert title.endswith(" of the kernels in CUDA graphs on rank 0: they name no part")
    assert tables["marks"]["contradicted_n"][0] > 0
    if is_marked:
        assert times(tables) == world.truth


@pytest.mark.parametrize("spelling", ["plain", "coarse", "other words", "without model."])
def test_annotations_that_spell_the_same_parts_otherwise_are_no_contradiction(tmp_path, spelling):
    world = ModelWorld()
    world.eager()
    for _ in range(4):
        world.replay(3)
    said = world.annotations()
    for (entry,) in said.values():
        name = entry["name"]
        if spelling == "coarse" and name.count(".") == 4:
            entry["name"] = name.rpartition(".")[0]
        elif spelling == "other words":
            entry["name"] = f"block_of_{name.rpartition('.')[2][:4]}"
        elif spelling == "without model.":
            entry["name"] = name.removeprefix("model.")
    tables = annotated(said, written(world, tmp_path))
    assert not refused(tables)
    assert "annotation" in ways(tables)
    assert tables["marks"]["contradicted_n"][0] == 0


@pytest.mark.parametrize("is_other", [True, False])
def test_a_file_for_all_ranks_holds_for_those_with_the_same_graphs(tmp_path, is_other):
    worlds = ModelWorld(0), (OtherStage if is_other else ModelWorld)(1)
    paths = []
    for rank, world in enumerate(worlds):
        for _ in range(3):
            world.replay(3)
        paths.append(written(world, tmp_path, f"rank{rank}"))
    said = worlds[0].annotations()
    for (entry,) in said.values():  # attention would tell
        entry["name"] = entry["name"].replace("_proj", "_linear").replace("lm_head", "head")
    tables = annotated(said, *paths)
    rows, marks = tables["model_parts"], tables["marks"].set_index("rank")
    known = rows.groupby("rank")["model_part"].agg(lambda parts: parts.notna().any())
    assert known.to_dict() == {0: True, 1: not is_other}
    assert (marks.loc[1, "contradicted_n"] > 0) == is_other
    assert len(refused(tables)) == is_other
    assert rows.groupby("rank")["total_ns"].sum().to_dict() == {
        rank: sum(world.truth.values()) for rank, world in enumerate(worlds)
    }
