"""What neither ruff nor import-linter can say of the source folders."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from nsys_llm.manifest.manifest import load_manifest, recipe_names

ROOT = Path(__file__).parents[2]
MODULES = [*(ROOT / "shared").rglob("*.py"), *(ROOT / "recipes").rglob("*.py")]
TEXTS = {path: path.read_text("utf-8") for path in MODULES}
MOST_LINES = 400
#: What install.py loads, with Python's own library and nothing else.
LOADED = ("core.errors", "install.steps", "install.check")


def test_modules_are_short_enough_to_read():
    # What has one row a rule is as long as there are rules.
    read = {path: text for path, text in TEXTS.items() if path.name != "texts.py"}
    lines = {path: len(text.splitlines()) for path, text in read.items()}
    assert len(lines) > 200
    assert {path: n for path, n in lines.items() if n > MOST_LINES} == {}


def test_what_is_defined_is_used_and_the_name_of_a_class_means_one_thing():
    """What Python, argparse, pickle, Jupyter or NVIDIA's loader call by name has no other use."""
    called = {"_print_message", "_repr_html_", "find_class", "persistent_load"}
    called |= {load_manifest(recipe).class_name for recipe in recipe_names()}
    install = (ROOT / "install.py").read_text("utf-8")
    words = Counter(re.findall(r"\w+", "\n".join([*TEXTS.values(), install])))
    nodes = [
        (path, node)
        for path, text in TEXTS.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    unused = {
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, node in nodes
        if words[node.name] == 1 and node.name not in called and not node.name.startswith("__")
    }
    assert unused == set()
    names = Counter(node.name for _, node in nodes if isinstance(node, ast.ClassDef))
    assert {name for name, n in names.items() if n > 1} == set()


def test_what_install_loads_is_the_standard_library_only():
    code = (
        "import sys, types, importlib; package = sys.modules['nsys_llm'] = "
        "types.ModuleType('nsys_llm'); package.__path__ = [sys.argv.pop(1)]\n"
        "for name in sys.argv[1:]: importlib.import_module('nsys_llm.' + name)"
    )
    command = [sys.executable, "-S", "-I", "-c", code, ROOT / "shared" / "nsys_llm", *LOADED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
