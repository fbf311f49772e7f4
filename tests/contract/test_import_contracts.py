"""Every contract on imports notices an import that it forbids; `make lint` runs them on our own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A module for each contract, with an import that only this contract forbids there.
FORBIDDEN = {
    "shared/nsys_llm/core/planted.py": "import nsys_llm.run",
    "shared/nsys_llm/run/planted.py": "import recipes.idle_gaps",
    "recipes/idle_gaps/tables/planted.py": "from .. import findings",
    "recipes/idle_gaps/findings/planted.py": "from .. import per_rank",
    "recipes/idle_gaps/per_rank/planted.py": "from recipes import tail_stats",
    "shared/nsys_llm/numeric/planted.py": "import pandas",
    "shared/nsys_llm/report/planted.py": "import nsys_recipe",
}


def test_every_contract_is_broken_by_an_import_that_it_forbids(tmp_path):
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("shared", "recipes"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    settings = shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for place, line in FORBIDDEN.items():
        (tmp_path / place).write_text(f'"""Planted."""\n\n{line}\n', encoding="utf-8")
    command = [sys.executable, ROOT / "tests" / "import_contracts.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    contracts_n = Path(settings).read_text("utf-8").count("[[tool.importlinter.contracts]]")
    assert contracts_n == len(FORBIDDEN)
    assert done.returncode == 1
    assert f"0 kept, {contracts_n} broken" in done.stdout, done.stdout + done.stderr
