"""What is made to be pasted into a shell is shown as it was made, whatever a kernel is called."""

from __future__ import annotations

import html
import json
import re
import shlex
import tempfile
import unicodedata
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from effort import examples
from hypothesis import HealthCheck, Phase, example, given
from hypothesis import strategies as st
from rendered import markdown_tokens
from results import analyse
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.markdown import _fenced
from nsys_llm.report.ncu import NCU_LABEL
from nsys_llm.run.cli import main

pytestmark = pytest.mark.drawn

#: As `unicodedata.category` names controls, formats, surrogates, and ends of lines.
FORBIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
ATTACK = "nvjet_splitK`;id>PWNED;`_TNT"
#: What a shell, Markdown, HTML, a regular expression or a terminal could take otherwise.
MEANT = st.sampled_from(
    "`'\"\\$;&|><*[]{}#!~^%@ \t\n\r\x1b\x00\x9b\xad\u200d\u202e\u2028\U000e0041é中"
)
NAMES = st.lists(st.one_of(MEANT, st.sampled_from("aZ0_ `")), min_size=1, max_size=30).map("".join)


#: A whole run each; to shrink a failure takes minutes.
SLOW_RUNS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def hidden(text):
    return sorted(
        {ascii(item) for item in text if item != "\n" and unicodedata.category(item) in FORBIDDEN}
    )


def written(folder, name):
    """Run over two kernels, one of that name, on which there is a finding; return the result."""
    trace = TraceBuilder()
    for step in range(6):
        at = 1_000 + 100_000 * step
        for kernel, start, long in ((name, at + 100, 80_000), ("other", at + 81_000, 2_000)):
            trace.kernel(
                kernel, start_ns=start, duration_ns=long + step, launch=(start - 90, start - 50)
            )
    trace.write_sqlite(folder / "rank0.sqlite")
    return analyse(folder / "out", folder / "rank0.sqlite", options=["--html"])


def of_html(text):
    found = re.findall(rf"{re.escape(NCU_LABEL)}:(?:</b>)? <code>(.*?)</code>", text)
    return [html.unescape(code) for code in found]


def of_markdown(text):
    """Return the commands as a renderer shows them, and as the plain file has them."""
    tokens = markdown_tokens(text)
    after = [
        one.content
        for before, one in pairwise(tokens)
        if one.type == "code_inline" and before.content.endswith(f"{NCU_LABEL}: ")
    ]
    plain = re.findall(rf"{re.escape(NCU_LABEL)}: (`+) ?(.+?) ?\1$", text, re.MULTILINE)
    assert after == [code for _, code in plain]
    return after


def printed(*words):
    with redirect_stdout(StringIO()) as out:
        assert main([*map(str, words)]) == 0
    return out.getvalue()


def shown(folder):
    """Return each output that a reader sees by name: its text, and the commands in it."""
    from nsys_llm.run.agent_server import AgentTools

    record = (folder / "report.json").read_text("utf-8")
    cells = json.loads((folder / "analysis.ipynb").read_text("utf-8"))["cells"]
    notebook = "\n".join("".join(cell["source"]) for cell in cells)
    page = (folder / "report.html").read_text("utf-8")
    page = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    markdown = (folder / "report.md").read_text("utf-8")
    findings = json.loads(record)["report"]["findings"]
    numbers = [n for n, finding in enumerate(findings, 1) if finding["ncu"]]
    text = "".join(printed("show", folder, n) for n in numbers)
    of_show = re.findall(r"^ncu +(.*)$", text, re.MULTILINE)
    rows = printed("show", folder, "rank_kernels", "--json")
    table = printed("show", folder, "rank_kernels", "--columns", "ncu,rank")
    tools = AgentTools([folder.parent])
    told = tools.findings(str(folder))
    asked = tools.table(str(folder), "rank_kernels", columns=["ncu"])
    return {
        "report.json": (record, [item["ncu"] for item in findings]),
        "report.md": (markdown, of_markdown(markdown)),
        "notebook": (notebook, of_html(notebook)),
        "page": (page, of_html(page)),
        "show": (text, of_show),
        "rows": (rows, [row["ncu"] for row in json.loads(rows)]),
        "table": (table, [line.rpartition(" ")[0] for line in table.splitlines()[1:-1]]),
        "findings": (told, [item.get("ncu") for item in json.loads(told)["findings"]]),
        "tool table": (asked, [row["ncu"] for row in json.loads(asked)["rows"]]),
    }


@given(name=NAMES.map(lambda text: f"nvjet_splitK{text}_TNT"))
@example(name=ATTACK)
@examples(1, nightly=60, phases=[Phase.explicit, Phase.generate], **SLOW_RUNS)
def test_a_command_is_shown_as_it_was_made_or_not_at_all(name):
    with tempfile.TemporaryDirectory() as folder:
        out = written(Path(folder), name)
        made = pd.read_parquet(out / "rank_kernels.parquet").set_index("name")["ncu"].get(name)
        outputs = shown(out)
    assert {key: odd for key, (text, _) in outputs.items() if (odd := hidden(text))} == {}
    commands = {key: [item for item in some if item] for key, (_, some) in outputs.items()}
    if not isinstance(made, str):
        assert hidden(name.replace("\n", "\r"))
        assert not any("nvjet" in item for some in commands.values() for item in some)
        return
    words = shlex.split(made)
    assert words[:2] == ["ncu", "--kernel-name"]
    function = re.sub(r"\\(.)", r"\1", words[2].removeprefix("regex:^").removesuffix("$"))
    assert function in name
    assert not hidden(function)
    for key, some in commands.items():
        split = [shlex.split(item) for item in some if not item.startswith("-")]
        assert words in split, key
        assert all(item[2] in (words[2], "regex:^other$") for item in split), key


@given(text=NAMES.map(lambda text: " ".join(text.split())).filter(lambda text: not hidden(text)))
def test_a_reader_of_markdown_sees_what_was_fenced(text):
    shown = [one for one in markdown_tokens(f"- x {_fenced(text)}") if one.type == "code_inline"]
    assert [one.content for one in shown] == [text] * bool(text)


def test_no_section_cuts_a_command():
    """Cells of sections are shortened, so what is copied is no column of one."""
    for recipe in recipe_names():
        for section in load_manifest(recipe).sections:
            assert not {"ncu", "record"} & {*section.columns, *section.summary}
