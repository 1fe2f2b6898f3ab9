"""The command that makes a user an administrator without one: at first, and after a lock-out.

Pure: no clock, no I/O. A cluster that has users has an administrator, so only an operator of a
machine may add another one, see `broker.security.administrators`.
"""

from collections.abc import Sequence

from tidelog.coordinator.security.commands import SetAdministrator
from tidelog.coordinator.security.records import RoleSet, SecurityRecord, TokenSet, UserSet
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.security.access_rules import ADMIN_ROLE
from tidelog.wire.security.principal import check_name


def has_administrators(state: SecurityState) -> bool:
    """Return whether a cluster has users, or an administrator that is none, by a certificate."""
    role = state.roles.get(ADMIN_ROLE)
    return bool(state.users or (role is not None and role.members))


def handle_administrator_command(
    state: SecurityState, command: SetAdministrator, *, now_ms: int
) -> Sequence[SecurityRecord]:
    """Return the records of a command; none if there are users and this is no recovery.

    Raises:
        InvalidRequestError: The name is not legal.
    """
    check_name(command.user, of="user")
    if has_administrators(state) and command.recovered_by is None:
        return []
    known = state.users.get(command.user)
    before = None if known is None else known.credential
    user = UserSet(command.user, command.credential or before)
    records: list[SecurityRecord] = [] if user == known else [user]
    if command.token_id is not None and command.token_id not in state.tokens:
        token = TokenSet(command.token_id, command.user, command.token_sha256, now_ms, None)
        records.append(token)
    role = state.roles.get(ADMIN_ROLE)
    members: set[str] = set() if role is None else set(role.members)
    if command.user not in members:
        records.append(RoleSet(ADMIN_ROLE, tuple(sorted({*members, command.user}))))
    return records
