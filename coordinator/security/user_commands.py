"""Commands about users and tokens.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

from tidelog.coordinator.security.commands import RemoveToken, RemoveUser, SetToken, UserCommand
from tidelog.coordinator.security.records import (
    SecurityRecord,
    TokenRemoved,
    TokenSet,
    UserRemoved,
    UserSet,
)
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.security.principal import check_name


def handle_user_command(
    state: SecurityState, command: UserCommand, *, now_ms: int
) -> Sequence[SecurityRecord]:
    """Return the records of a command; `now_ms` is recorded for administrators.

    Raises:
        InvalidRequestError: The user exists or is unknown, or a name is not legal.
    """
    match command:
        case RemoveUser():
            return [UserRemoved(command.name)] if command.name in state.users else []
        case RemoveToken():
            is_known = command.token_id in state.tokens
            return [TokenRemoved(command.token_id)] if is_known else []
        case SetToken():
            if command.token_id in state.tokens:
                return []
            check_user(state, command.user)
            return [
                TokenSet(
                    command.token_id,
                    command.user,
                    command.sha256,
                    now_ms,
                    command.expires_at_ms,
                    command.description,
                )
            ]
        case _:
            check_name(command.name, of="user")
            known = state.users.get(command.name)
            wanted = UserSet(command.name, command.credential)
            if known == wanted:
                return []
            if known is not None and command.is_new:
                raise InvalidRequestError(
                    f"user {command.name} exists; change its password with `tidelog user password"
                    f" {command.name}`, or remove it first"
                )
            if command.is_known:
                check_user(state, command.name)
            return [wanted]


def check_user(state: SecurityState, name: str) -> None:
    """Check that a user exists.

    Raises:
        InvalidRequestError: It does not.
    """
    if name not in state.users:
        raise InvalidRequestError(
            f"user {name} does not exist; create it first with `tidelog user create {name}`"
        )
