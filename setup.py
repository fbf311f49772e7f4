"""The one compiled module, which is optional: where it cannot be built, the wheel goes without.

All else about the package stands in pyproject.toml. The library uses nothing of Python's, so one
wheel serves every Python of a platform.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LEAF = "nsys_llm.profile.sqlite._leaf"
SOURCE = "shared/nsys_llm/profile/sqlite/leaf.c"


class BuildLibrary(build_ext):
    """Builds a library, not a module of one Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return its path, without the tag of a Python."""
        return str(Path(*fullname.split("."))) + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return no PyInit function, which it does not have."""
        return []


class Wheel(bdist_wheel):
    """Tags the wheel by platform where the library is in it; else for all."""

    def run(self) -> None:
        """Build the library first: without one, the wheel is pure."""
        if self.distribution.ext_modules:
            build = self.get_finalized_command("build_ext")
            self.run_command("build_ext")
            if not Path(build.get_ext_fullpath(LEAF)).is_file():
                self.distribution.ext_modules = []
                self.root_is_pure = True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, its binary interface, and the platform."""
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", platform)


#: Linux alone: elsewhere nobody has tried it.
LIBRARIES = [Extension(LEAF, [SOURCE], extra_compile_args=["-O3"], optional=True)]

setup(
    ext_modules=LIBRARIES if sys.platform == "linux" else [],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel},
)
