"""Sends that look at each message. Numbers in docstrings: docs/queue-statements.md."""

import pytest

from queue_layer.deduplication import DeduplicationRule, DeduplicationScope, DeduplicationWindow
from queue_layer.sending import (
    DEDUPLICATION_ID_SIZE_MAX,
    Original,
    SentMessage,
    check_message,
    originals,
)
from wire.errors import InvalidRequestError

BY_ID = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=False)
BY_CONTENT = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=True)


def test_a_message_with_a_group_and_an_id_is_taken() -> None:
    message = SentMessage(b"value", b"group", b"id")

    assert check_message(message, BY_ID) == BY_ID.key_of(b"group", b"id", b"value")


def test_a_fifo_queue_takes_no_message_without_a_group() -> None:
    """Statement 38."""
    with pytest.raises(InvalidRequestError, match="needs a group"):
        check_message(SentMessage(b"value", None, b"id"), BY_ID)


def test_a_fifo_queue_takes_no_message_with_a_delay_of_its_own() -> None:
    """Statement 33."""
    with pytest.raises(InvalidRequestError, match="delays of their own"):
        check_message(SentMessage(b"value", b"group", b"id", 1), BY_ID)


@pytest.mark.parametrize("delay_ms", [None, 0])
def test_a_message_that_asks_for_no_delay_gets_that_of_the_queue(delay_ms: int | None) -> None:
    """Statement 33."""
    assert check_message(SentMessage(b"value", b"group", b"id", delay_ms), BY_ID) is not None


def test_a_fifo_queue_needs_an_id_unless_it_makes_one_of_the_content() -> None:
    """Statement 46."""
    message = SentMessage(b"value", b"group")

    with pytest.raises(InvalidRequestError, match="content_based_deduplication"):
        check_message(message, BY_ID)
    assert check_message(message, BY_CONTENT) == BY_CONTENT.key_of(b"group", None, b"value")


@pytest.mark.parametrize("size", [0, DEDUPLICATION_ID_SIZE_MAX + 1])
def test_an_id_is_neither_empty_nor_long(size: int) -> None:
    with pytest.raises(InvalidRequestError, match="1 to 128 bytes"):
        check_message(SentMessage(b"value", b"group", b"x" * size), BY_ID)


def test_a_standard_queue_takes_groups_but_no_ids() -> None:
    """Statement 48."""
    assert check_message(SentMessage(b"value", b"group", None, 5000), None) is None
    with pytest.raises(InvalidRequestError, match="only FIFO queues"):
        check_message(SentMessage(b"value", b"group", b"id"), None)


def test_duplicates_are_found_in_the_log_and_in_the_same_send() -> None:
    """Statement 39."""
    window = DeduplicationWindow()
    keys = [bytes([number]) * 16 for number in range(3)]
    window.appended(keys[0], 70, accepted_ms=1000)

    found = originals([keys[0], keys[1], keys[2], keys[1], None, None], window, now_ms=1000)

    assert found == [Original(offset=70), None, None, Original(place=1), None, None]


def test_what_was_received_and_deleted_is_still_known_to_the_window() -> None:
    """Statement 40: the window is a memory of the log, and no queue tells it anything."""
    window = DeduplicationWindow()
    key = check_message(SentMessage(b"value", b"group", b"id"), BY_ID)
    assert key is not None
    window.appended(key, 0, accepted_ms=1000)

    assert originals([key], window, now_ms=2000) == [Original(offset=0)]
