"""Which environment variables look like secrets, detected from their names alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Row of TARGET_INFO_SYSTEM_ENV that holds a whole environment as one text.
DEVICE_ENVIRONMENT: Final = "DeviceEnvironment"
#: Whole words of a name; TOKENIZERS_PARALLELISM is none, GITHUB_TOKEN and WANDB_API_KEY are.
_SECRET_WORDS: Final = frozenset(
    [
        *("AUTH", "CREDENTIAL", "CREDENTIALS", "CREDS", "JWT", "KEY", "KEYS", "PASS", "PASSPHRASE"),
        *("PASSWD", "PASSWORD", "PAT", "PRIVATE", "SECRET", "SECRETS", "TOKEN", "TOKENS"),
    ]
)
#: Ends of words that are written as one, like APIKEY and PGPASSWORD.
_SECRET_ENDS: Final = ("APIKEY", "KEYID", "PASSWORD", "PASSWD", "SECRET", "TOKEN")
#: Set by Python's container images, and public; and the place of a socket.
_PUBLIC: Final = frozenset({"GPG_KEY", "SSH_AUTH_SOCK"})
#: Beside these, TOKENS are those of a model: MAX_NUM_BATCHED_TOKENS.
_COUNTING_WORDS: Final = frozenset(
    ["BATCHED", "COUNT", "INPUT", "LIMIT", "MAX", "MIN", "NEW", "NUM", "OUTPUT", "PER", "TOTAL"]
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
#: A variable within one text that holds a whole environment, like `A=1;B=2`.
_IN_TEXT: Final = re.compile(r"(?:^|[;\n\0])([A-Za-z_][A-Za-z0-9_]{0,99})=(?=[^;\n\0])")


def secret_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return those that look like secrets, each once, sorted."""
    return tuple(sorted({name for name in names if _is_secret(name)}))


def names_in(environment: str) -> list[str]:
    """Return the names of the variables that have a value in a text of `NAME=value`."""
    return _IN_TEXT.findall(environment)


def process_environment(text: str) -> list[str]:
    """Return the names in a process's environment as Linux keeps it, `NAME=value` parted by NUL.

    Variables without a value are left out; empty for a text that is something else.
    """
    parts = [part for part in text.split("\0") if part]
    pairs = [part.partition("=") for part in parts]
    named = [(name, value) for name, equals, value in pairs if equals and _NAME.fullmatch(name)]
    if "\0" not in text or len(named) * 2 <= len(parts):
        return []
    return [name for name, value in named if value]


def _is_secret(name: str) -> bool:
    if name in _PUBLIC or _NAME.fullmatch(name) is None:
        return False
    words = set(name.upper().split("_"))
    if words & _COUNTING_WORDS:
        words.discard("TOKENS")
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in words)
