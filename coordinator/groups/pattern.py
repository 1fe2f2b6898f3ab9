r"""Patterns for names of topics, matched in linear time.

Pure: no clock, no I/O.

A pattern comes from a client and is matched on the broker, so it must not be able to stall it: with
Python's own `re`, matching `(a+)+b` takes time that doubles with each character. Here a pattern
becomes an automaton, as in RE2, that reads a name once. Sets of its states are remembered, so that
matching many names costs one look-up for each character.

A name matches as a whole. A pattern may consist of

- letters, digits and any other characters but `\ . [ ] ( ) { } | * + ? ^ $`, which stand for
  themselves; with a backslash before them, these do too
- `.` any character; `\d` a digit, `\w` a letter, digit or underscore; `\D`, `\W` any other
- `[a-z_]` one of these characters, `[^a-z_]` any other
- `a|b` one or the other, `(...)` or `(?:...)` a group
- `*` any number of what stands before, `+` at least one, `?` at most one, `{2}`, `{2,}`, `{2,5}`
- `^` at the very beginning and `$` at the very end, which change nothing

There are no back references, look-arounds, lazy or possessive quantifiers and flags.
"""

import string
from typing import final

from wire.errors import InvalidRequestError

PATTERN_LENGTH_MAX = 249
STATES_MAX = 2000
"""A pattern such as `((a{50}){50}){50}` would need more, and is refused."""

_REMEMBERED_MAX = 500
_SPECIAL = frozenset("\\.[](){}|*+?^$")
_QUANTIFIERS = frozenset("*+?{")
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_REPEATS_MAX = 1000
_DEPTH_MAX = 20
"""Deeper groups would only use up the stack."""
_RANGE_MAX = 256
"""Characters in a range of a class; names of topics are made of less."""

_Charset = tuple[frozenset[str], bool]
"""Characters, and whether any *other* one is meant."""


@final
class TopicPattern:
    """A pattern, ready to be matched."""

    def __init__(self, pattern: str) -> None:
        """Understand a pattern.

        Raises:
            InvalidRequestError: It cannot be understood, or is too large; says where and why.
        """
        self.pattern = pattern
        self._automaton = _Parser(pattern).parse()
        self._start = self._automaton.closure({self._automaton.start})
        self._remembered: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        states = self._start
        for character in name:
            step = (states, character)
            following = self._remembered.get(step)
            if following is None:
                following = self._automaton.step(states, character)
                if len(self._remembered) >= _REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[step] = following
            if not following:
                return False
            states = following
        return self._automaton.end in states


@final
class _Automaton:
    """States are numbers; each goes on by a character, or freely to others."""

    def __init__(self) -> None:
        self.by_character: list[tuple[_Charset, int] | None] = []
        self.freely: list[list[int]] = []
        self.start = 0
        self.end = 0

    def add_state(self) -> int:
        if len(self.freely) >= STATES_MAX:
            raise InvalidRequestError(
                f"the pattern needs more than {STATES_MAX} states; use smaller repetitions"
            )
        self.by_character.append(None)
        self.freely.append([])
        return len(self.freely) - 1

    def closure(self, states: set[int]) -> frozenset[int]:
        """Return these states and all that are reached freely."""
        pending = list(states)
        while pending:
            for following in self.freely[pending.pop()]:
                if following not in states:
                    states.add(following)
                    pending.append(following)
        return frozenset(states)

    def step(self, states: frozenset[int], character: str) -> frozenset[int]:
        """Return the states after one more character."""
        reached: set[int] = set()
        for state in states:
            edge = self.by_character[state]
            if edge is not None:
                (characters, is_negated), following = edge
                if (character in characters) != is_negated:
                    reached.add(following)
        return self.closure(reached)


_Fragment = tuple[int, int]
"""First and last state of a part of the automaton."""


@final
class _Parser:
    """Reads a pattern by recursive descent; every part is built anew for each repetition."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._automaton = _Automaton()

    def parse(self) -> _Automaton:
        if not 1 <= len(self._pattern) <= PATTERN_LENGTH_MAX:
            raise InvalidRequestError(
                f"a pattern has 1 to {PATTERN_LENGTH_MAX} characters, this has {len(self._pattern)}"
            )
        if self._pattern[0] == "^":
            self._at = 1
        self._automaton.start, self._automaton.end = self._alternatives()
        if self._peek() == "$" and self._at == len(self._pattern) - 1:
            self._at += 1
        if self._at < len(self._pattern):
            raise self._refusal(f"{self._peek()!r} is not expected")
        return self._automaton

    def _alternatives(self) -> _Fragment:
        start, end = self._automaton.add_state(), self._automaton.add_state()
        while True:
            first, last = self._sequence()
            self._automaton.freely[start].append(first)
            self._automaton.freely[last].append(end)
            if self._peek() != "|":
                return start, end
            self._at += 1

    def _sequence(self) -> _Fragment:
        start = end = self._automaton.add_state()
        while self._peek() not in {"", "|", ")", "$"}:
            first, last = self._repeated()
            self._automaton.freely[end].append(first)
            end = last
        return start, end

    def _repeated(self) -> _Fragment:
        began = self._at
        atom = self._atom()
        ended = self._at
        if self._peek() not in _QUANTIFIERS or self._peek() == "":
            return atom
        least, most = self._quantifier()
        if self._peek() in _QUANTIFIERS and self._peek() != "":
            raise self._refusal("a repetition cannot be repeated or changed; put it in a group")
        behind, start = self._at, self._automaton.add_state()
        end = start
        for count in range(max(least, 1 if most is None else most)):
            if count > 0:
                # The same text is read again: every round needs states of its own.
                self._at = began
                atom = self._atom()
                assert self._at == ended
            first, last = atom
            if count >= least:
                self._skip(end, last)
            self._automaton.freely[end].append(first)
            end = last
        if most is None:
            self._automaton.freely[atom[1]].append(atom[0])
            if least == 0:
                self._skip(start, end)
        self._at = behind
        return start, end

    def _skip(self, start: int, end: int) -> None:
        self._automaton.freely[start].append(end)

    def _quantifier(self) -> tuple[int, int | None]:
        sign = self._take()
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        least = self._number()
        most: int | None = least
        if self._peek() == ",":
            self._at += 1
            most = None if self._peek() == "}" else self._number()
        if self._peek() != "}" or (most is not None and most < least):
            raise self._refusal("a repetition is {2}, {2,} or {2,5}")
        self._at += 1
        return least, most

    def _number(self) -> int:
        began = self._at
        while self._peek() in _DIGITS and self._peek() != "":
            self._at += 1
        text = self._pattern[began : self._at]
        if not text or len(text) > len(str(_REPEATS_MAX)) or int(text) > _REPEATS_MAX:
            raise self._refusal(f"a number from 0 to {_REPEATS_MAX} is missing")
        return int(text)

    def _atom(self) -> _Fragment:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._one_of(self._class())
        if character == ".":
            return self._one_of((frozenset(), True))
        if character == "\\":
            return self._one_of(self._escaped())
        if character in _SPECIAL:
            self._at -= 1
            raise self._refusal(
                f"{character!r} is not expected; write \\{character} if it is meant"
            )
        return self._one_of((frozenset(character), False))

    def _group(self) -> _Fragment:
        if self._pattern.startswith("?:", self._at):
            self._at += 2
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._refusal("groups are nested too deeply")
        fragment = self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            raise self._refusal("a group is not closed by ')'")
        self._at += 1
        return fragment

    def _class(self) -> _Charset:
        is_negated = self._peek() == "^"
        self._at += is_negated
        characters: set[str] = set()
        while (character := self._take()) != "]":
            if character == "[":
                raise self._refusal("'[' within a class is written \\[")
            if character == "\\":
                escaped, is_other = self._escaped()
                if is_other:
                    raise self._refusal("\\D and \\W cannot stand in a class")
                characters |= escaped
            elif self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._take()
                if last in _SPECIAL or not 0 <= ord(last) - ord(character) < _RANGE_MAX:
                    raise self._refusal("a range in a class is like a-z")
                characters.update(map(chr, range(ord(character), ord(last) + 1)))
            else:
                characters.add(character)
        if not characters:
            raise self._refusal("a class has no characters")
        return frozenset(characters), is_negated

    def _escaped(self) -> _Charset:
        character = self._take()
        known = {"d": _DIGITS, "w": _WORD}.get(character.lower())
        if known is not None:
            return known, character.isupper()
        if character.isalnum():
            raise self._refusal(f"\\{character} is not supported")
        return frozenset(character), False

    def _one_of(self, characters: _Charset) -> _Fragment:
        start, end = self._automaton.add_state(), self._automaton.add_state()
        self._automaton.by_character[start] = (characters, end)
        return start, end

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._refusal("it ends too early")
        self._at += 1
        return character

    def _refusal(self, why: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"the pattern {self._pattern!r} cannot be understood at character {self._at}: {why}"
        )
