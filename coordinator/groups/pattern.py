r"""Patterns for names of topics, matched in linear time.

Pure: no clock, no I/O.

A pattern comes from a client and is matched on the broker, so it must not be able to stall it: with
Python's own `re`, matching `(a+)+b` takes time that doubles with each character. Here a pattern
becomes an automaton with one state at a time, so that a name costs one look-up for each character,
whatever the pattern. Patterns that need too large an automaton, such as `.*a.{20}`, are refused
when a member subscribes.

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

from tidelog.wire.errors import InvalidRequestError

PATTERN_LENGTH_MAX = 249
STEPS_MAX = 400
"""Places in a pattern, repetitions counted; `((a{50}){50}){50}` has more, and is refused."""
STATES_MAX = 400
"""Sets of places where a match can be; `.*a.{20}` has a million, and is refused."""

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
        automaton = _Parser(pattern).parse()
        representatives = automaton.alphabet()
        self._classes = {
            character: index
            for index, characters in enumerate(representatives)
            for character in characters
        }
        self._following, self._is_end = _one_state_at_a_time(automaton, representatives)

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        classes, following = self._classes, self._following
        other = len(following[0]) - 1
        state = 0
        for character in name:
            state = following[state][classes.get(character, other)]
        return self._is_end[state]


def _one_state_at_a_time(
    automaton: "_Automaton", representatives: list[list[str]]
) -> tuple[list[list[int]], list[bool]]:
    """Return for each state the next one by class of character, and whether a match may end.

    The last class is that of characters which the pattern does not mention.
    """
    start = automaton.closure({automaton.start})
    numbers = {start: 0}
    pending = [start]
    following: list[list[int]] = []
    for states in pending:
        row: list[int] = []
        for characters in [*representatives, []]:
            reached = automaton.step(states, characters[0] if characters else None)
            number = numbers.get(reached)
            if number is None:
                number = numbers[reached] = len(numbers)
                pending.append(reached)
                if number >= STATES_MAX:
                    raise InvalidRequestError(
                        f"the pattern needs more than {STATES_MAX} states to be matched in one"
                        " pass; make it simpler, above all behind the first '.*'"
                    )
            row.append(number)
        following.append(row)
    return following, [automaton.end in states for states in numbers]


@final
class _Automaton:
    """States are numbers; each goes on by a character, or freely to others."""

    def __init__(self) -> None:
        self.by_character: list[tuple[_Charset, int] | None] = []
        self.freely: list[list[int]] = []
        self.start = 0
        self.end = 0

    def add_state(self) -> int:
        # Two for each character, one for each group and sequence.
        if len(self.freely) >= 3 * STEPS_MAX:
            raise InvalidRequestError(
                f"the pattern has more than {STEPS_MAX} steps; use smaller repetitions"
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

    def step(self, states: frozenset[int], character: str | None) -> frozenset[int]:
        """Return the states after one more character; `None` is any that is not mentioned."""
        reached: set[int] = set()
        for state in states:
            edge = self.by_character[state]
            if edge is not None:
                (characters, is_negated), following = edge
                if (character in characters) != is_negated:
                    reached.add(following)
        return self.closure(reached)

    def alphabet(self) -> list[list[str]]:
        """Return the characters that are mentioned, those together which are never told apart."""
        sets = list(dict.fromkeys(edge[0][0] for edge in self.by_character if edge is not None))
        classes: dict[tuple[bool, ...], list[str]] = {}
        for character in sorted(frozenset[str]().union(*sets)):
            classes.setdefault(tuple(character in one for one in sets), []).append(character)
        return list(classes.values())


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
