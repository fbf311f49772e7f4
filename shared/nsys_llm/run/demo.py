"""`nsys-llm demo [FOLDER]`: makes a rank set, analyzes it, and says where to read on."""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import ExitCode
from nsys_llm.report.notebook import NOTEBOOK_NAME
from nsys_llm.report.report_files import MARKDOWN_NAME
from nsys_llm.run import cli
from nsys_llm.testing.demo import write_demo

_COMMAND: Final = "overview"
_RECIPE: Final = "llm_overview"


def demo(folder: Path, commands: str) -> int:
    """Run the demo and return the exit code.

    Args:
        folder: Where the profiles and the results go.
        commands: What stands before our command to run it.
    """
    try:
        _write(folder)
    except OSError as error:
        print(f"demo: {folder}: cannot be written ({error.strerror})", file=sys.stderr)
        return int(ExitCode.BAD_INPUT)
    results = folder / _RECIPE
    words = [_COMMAND, str(folder / "baseline"), "--output", str(results)]
    print(f"demo: {commands}nsys-llm {' '.join(words)}\n", flush=True)
    if commands:
        sys.argv[0] = f"{commands}nsys-llm"
    # A result of ours is replaced, another folder of that name refused by the command itself.
    code = cli.main([*words, "--force-overwrite"])
    if code == 0:
        print(f"\ndemo: read the report:   {results / MARKDOWN_NAME}")
        if (results / NOTEBOOK_NAME).is_file():
            how = "install.py --jupyter" if commands else "pip install jupyterlab"
            opened = f"in VS Code or JupyterLab ({how} adds it): "
            opened = f"{commands}jupyter lab " if find_spec("jupyterlab") else opened
            print(f"demo: open the notebook: {opened}{results / NOTEBOOK_NAME}")
        if (folder / "after_fix").is_dir():
            sides = f"--baseline {folder / 'baseline'} --input {folder / 'after_fix'}"
            print(f"demo: compare two runs:  {commands}nsys-llm trace_diff {sides}")
    return code


def _write(folder: Path) -> None:
    """Make both runs beside their place, and move them there only whole; none where it exists."""
    if folder.exists():
        print(f"demo: using {folder}, which is there already", flush=True)
        return
    print(f"demo: writing three runs of a synthetic server with 4 GPUs to {folder} ...", flush=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        # A temporary folder is for its owner only; what is moved out of it follows the umask.
        made = Path(work) / "made"
        write_demo(made)
        made.rename(folder)
