"""The packages that this one needs, and the command that installs those that are missing.

Standard library only: install.py and the scripts that nsys loads ask before anything is installed.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: What pip is asked for, as in pyproject.toml: our requirements, and what NVIDIA's recipes add.
_SPECS: Final[dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("needed.json").read_text("utf-8")
)


def requirements() -> dict[str, tuple[str, str | None]]:
    """Return our requirements: the oldest version that will do, the first too new."""
    matches = [re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<([\d.]+))?", spec) for spec in _SPECS["ours"]]
    return {match[1]: (match[2], match[3]) for match in matches if match}


def missing() -> str | None:
    """Return which packages this Python lacks and the command that installs them, if any."""
    absent = [name for name in requirements() if find_spec(name.replace("-", "_")) is None]
    if not absent:
        return None
    specs = [
        spec for spec in [*_SPECS["ours"], *_SPECS["nsys"]] if re.split("[<>]", spec)[0] in absent
    ]
    python, first = shlex.quote(sys.executable), ""
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    if managed and sys.prefix == sys.base_prefix:
        python, first = "python3", f"{python} -m venv ~/nsys-llm && . ~/nsys-llm/bin/activate && "
    command = f"{first}{python} -m pip install {' '.join(map(shlex.quote, specs))}"
    return f"{sys.executable} lacks {', '.join(absent)}; to install them: {command}"
