"""What users read is plain American English: phrases that came back before, in all texts."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Phrases that are riddles to a performance engineer, and what is said instead.
BANNED = {
    r"led (back )?to": "attributed to",
    r"leads? back to": "is attributed to",
    r"st(and|ands|anding|ood) still": "idle",
    r"r[ua]n(s|ning)? dry": "idle, starved",
    r"(that|which) nothing hides": "exposed",
    r"costs? (its|the) rank": "is skipped with a one-line error; the other ranks are analyzed",
    r"faults? of ours": "internal error",
    r"mend(s|ed|ing)?": "fix",
    r"no rule (knows|reads)": "matches no rule",
    r"(are|is|was|were) told": "detected, reported, listed",
    r"told by": "detected from",
    r"heaps?": "mode, bimodal",
    r"made[- ]up": "synthetic",
    r"seems? to wait": "is a likely straggler",
    r"what (they|it) could not see": "what was not recorded",
    r"so it is on": "4 ranks affected",
    r"without computation takes": "exposed communication",
    r"run (more or )?less often alike": "launched proportionally less often",
    r"nobody": "unknown; no rank, no request",
    r"tells?": "shows, says, separates",
    r"told (apart|from|of|that|to)": "separated, distinguished",
    r"(is|are|was|were) of": "belongs to, covers, has",
}
#: British spellings.
BRITISH = (
    r"analys(?:ed?|ing)",
    r"\w+(?:al|il|on|ym|og|ar|er)is(?:ed?|es|ing|ation)",
    r"(?:colour|behaviour|neighbour|favour|labour|honour)\w*",
    r"(?:cancel|label|model|travel)l(?:ed|ing)",
    r"centred?",
    r"grey",
)
#: Words that only end like a British verb.
ALIKE = {"otherwise", "raise", "comprise"}
SPACE = re.compile(r"\s+")
FILES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("manifests/*.json"),
        *ROOT.glob("shared/nsys_llm/**/*.json"),
        ROOT / "install.py",
        *ROOT.glob("recipes/**/*.py"),
        *ROOT.glob("shared/nsys_llm/**/*.py"),
    }
)


def literals(source: str) -> Iterator[str]:
    """Yield the string literals of a module without its docstrings; `{}` for what is filled in."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            skipped.update(map(id, node.values))
            yield "".join(parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skipped:
            yield str(node.value)


def values(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        for part in document:
            yield from values(part)
    elif isinstance(document, str):
        yield document


def texts_of(path: Path) -> list[str]:
    """Return the texts of a file that a user may see, with single spaces."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        texts = list(literals(source))
    else:
        texts = list(values(json.loads(source))) if path.suffix == ".json" else [source]
    texts = [SPACE.sub(" ", text) for text in texts]
    return texts


def banned_in(text: str, words: str) -> list[str]:
    """Return the places of a text with one of these words, with what is around them."""
    places = re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE)
    return [
        text[max(0, place.start() - 60) : place.end() + 40]
        for place in places
        if place.group().lower() not in ALIKE
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_uses_a_banned_phrase(path):
    texts = texts_of(path)
    for words in (*BANNED, *BRITISH):
        places = [place for text in texts for place in banned_in(text, words)]
        assert places == [], f"write instead: {BANNED.get(words, 'the American spelling')}"
