"""Advice in error texts: the command and the options that a text recommends."""

import re
import shlex
from typing import Final

_QUOTED: Final = re.compile(r"`tidelog ([^`]+)`")
_AT_THE_END: Final = re.compile(
    r"\btidelog ((?:broker|cluster|group|log|queue|topic) [^`\n]+)$", re.MULTILINE
)


def recommended(text: str) -> list[str]:
    """Return the arguments of the `tidelog` command that a text recommends."""
    found = _QUOTED.search(text) or _AT_THE_END.search(text)
    assert found is not None, f"the text recommends no command: {text}"
    return shlex.split(found[1])


def part_of(text: str, pattern: str) -> str:
    """Return the only group of a pattern in a text."""
    found = re.search(pattern, text)
    assert found is not None, f"{pattern} is not in: {text}"
    return str(found[1])
