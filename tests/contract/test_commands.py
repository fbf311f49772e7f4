"""Every command that README and docs show runs, or is named here with why it does not."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from command_line import run
from effort import nightly_but

from nsys_llm.core.errors import NsysLlmError
from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.run.cli import build_parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: How a line begins, and why this test does not run it; the first that fits counts.
NOT_RUN = {
    "python3 install.py": "changes the Python or Nsight Systems: tests/install runs install.py",
    "python3 -m pip": "needs a package index",
    "pip install": "needs a package index",
    "source .venv": "a word of the shell",
    "export NSYS_RECIPE_PATH": "a word of the shell",
    "echo $?": "a word of the shell",
    "nsys recipe --help": "needs Nsight Systems: tests/nsys/test_install_real.py",
    "nsys profile": "needs a GPU",
    "nsys-llm demo": "writes the large demo: tests/install/test_install.py and test_release.py",
    "nsys-llm mcp": "serves until its input ends: tests/run/test_agent_server.py",
    "dask scheduler": "starts a cluster: tests/run/test_dask_cluster.py",
    "srun": "needs Slurm",
    "DASK_SCHEDULER_ADDRESS": "needs a cluster",
    "nsys-llm llm_hotspots --input /shared/ranks --mode dask-futures": "needs a cluster",
    "python tests/benchmarks": "takes an hour: tests/contract/test_documents.py starts it",
    "python tests/campaigns": "takes hours: runs at night",
}
#: How a line of a block begins that is a command and not what one prints.
BEGINS = ("nsys", "python", "pip", "source", "export", "dask", "srun", "echo", "DASK")


def commands_of(page: Path) -> list[str]:
    """Return the commands in the blocks of a page, without comments, prompts and line ends."""
    blocks = re.findall(r"^```(?:bash|sh)?\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    shell = any(line.startswith("$ ") for line in lines)
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ") or not shell]
    typed += [line for line in lines if shell and line.startswith(("nsys-llm ", "nsys recipe "))]
    return [re.sub(r"\s+#.*| &$", "", line) for line in typed if line.startswith(BEGINS)]


COMMANDS = sorted({command for page in PAGES for command in commands_of(page)})


def reason_of(command: str) -> str | None:
    """Return the entry of `NOT_RUN` that a command falls under."""
    return next((begin for begin in NOT_RUN if command.startswith(begin)), None)


def words_of(command: str) -> list[str]:
    """Return the words of our command: both launchers have the same, and so is `overview`."""
    first, *others = shlex.split(re.sub(r"^nsys recipe|^nsys-llm", "", command))
    if first == "overview":
        others = ["--input", *others] if not others[0].startswith("-") else others
        first = "llm_overview"
    return [first, *others]


RUN = {
    shlex.join(words_of(command)): command for command in COMMANDS if reason_of(command) is None
}.values()


def test_most_commands_are_run_and_every_reason_is_of_one():
    assert len(RUN) >= 15
    assert all(command.startswith(("nsys-llm ", "nsys recipe ")) for command in RUN)
    unused = NOT_RUN.keys() - set(map(reason_of, COMMANDS))
    assert unused == set()


@pytest.fixture
def place(shared_runs, tmp_path):
    """A folder with what the commands of the pages name."""
    demo = shared_runs.ranks("demo")
    runs = {"ranks": "baseline", "before": "baseline", "main": "baseline", "after": "after"}
    for name, of_demo in {**runs, "branch": "after"}.items():
        (tmp_path / name).symlink_to(demo / of_demo)
    for name in ("before", "after"):
        (tmp_path / f"{name}.sqlite").symlink_to(demo / runs[name] / "rank0.sqlite")
    dense = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    dense |= {"intermediate_size": 11008, "vocab_size": 32000, "torch_dtype": "bfloat16"}
    (tmp_path / "nsys-llm-demo").symlink_to(demo)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **dense}))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("command", nightly_but(RUN, list(RUN)[::3]))
def test_a_command_runs_as_the_page_has_it(command, place, monkeypatch, shared_runs):
    monkeypatch.chdir(place)
    recipe, *words = words_of(command)
    if recipe == "trend":
        (place / "results").mkdir()
        for run_of in ("2040-05-06", "2040-05-07"):
            (place / "results" / run_of).symlink_to(shared_runs.run("demo", "llm_overview")[1])
    elif recipe in recipe_names():
        words += ["--mode", "none"]
        # One recipe of an overview tells as well whether the options are right.
        words += ["--only", "idle_gaps"] if recipe == "llm_overview" else []
    ended = run(*words, recipe=recipe)
    # 1: a gate failed; 3: the runs do other work.
    assert ended.code in (0, 1, 3), ended.said
    assert ended.printed or ended.said


def test_every_command_is_one():
    texts = {
        text
        for page in PAGES
        for text in re.findall(r"`nsys-llm ([^`]+)`", page.read_text("utf-8"))
    }
    assert len(texts) > 20
    texts = {f"nsys-llm {text}" for text in texts - {"mcp", "show", "check", "trend", "demo"}}
    for text in texts | {text for text in RUN if words_of(text)[0] in recipe_names()}:
        try:
            words = words_of(text)
            build_parser(words[0]).parse_args(words)
        except (SystemExit, NsysLlmError):
            pytest.fail(text)
