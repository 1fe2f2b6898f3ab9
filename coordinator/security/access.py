"""Decisions about access: rules by principal, kind and name (Kafka: StandardAuthorizer).

Pure: no clock, no I/O. The rules of a principal are those of itself, of its roles, and of `*`. A
rule that denies beats all that allow, and what no rule allows is denied. A rule for an action also
allows `describe` of the same names. Members of `role:admin` may do everything.

A rule is found by its name, or by one look-up for each length of prefix in use: neither the number
of rules nor that of names matters. There is no order of rules, so none shadows another.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final

from tidelog.coordinator.security.records import Grant
from tidelog.wire.security.access_rules import ADMIN_ROLE, ALL, DESCRIBE

ADMIN_SUBJECT: Final = f"role:{ADMIN_ROLE}"
ADMIN_RULE: Final = Grant(ADMIN_SUBJECT, ALL, ALL, (ALL,))
"""The rule that always exists, and that no rule denies."""


class Decision(NamedTuple):
    """A decision, and its reason."""

    allowed: bool
    rule: Grant | None
    """The rule that decided; `None` if no rule fits, which denies."""


_NOTHING_FITS: Final = Decision(allowed=False, rule=None)


@final
class _Patterns:
    """The rules of one principal for one kind."""

    __slots__ = ("_lengths", "_names", "_prefixes")

    def __init__(self) -> None:
        self._names: dict[str, list[Grant]] = {}
        self._prefixes: dict[str, list[Grant]] = {}
        self._lengths: dict[int, int] = {}
        """Number of prefixes by their length."""

    def add(self, rule: Grant) -> None:
        """Add a rule."""
        stem = _stem(rule)
        if stem is None:
            self._names.setdefault(rule.pattern, []).append(rule)
            return
        if stem not in self._prefixes:
            self._lengths[len(stem)] = self._lengths.get(len(stem), 0) + 1
        self._prefixes.setdefault(stem, []).append(rule)

    def remove(self, rule: Grant) -> None:
        """Remove a rule that was added."""
        stem = _stem(rule)
        key, found = (rule.pattern, self._names) if stem is None else (stem, self._prefixes)
        found[key].remove(rule)
        if found[key]:
            return
        del found[key]
        if stem is not None:
            self._lengths[len(stem)] -= 1
            if not self._lengths[len(stem)]:
                del self._lengths[len(stem)]

    def matching(self, name: str) -> Iterator[Grant]:
        """Return the rules whose pattern matches a name."""
        yield from self._names.get(name, ())
        for length in self._lengths:
            if length <= len(name):
                yield from self._prefixes.get(name[:length], ())

    def overlapping(self, prefix: str) -> Iterator[Grant]:
        """Return the rules that match some of the names that begin with `prefix`."""
        for name, rules in self._names.items():
            if name.startswith(prefix):
                yield from rules
        for stem, rules in self._prefixes.items():
            if stem.startswith(prefix) or prefix.startswith(stem):
                yield from rules

    def all(self) -> Iterator[Grant]:
        """Return all rules."""
        for found in (self._names, self._prefixes):
            for rules in found.values():
                yield from rules


def _stem(rule: Grant) -> str | None:
    """Return the prefix of a rule for several names; `None` for a rule for one name."""
    return rule.pattern[:-1] if rule.pattern.endswith(ALL) else None


@final
class AccessTable:
    """The rules and roles of a cluster, ready for decisions."""

    def __init__(self) -> None:
        """Start without rules."""
        self._rules: dict[tuple[str, str], _Patterns] = {}
        self._roles: dict[str, list[str]] = {}
        """Roles by member."""
        self.version = 0
        """Rises with each change: decisions of an older version are out of date; read-only."""

    __hash__ = None  # type: ignore[assignment]  # Its rules change.

    def __eq__(self, other: object) -> bool:
        """Return whether both decide alike; their versions may differ."""
        if not isinstance(other, AccessTable):
            return NotImplemented
        return self._content() == other._content()

    def _content(self) -> tuple[set[Grant], dict[str, set[str]]]:
        rules = {rule for patterns in self._rules.values() for rule in patterns.all()}
        return rules, {user: set(roles) for user, roles in self._roles.items()}

    def add(self, rule: Grant) -> None:
        """Add a rule that is not there yet."""
        self.version += 1
        self._rules.setdefault((rule.principal, rule.kind), _Patterns()).add(rule)

    def remove(self, rule: Grant) -> None:
        """Remove a rule that is there."""
        self.version += 1
        self._rules[rule.principal, rule.kind].remove(rule)

    def set_members(self, role: str, before: Iterable[str], members: Iterable[str]) -> None:
        """Change the members of a role: names of users."""
        self.version += 1
        for name in before:
            self._roles[name].remove(role)
            if not self._roles[name]:
                del self._roles[name]
        for name in members:
            self._roles.setdefault(name, []).append(role)

    def roles_of(self, user: str) -> Sequence[str]:
        """Return the roles of a user."""
        return self._roles.get(user, ())

    def decide(
        self, principal: str, roles: Iterable[str], *, action: str, kind: str, name: str
    ) -> Decision:
        """Decide whether a principal may do something.

        Args:
            principal: Such as `user:alice`.
            roles: Names of its roles, all of them.
            action: An action of the kind.
            kind: Such as `topic`.
            name: Name of the resource, which need not exist.
        """
        subjects = _subjects(principal, roles)
        if ADMIN_SUBJECT in subjects:
            return Decision(allowed=True, rule=ADMIN_RULE)
        allows: Grant | None = None
        for subject in subjects:
            patterns = self._rules.get((subject, kind))
            if patterns is None:
                continue
            for rule in patterns.matching(name):
                if rule.is_deny:
                    if action in rule.actions or ALL in rule.actions:
                        return Decision(allowed=False, rule=rule)
                elif allows is None and _includes(rule, action):
                    allows = rule
        return _NOTHING_FITS if allows is None else Decision(allowed=True, rule=allows)

    def allows_all(
        self, principal: str, roles: Iterable[str], *, action: str, kind: str, prefix: str
    ) -> bool:
        """Return whether a principal may do something with every name that has a prefix."""
        subjects = _subjects(principal, roles)
        if ADMIN_SUBJECT in subjects:
            return True
        is_allowed = False
        for subject in subjects:
            patterns = self._rules.get((subject, kind))
            for rule in () if patterns is None else patterns.overlapping(prefix):
                if rule.is_deny:
                    if action in rule.actions or ALL in rule.actions:
                        return False
                elif _includes(rule, action):
                    stem = _stem(rule)
                    is_allowed |= stem is not None and prefix.startswith(stem)
        return is_allowed

    def patterns(self, principal: str, roles: Iterable[str], kind: str) -> list[str]:
        """Return the patterns of all rules that allow a principal something, sorted."""
        subjects = _subjects(principal, roles)
        if ADMIN_SUBJECT in subjects:
            return [ALL]
        found = {
            rule.pattern
            for subject in subjects
            if (subject, kind) in self._rules
            for rule in self._rules[subject, kind].all()
            if not rule.is_deny
        }
        return sorted(found)

    def allows_some(self, principal: str, roles: Iterable[str], *, action: str, kind: str) -> bool:
        """Return whether some rule allows an action on some name of a kind."""
        subjects = _subjects(principal, roles)
        if ADMIN_SUBJECT in subjects:
            return True
        return any(
            not rule.is_deny and _includes(rule, action)
            for subject in subjects
            if (subject, kind) in self._rules
            for rule in self._rules[subject, kind].all()
        )


def _includes(rule: Grant, action: str) -> bool:
    """Return whether a rule that allows includes an action."""
    return action == DESCRIBE or action in rule.actions or ALL in rule.actions


def _subjects(principal: str, roles: Iterable[str]) -> tuple[str, ...]:
    return (principal, ALL, *(f"role:{role}" for role in roles))
