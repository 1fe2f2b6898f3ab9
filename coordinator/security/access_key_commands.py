"""Commands about access keys.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.coordinator.security.commands import (
    AccessKeyCommand,
    CreateAccessKey,
    RemoveAccessKey,
)
from tidelog.coordinator.security.records import AccessKeyRemoved, AccessKeySet, SecurityRecord
from tidelog.coordinator.security.state import SecurityState
from tidelog.coordinator.security.user_commands import check_user
from tidelog.wire.errors import InvalidRequestError

ACCESS_KEYS_MAX: Final = 20
"""Access keys of one user: two for a rotation, for some programs."""


def handle_access_key_command(
    state: SecurityState, command: AccessKeyCommand, *, now_ms: int
) -> Sequence[SecurityRecord]:
    """Return the records of a command; `now_ms` is recorded for administrators.

    Raises:
        InvalidRequestError: The user does not exist, has too many access keys, or the id is that of
            another access key.
    """
    known = state.access_keys.get(command.access_key_id)
    if isinstance(command, CreateAccessKey):
        return _create(state, command, known, now_ms=now_ms)
    if known is None:
        return []
    if isinstance(command, RemoveAccessKey):
        return [AccessKeyRemoved(known.access_key_id)]
    if known.is_enabled == command.is_enabled:
        return []
    return [msgspec.structs.replace(known, is_enabled=command.is_enabled)]


def _create(
    state: SecurityState, command: CreateAccessKey, known: AccessKeySet | None, *, now_ms: int
) -> Sequence[SecurityRecord]:
    if known is not None:
        if known.nonce != command.nonce or known.user != command.user:
            raise InvalidRequestError(f"access key {command.access_key_id} exists; draw another id")
        return []
    check_user(state, command.user)
    count = sum(each.user == command.user for each in state.access_keys.values())
    if count >= ACCESS_KEYS_MAX:
        raise InvalidRequestError(
            f"user {command.user} has {count} access keys, the limit; remove one first"
        )
    return [
        AccessKeySet(
            command.access_key_id,
            command.user,
            command.account,
            command.nonce,
            command.root_id,
            now_ms,
            command.description,
        )
    ]
