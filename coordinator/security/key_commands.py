"""Commands about wrapped data keys.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

from tidelog.coordinator.security.commands import RemoveDataKeys, SetDataKey
from tidelog.coordinator.security.records import DataKeySet, DataKeysRemoved, SecurityRecord
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import InvalidRequestError


def handle_key_command(
    state: SecurityState, command: SetDataKey | RemoveDataKeys, *, now_ms: int
) -> Sequence[SecurityRecord]:
    """Return the records of a command; `now_ms` is recorded, and decides when keys are rotated.

    Raises:
        InvalidRequestError: The newest key would be deleted, or the new key is not the next one.
    """
    keys = state.data_keys(command.topic_id)
    if isinstance(command, RemoveDataKeys):
        known_ids = tuple(each for each in command.key_ids if each in keys)
        if known_ids and max(keys) in known_ids:
            raise InvalidRequestError(
                f"data key {max(keys)} is in use; rotate the keys of the topic, then delete it"
            )
        return [DataKeysRemoved(command.topic_id, known_ids)] if known_ids else []
    known = keys.get(command.key_id)
    if known is not None and known.master_id != command.replaces_master_id:
        return []
    if known is None and command.key_id != max(keys, default=0) + 1:
        # Key ids have no gaps: so a missing one was deleted.
        raise InvalidRequestError(
            f"data key {command.key_id} is not the next one of the topic; try again"
        )
    created_at_ms = now_ms if known is None else known.created_at_ms
    return [
        DataKeySet(
            command.topic_id, command.key_id, command.wrapped, command.master_id, created_at_ms
        )
    ]
