"""The server for agents: by the SDK's client on its standard streams, and what it may read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from trace_builder import TraceBuilder

TOOLS = ("analyze", "findings", "table", "what_if", "compare")


def server():
    # To import the SDK takes a second, in each process that collects tests.
    from nsys_llm.run import agent_server

    return agent_server


def refusal(words):
    return pytest.raises(server().ToolError, match=words)


def write_rank(path, gemm_ns=8_000):
    """Write a rank of eight steps, each with two kernels, of which one waits a while."""
    report = TraceBuilder()
    for step in range(8):
        at = 1_000 + 100_000 * step
        report.nvtx("step", start_ns=at, end_ns=at + 90_000)
        for place in range(2):
            call = at + 30_000 * place
            report.kernel(
                f"gemm_{place}", start_ns=call + 20, duration_ns=gemm_ns, launch=(call, call + 9)
            )
    report.write_sqlite(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("server")
    for name, gemm_ns in (("before", 8_000), ("after", 9_000)):
        (root / name).mkdir()
        write_rank(root / name / "rank0.sqlite", gemm_ns)
    return root


@pytest.fixture(scope="module")
def session(folder):
    """Return the tools with their schemas, and what each answers in one session of the client."""
    from mcp import Client, StdioServerParameters, stdio_client

    async def asked():
        words = ["-m", "nsys_llm.run.cli", "mcp", str(folder)]
        server = StdioServerParameters(command=sys.executable, args=words)
        before, after = str(folder / "before"), str(folder / "after")
        async with Client(stdio_client(server)) as client:
            listed = (await client.list_tools()).tools
            answers = {}

            async def call(tool, **arguments):
                answers[tool] = await client.call_tool(tool, arguments)
                return answers[tool]

            first = await call("analyze", inputs=[before], recipe="llm_hotspots")
            result = json.loads(first.content[0].text)["result"]
            await call("findings", result=result)
            await call("table", result=result, name="kernels", columns=["name"], sort="name:up")
            await call("what_if", inputs=[before], changes=["kernel:gemm_0=0.5"])
            await call("compare", baseline=[before], inputs=[after])
            refused = [
                await client.call_tool(name, {"result": result, **arguments})
                for name, arguments in (
                    ("findings", {"result": str(folder.parent)}),
                    ("table", {"name": "kernels", "filter": ["rank = 2"]}),
                    ("table", {"name": "kernels", "top": "many"}),
                    ("table", {"name": "kernels", "where": ["x" * 100_000]}),
                )
            ]
            return {tool.name: tool for tool in listed}, answers, refused

    return asyncio.run(asyncio.wait_for(asked(), 60))


@pytest.mark.slow
def test_the_client_of_the_sdk_gets_five_tools_and_an_answer_of_each(session):
    tools, answers, _ = session
    assert set(tools) == set(answers) == set(TOOLS)
    for tool in tools.values():
        assert tool.description
        assert tool.input_schema["required"]
        assert tool.input_schema["properties"].keys() >= set(tool.input_schema["required"])
    for answer in answers.values():
        assert not answer.is_error
        assert len(answer.content[0].text.encode()) < server().MOST_BYTES
    told = {name: json.loads(answer.content[0].text) for name, answer in answers.items()}
    assert told["analyze"] == told["findings"]
    assert told["table"] == {"rows": [{"name": "gemm_0"}, {"name": "gemm_1"}], "rows_n": 2}
    (halved,) = [row for row in told["what_if"]["what_if"] if row["change"] == "kernel:gemm_0=0.5"]
    assert halved["then_ns"] <= halved["now_ns"]
    assert told["compare"]["verdict"][0]["word"]


@pytest.mark.slow
def test_what_cannot_be_answered_is_refused_in_one_line(session):
    _, _, refused = session
    texts = [answer.content[0].text for answer in refused]
    assert all(answer.is_error for answer in refused)
    assert all("\n" not in text and len(text.encode()) < server().MOST_BYTES for text in texts)
    outside, unknown, wrong, long = texts
    assert "outside of the folders of this server" in outside
    # A condition that is left out unseen would be a wrong answer.
    assert "no argument 'filter'" in unknown
    assert "valid integer" in wrong
    assert "write COLUMN OP VALUE" in long or "--where 'xxx" in long


@pytest.mark.slow
def test_links_lead_nowhere_else(folder, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for place in (inside, outside):
        place.mkdir()
    write_rank(outside / "rank0.sqlite")
    (inside / "to_file.sqlite").symlink_to(outside / "rank0.sqlite")
    (inside / "to_folder").symlink_to(outside)
    tools = server().AgentTools([inside])
    for path in ("", "to_file.sqlite", "to_folder", "to_folder/rank0.sqlite", "../outside"):
        with refusal("outside of the folders"):
            tools.analyze([str(inside / path)], "llm_hotspots")
    with refusal("no such file"):
        tools.findings(str(inside / "absent"))
    # A link to what is inside is as good as that.
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert (
        server().AgentTools([link])._allowed(str(folder / "before")) == folder.resolve() / "before"
    )
    assert sorted(path.name for path in inside.iterdir()) == ["to_file.sqlite", "to_folder"]


@pytest.mark.slow
def test_rows_that_are_not_asked_for_are_named(folder):
    tools = server().AgentTools([folder])
    result = json.loads(tools.analyze([str(folder / "after")], "llm_hotspots"))["result"]
    told = json.loads(tools.table(result, "kernels", top=1, columns=["name"], sort="name"))
    assert (told["rows_n"], told["rows"]) == (2, [{"name": "gemm_1"}])
    assert "where, columns, sort or top" in told["rest"]
    assert "rest" not in json.loads(tools.table(result, "kernels", columns=["name"]))
    assert "kernels" in json.loads(tools.table(result))["tables"]
    none = json.loads(tools.table(result, "kernels", where=["name = absent"]))
    assert none == {
        "rows": [],
        "rows_n": 0,
        "why_empty": "none of its 2 rows meets the conditions",
    }
    with refusal("no column 'nope'"):
        tools.table(result, "kernels", columns=["nope"])


def test_what_is_no_path_is_one_line_and_what_is_outside_is_not_walked(folder, monkeypatch):
    tools = server().AgentTools([folder])
    (folder / "circle").symlink_to("circle")
    for path in ("\0", str(folder / "circle"), str(folder / ("x" * 1_000))):
        with refusal(r"no path of a file or folder: .{5,}"):
            tools.analyze([path], "llm_hotspots")
    (folder / "circle").unlink()
    monkeypatch.delattr(Path, "rglob")
    for path in ("/", str(folder.parent), ""):
        with refusal("outside of the folders"):
            tools.findings(path)


@pytest.mark.parametrize("rows_n", [0, 1, 5, 300])
@pytest.mark.parametrize("length", [1, 50, 3_000, 100_000])
def test_an_answer_is_short_and_names_the_rest(rows_n, length):
    rows = [{"name": "é" * length, "number": number} for number in range(rows_n)]
    text = server()._fitted({"answer": "a" * length, "rows": rows}, "rows", "elsewhere")
    assert len(text.encode()) < server().MOST_BYTES
    record = json.loads(text)
    shown = record["rows"]
    assert [row["number"] for row in shown] == list(range(len(shown)))
    assert shown or not rows_n
    if len(shown) < rows_n or record["answer"] != "a" * length:
        assert record["rest"] == "elsewhere"
        assert record["shown"] == f"{len(shown)} of {rows_n} rows"


def test_without_the_sdk_one_line_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['mcp'] = None; from nsys_llm.run.cli import main; "
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}sys.exit(main(['mcp', {str(tmp_path)!r}]))"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: nsys-llm mcp needs the Python SDK: pip install 'nsys-llm-recipes[mcp]'.\n"
    )


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Exception, match="no such folder"):
        server().AgentTools([tmp_path / "absent"])
