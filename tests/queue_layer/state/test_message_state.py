"""The status of a message, and which states follow which."""

import pytest

from tidelog.queue_layer.state.message_state import (
    TRANSITIONS,
    MessageStatus,
    StoredState,
    validate_transition,
)
from tidelog.wire.messages.queues import MessageState


def test_what_is_not_spoken_of_stays() -> None:
    status = MessageStatus(StoredState.IN_FLIGHT, 30, 2, 10, 20, 7, "worker-1", "no route to host")

    assert status.changed(StoredState.AVAILABLE, 40) == MessageStatus(
        StoredState.AVAILABLE, 40, 2, 10, 20, 7, "worker-1", "no route to host"
    )
    assert status.changed(StoredState.DEAD, 0, reason="").reason == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (MessageState.DELAYED, MessageState.IN_FLIGHT),
        (MessageState.DEAD, MessageState.IN_FLIGHT),
        (MessageState.DEAD, MessageState.DEAD),
    ],
)
def test_delayed_messages_and_dead_letters_are_not_delivered(
    before: MessageState, after: MessageState
) -> None:
    with pytest.raises(AssertionError, match=f"{before.name} -> {after.name}"):
        validate_transition(before, after)


def test_all_other_transitions_are_in_the_table() -> None:
    stored = [state for state in MessageState if state is not MessageState.BLOCKED]

    assert len(TRANSITIONS) == len(stored) ** 2 - 3
    for before, after in TRANSITIONS:
        validate_transition(before, after)
