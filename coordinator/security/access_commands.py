"""Commands about roles and grants.

Pure: no clock, no I/O. Each principal has at most one rule that allows and one that denies for the
same pattern: a change of actions replaces the rule.
"""

from collections.abc import Sequence

import msgspec

from tidelog.coordinator.security.commands import AccessCommand, ChangeGrants, RemoveRole
from tidelog.coordinator.security.records import (
    Grant,
    GrantsChanged,
    RoleRemoved,
    RoleSet,
    SecurityRecord,
)
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.security.access_rules import (
    ACTIONS,
    ADMIN_ROLE,
    ALL,
    CLUSTER,
    check_pattern,
    check_subject,
    checked_actions,
)
from tidelog.wire.security.principal import check_name

_Key = tuple[str, str, str, bool]
"""Principal, kind, pattern, and whether the rule denies."""


def handle_access_command(state: SecurityState, command: AccessCommand) -> Sequence[SecurityRecord]:
    """Return the records of a command.

    Raises:
        InvalidRequestError: A name or a rule is not legal.
    """
    match command:
        case ChangeGrants():
            return _change_grants(state, command)
        case RemoveRole():
            if command.name == ADMIN_ROLE:
                raise InvalidRequestError(
                    f"role {ADMIN_ROLE!r} cannot be removed; remove its members instead"
                )
            return [RoleRemoved(command.name)] if command.name in state.roles else []
        case _:
            check_name(command.name, of="role")
            for member in (*command.add_members, *command.remove_members):
                check_name(member, of="user")
            known = state.roles.get(command.name)
            before = () if known is None else known.members
            members = {*before, *command.add_members}.difference(command.remove_members)
            wanted = RoleSet(command.name, tuple(sorted(members)))
            return [] if wanted == known else [wanted]


def checked_rule(rule: Grant) -> Grant:
    """Return a rule in its one form: actions sorted, and the cluster by its name.

    Raises:
        InvalidRequestError: The rule could never fit, or not as it seems to.
    """
    actions = checked_actions(rule.actions, rule.kind)
    check_subject(rule.principal)
    check_pattern(rule.pattern, rule.kind)
    pattern = CLUSTER if rule.kind == CLUSTER else rule.pattern
    return msgspec.structs.replace(rule, pattern=pattern, actions=actions)


def _change_grants(state: SecurityState, command: ChangeGrants) -> list[SecurityRecord]:
    """Return the records that merge rules into those for the same pattern, or take from them."""
    wanted: dict[_Key, set[str]] = {}
    known: dict[_Key, Grant] = {}
    changes = [(checked_rule(each), False) for each in command.removed]
    changes += [(checked_rule(each), True) for each in command.added]
    by_key = {_key(each): each for each in state.grants}
    for rule, is_added in changes:
        key = _key(rule)
        if key in by_key:
            known[key] = by_key[key]
        if key not in wanted:
            wanted[key] = set(known[key].actions) if key in known else set()
        actions = wanted[key]
        if is_added:
            actions |= set(rule.actions)
        elif ALL in rule.actions:
            actions.clear()
        else:
            if ALL in actions:
                actions |= set(ACTIONS[rule.kind])
                actions.discard(ALL)
            actions -= set(rule.actions)
    after = [_rule(key, actions) for key, actions in wanted.items() if actions]
    added = tuple(each for each in after if each not in state.grants)
    removed = tuple(each for each in known.values() if each not in after)
    return [GrantsChanged(added, removed)] if added or removed else []


def _key(rule: Grant) -> _Key:
    return (rule.principal, rule.kind, rule.pattern, rule.is_deny)


def _rule(key: _Key, actions: set[str]) -> Grant:
    principal, kind, pattern, is_deny = key
    kept = (ALL,) if ALL in actions else tuple(sorted(actions))
    return Grant(principal, kind, pattern, kept, is_deny)
