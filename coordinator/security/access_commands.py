"""Commands about roles and grants.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

from tidelog.coordinator.security.commands import AccessCommand, ChangeGrants, RemoveRole
from tidelog.coordinator.security.records import (
    GrantsChanged,
    RoleRemoved,
    RoleSet,
    SecurityRecord,
)
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.security.principal import check_name


def handle_access_command(state: SecurityState, command: AccessCommand) -> Sequence[SecurityRecord]:
    """Return the records of a command.

    Raises:
        InvalidRequestError: A name or a rule is not legal.
    """
    match command:
        case ChangeGrants():
            added = tuple(each for each in command.added if each not in state.grants)
            removed = tuple(each for each in command.removed if each in state.grants)
            return [GrantsChanged(added, removed)] if added or removed else []
        case RemoveRole():
            return [RoleRemoved(command.name)] if command.name in state.roles else []
        case _:
            check_name(command.name, of="role")
            known = state.roles.get(command.name)
            before = () if known is None else known.members
            members = {*before, *command.add_members}.difference(command.remove_members)
            wanted = RoleSet(command.name, tuple(sorted(members)))
            return [] if wanted == known else [wanted]
