"""What Nsight Systems says of a capture itself: the known messages, `data/nsys_messages.json`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from nsys_llm.taxonomy.data_files import data_file


@dataclass(frozen=True)
class Message:
    """A message that is known.

    Attributes:
        advice: What to do where work is missing; empty where it is no reason for that.
    """

    id: str
    pattern: re.Pattern[str]
    says: str
    advice: str = ""
    record: str | None = None


def known_message(text: str) -> tuple[Message, str] | None:
    """Return the message that a text is, and what it says; None for one that is not known."""
    for message in messages():
        if found := message.pattern.search(text):
            details = (detail or "" for detail in found.groups())
            return message, " ".join(message.says.format(*details).split())
    return None


@cache
def messages() -> tuple[Message, ...]:
    """Return all of them, the most telling first."""
    rows = data_file("nsys_messages")["rows"]
    return tuple(Message(**{**row, "pattern": re.compile(row["pattern"])}) for row in rows)


def message_that_says(clause: str) -> Message | None:
    """Return the message of which `known_message` made a clause."""
    for message in messages():
        if re.fullmatch(re.escape(message.says).replace(r"\{0\}", r"[0-9.]*"), clause):
            return message
    return None
