"""The code blocks of a page, and what the words behind their language say.

| block | what the test does |
|---|---|
| ```` ```sh ```` | runs it as a script, which must succeed |
| ```` ```console ```` | runs each command behind `$ `, and compares the output below it |
| ```` ```python ```` | runs it as a program |
| ```` ```text output ```` | compares the output of the block above |
| ```` ```toml ```` | loads it as the configuration file of a broker |
| ```` ```text ```` | nothing: a layout, a dump or a diagram |
| any language with `title="FILE"` | writes it into a file, which a later command must name |
| `norun="REASON"` | counts it: it cannot run here |
| `spark` | leaves it to the tests that need Java |
| `dry` | parses commands of make that take minutes, see `test_make_commands.py` |
| `fresh` | ends all brokers of the page and removes their data before it runs the block |
| `until` | repeats a command until its output is the one that is shown |
| `unordered` | compares the lines of an output in any order |

`...` in an output stands for any text, on a line of its own for any lines.
"""

import re
from dataclasses import dataclass
from typing import Final, final

_FENCE: Final = re.compile(r"^```([^\n`]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r'title="([^"]*)"')
_REASON: Final = re.compile(r'norun="([^"]+)"')
_FILE: Final = re.compile(r"[\w-]+\.\w+")
_RUN: Final = ("sh", "console", "python")
_ELSEWHERE: Final = frozenset({"spark", "dry"})


@final
@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block and the output that the page shows."""

    text: str
    output: str
    """Empty if none is shown; then it is not compared."""


@final
@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page."""

    language: str
    words: frozenset[str]
    file: str
    """Name of the file that the block is, or empty."""
    text: str
    line: int
    """Line of the page on which the block begins."""
    reason: str
    """Reason why no test runs the block, or empty."""

    @property
    def is_skipped(self) -> bool:
        """Whether the block is code that other tests run, or that no test can run."""
        return bool(self.reason or self.words & _ELSEWHERE)

    @property
    def is_run(self) -> bool:
        """Whether the block is a script, commands or a program."""
        return not self.is_skipped and not self.file and self.language in _RUN

    @property
    def is_make(self) -> bool:
        """Whether each line of the block is a command of make."""
        lines = self.text.splitlines()
        return self.language == "sh" and all(line.startswith("make ") for line in lines)

    @property
    def is_output(self) -> bool:
        """Whether the block is the output of the block above."""
        return "output" in self.words


def blocks_of(page: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    blocks: list[Block] = []
    for found in _FENCE.finditer(page):
        title = _TITLE.search(found[1])
        reason = _REASON.search(found[1])
        language, *words = _REASON.sub("", _TITLE.sub("", found[1])).split() or [""]
        file = title[1] if title and _FILE.fullmatch(title[1]) else ""
        line = page.count("\n", 0, found.start()) + 1
        skipped = reason[1] if reason else ""
        blocks.append(Block(language, frozenset(words), file, found[2], line, skipped))
    return blocks


def commands_of(console: str) -> list[Command]:
    """Return the commands of a console block.

    A command begins with `$ ` and goes on behind a backslash.
    """
    commands: list[Command] = []
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        size = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))
        commands.append(Command("\n".join(lines[:size]), "\n".join(lines[size:])))
    return commands


def is_like(shown: str, output: str) -> bool:
    """Return whether an output is the one that a page shows, apart from the width of spaces."""
    return re.fullmatch(_pattern(shown), _lines(output)) is not None


def begins_like(shown: str, output: str) -> bool:
    """Return whether an output, of a command that runs on, begins as a page shows."""
    return re.match(_pattern(shown), _lines(output)) is not None


def _pattern(shown: str) -> str:
    return "".join(
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") + "\n"
        for line in _lines(shown).splitlines()
    )


def _lines(text: str) -> str:
    return "".join(f"{' '.join(line.split())}\n" for line in text.strip().splitlines())
