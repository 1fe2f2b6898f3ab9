"""Topic patterns: globs that the group coordinator matches against the names of topics.

Pure: no clock, no I/O. Kafka takes regular expressions and matches them with RE2, whose time is
linear. Python's `re` backtracks: one member could stall the coordinator for all groups. `fnmatch`
turns a glob into an expression of atomic groups, which never backtracks from one `*` into another.

A pattern is one or more globs, separated by commas. A name matches if one glob matches all of it:

- letters, digits, `.`, `_` and `-` stand for themselves
- `*` any characters, also none; `?` any single character
- `[a-z_]` one of these characters, `[!a-z_]` any other

`orders-*,billing-[0-9]` are all topics that begin with `orders-`, and `billing-0` to `billing-9`.
"""

import re
from fnmatch import translate
from typing import Final, final

from tidelog.wire.errors import InvalidRequestError

PATTERN_LENGTH_MAX: Final = 249
_GLOB: Final = re.compile(r"(?:[a-zA-Z0-9._*?-]|\[!?[a-zA-Z0-9._-]+\])+")


@final
class TopicPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            InvalidRequestError: The pattern is invalid; the text says why.
        """
        if not 1 <= len(pattern) <= PATTERN_LENGTH_MAX:
            raise InvalidRequestError(
                f"a topic pattern has 1 to {PATTERN_LENGTH_MAX} characters, not {len(pattern)}"
            )
        globs = pattern.split(",")
        for glob in globs:
            _check(glob)
        self._expression = re.compile("|".join(map(translate, globs)))

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return self._expression.fullmatch(name) is not None


def _check(glob: str) -> None:
    if ".*" in glob:
        # Most regular expressions have it, and as a glob it would silently match other topics.
        raise InvalidRequestError(
            f"the topic pattern {glob!r} has '.*', as a regular expression; patterns are globs:"
            " write '*' for any characters, or '[.]*' for a dot and any characters"
        )
    if _GLOB.fullmatch(glob) is None:
        raise InvalidRequestError(
            f"the topic pattern {glob!r} is no glob: letters, digits, '.', '_', '-', '*', '?',"
            " [a-z] and [!a-z] can stand in one, and commas between several"
        )
