"""Where results go: names of output folders, and folders that appear whole or not at all."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from nsys_llm.core.errors import OutputError, UsageError
from nsys_llm.core.patterns import require_text
from nsys_llm.core.scratch import discard, remove_abandoned, scratch_place, temporary_folders
from nsys_llm.core.stopping import ended_with_the_run
from nsys_llm.manifest.manifest import recipe_names

ANALYSIS_SUFFIX: Final = ".nsys-analysis"

#: Folders that Jupyter and Python leave in an output folder that somebody worked in.
_LEFT_BEHIND: Final = frozenset({".ipynb_checkpoints", "__pycache__"})


def expand_pattern(name: str) -> str:
    """Replace %q{VAR}, %h, %p, %n and %% as Nsight Systems does.

    Raises:
        UsageError: The variable is not set, or the pattern is none of these.
    """
    counter = "\0"
    expanded = re.sub(r"%(?:q\{([^}]*)\}|(.)|$)", lambda match: _replacement(match, counter), name)
    if counter not in expanded:
        return expanded
    numbered = (expanded.replace(counter, str(number)) for number in range(1, 1_000_000))
    return next(path for path in numbered if not os.path.lexists(path))


def _replacement(match: re.Match[str], counter: str) -> str:
    variable, letter = match.groups()
    if variable is not None:
        if (value := os.environ.get(variable)) is None:
            raise UsageError(f"--output: the environment variable {variable} is not set.")
        return value
    simple: dict[str | None, Callable[[], str]] = {
        "h": socket.gethostname,
        "p": lambda: str(os.getpid()),
        "n": lambda: counter,
        "%": lambda: "%",
    }
    if letter not in simple:
        raise UsageError(
            f"--output: unknown pattern '{match[0]}'; there are %q{{VAR}} %h %p %n %%."
        )
    return simple[letter]()


class OutputFolder:
    """A folder being filled beside its final place. Use as a context manager.

    Leaving the block without `publish` removes everything that was written.

    Attributes:
        final: Where the folder will stand.
        on_published: Is told where it stands, as soon as it does.

    Raises:
        OutputError: The final place is taken, or cannot be written.
    """

    path: Path
    final: Path
    on_published: Callable[[Path], None] | None

    def __init__(self, wanted: str | None, default: str, *, replace: bool | None) -> None:
        """Take where to write, and whether to replace a result there; None: nobody can ask to."""
        self._pattern = wanted or f"{default.replace('%', '%%')}-%n"
        self._replace = replace
        self.final = self._expanded()
        require_text("--output", str(self.final))
        self.on_published: Callable[[Path], None] | None = None
        self._made_parents: list[Path] = []
        self._aside: Path | None = None
        self._stands = False
        self._ending = ExitStack()
        _put_back(self.final)
        if os.path.lexists(self.final):
            _require_replaceable(self.final, replace)

    def __enter__(self) -> OutputFolder:
        parent = self.final.parent
        self.path = scratch_place(parent, self.final.name)
        try:
            self._ending.enter_context(ended_with_the_run(self._abandon))
            every = (parent, *parent.parents)
            self._made_parents = [folder for folder in every if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(parent, self.final.name)
            self.path.mkdir()
        except BaseException as error:
            with self._ending:
                self._abandon()
            if not isinstance(error, OSError):
                raise
            raise OutputError(
                f"{parent}: cannot write there ({error.strerror}); choose another --output."
            ) from error
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._ending:
            self._abandon()

    def _abandon(self) -> None:
        """Remove what is not published, and finish what was stopped in the midst of replacing."""
        if self.path.exists():
            # It is renamed before, in case that the thread which is stopped is publishing it.
            discard(self.path, scratch_place(self.final.parent, self.final.name))
        if self._aside is not None and self._aside.exists():
            if self._stands:
                discard(self._aside, self.path)
            else:
                with suppress(OSError):
                    _settle(self._aside, self.final)
        for folder in self._made_parents:
            # One that holds the result, or that another run works in, is not empty and stays.
            with suppress(OSError):
                folder.rmdir()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Tell whatever keeps the block from writing as an `OutputError`: a full disk, say."""
        try:
            yield
        except OSError as error:
            # Arrow's errors have no number, and name a temporary folder.
            reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
            reason = reason.replace(f"{self.path}{os.sep}", "")[:200]
            raise OutputError(
                f"{self.final}: cannot be written ({reason}); nothing was; make room, or choose "
                "another --output."
            ) from error

    def publish(self, analysis: dict[str, Any] | None) -> Path:
        """Write the .nsys-analysis file, move the folder into place, and return that place.

        Args:
            analysis: Content of the file; `Files` is added: every file that was written. None: no
                such file, of what is no result of a recipe.

        Raises:
            OutputError: The final place was taken meanwhile, or cannot be written.
        """
        with self.writing():
            written = names_below(self.path)
            while not self._published(analysis, written):
                pass
        return self.final

    def _published(self, analysis: dict[str, Any] | None, written: set[str]) -> bool:
        """Move the folder into place; False if another run took its number meanwhile."""
        if os.path.lexists(self.final):
            # A name without a number stays the same.
            self.final = self._expanded()
        name = f"{self.final.name}{ANALYSIS_SUFFIX}"
        record = self.path / name
        if analysis is not None:
            text = json.dumps({**analysis, "Files": sorted([name, *written])}, indent=4)
            record.write_text(text, encoding="utf-8")
        try:
            self._move()
        except (OSError, OutputError):
            if not os.path.lexists(self.final) or self._expanded() == self.final:
                raise
            record.unlink(missing_ok=True)
            return False
        return True

    def _move(self) -> None:
        if os.path.lexists(self.final):
            self._replace_final()
        else:
            self._rename()
        if self._aside is not None:
            # The new result stands; what cannot be deleted of the old one does not undo that.
            discard(self._aside, self.path)

    def _replace_final(self) -> None:
        _require_replaceable(self.final, self._replace)
        self._aside = scratch_place(self.final.parent, self.final.name, "replaced")
        self.final.rename(self._aside)
        try:
            # Somebody may have put something there since it was looked at.
            _require_replaceable(self._aside, self._replace)
            self._rename()
        except BaseException:
            with suppress(OSError):
                _settle(self._aside, self.final)
            raise

    def _rename(self) -> None:
        self.path.rename(self.final)
        self._stands = True
        if self.on_published is not None:
            self.on_published(self.final)

    def _expanded(self) -> Path:
        return Path(os.path.abspath(expand_pattern(self._pattern)))


def _put_back(final: Path) -> None:
    """Repair what a run that was killed while it replaced a result left behind.

    Of a run that is replacing it just now, that fails and leaves the old result.
    """
    for aside in temporary_folders(final.parent, final.name, "replaced"):
        with suppress(OSError):
            _settle(aside, final)


def _settle(aside: Path, final: Path) -> None:
    """Put a result that was set aside back to its place, or delete it where another stands."""
    if not os.path.lexists(final):
        aside.rename(final)
    elif _foreign(aside) is None:
        discard(aside, scratch_place(final.parent, final.name))


def _require_replaceable(folder: Path, replace: bool | None) -> None:
    if not replace:
        either = "" if replace is None else "give --force-overwrite to replace it, or "
        raise OutputError(f"{folder}: exists already; {either}choose another --output.")
    if (reason := _foreign(folder)) is not None:
        raise OutputError(f"{folder}: not replaced, {reason}; remove it, or choose another.")


def _foreign(folder: Path) -> str | None:
    """Return why a folder is not wholly ours; None if it is."""
    if folder.is_symlink() or not folder.is_dir():
        return "it is not a folder"
    try:
        there = list(folder.iterdir())
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    records = [entry for entry in there if entry.name.endswith(ANALYSIS_SUFFIX)]
    if not there:
        return None
    if len(records) != 1:
        return f"it is not a result of this package ({len(records)} {ANALYSIS_SUFFIX} files)"
    try:
        record = json.loads(records[0].read_text("utf-8"))
        recipe, files = record.get("RecipeName"), set(record.get("Files", ()))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return f"{records[0].name} cannot be read"
    if recipe not in recipe_names():
        return f"it is a result of '{recipe}'"
    try:
        others = names_below(folder) - files
    except OSError as error:  # another run may be replacing it right now
        return f"it cannot be read ({error.strerror})"
    return f"it also holds {', '.join(sorted(others)[:3])}" if others else None


def names_below(folder: Path) -> set[str]:
    """Return the files and empty folders below, but for those that programs leave behind."""
    relative = {path: path.relative_to(folder) for path in folder.rglob("*")}
    return {
        name.as_posix()
        for path, name in relative.items()
        if not _LEFT_BEHIND.intersection(name.parts)
        and (path.is_symlink() or not path.is_dir() or not any(path.iterdir()))
    }
