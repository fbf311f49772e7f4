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

#: What pip is asked for, as in pyproject.toml.
_SPECS: Final[list[str]] = json.loads(Path(__file__).with_name("needed.json").read_text("utf-8"))


def requirements() -> dict[str, tuple[str, str | None]]:
    """Return the packages: the oldest version that will do, the first too new."""
    matches = [re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<([\d.]+))?", spec) for spec in _SPECS]
    return {match[1]: (match[2], match[3]) for match in matches if match}


def missing() -> str | None:
    """Return which packages this Python lacks and the command that installs them, if any."""
    specs = dict(zip(requirements(), _SPECS, strict=True))
    absent = [name for name in specs if find_spec(name.replace("-", "_")) is None]
    if not absent:
        return None
    python, first, wanted = shlex.quote(sys.executable), "", absent
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    if managed and sys.prefix == sys.base_prefix:
        # It takes no packages; an environment begins without any.
        first = f"{python} -m venv ~/nsys-llm && . ~/nsys-llm/bin/activate && "
        python, wanted = "python3", list(specs)
    command = " ".join(
        [f"{first}{python} -m pip install", *(shlex.quote(specs[name]) for name in wanted)]
    )
    return f"{sys.executable} lacks {', '.join(absent)}; to install them: {command}"
