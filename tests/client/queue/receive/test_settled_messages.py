"""What is watched is remembered when it is settled, and nothing else."""

from tidelog.client.queue.receive.receipt_handle import ReceivedPlace
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.wire.messages.queues import SettleAction

PLACE = ReceivedPlace(1, 7, b"receipt")


def test_what_is_watched_is_remembered_when_it_is_settled() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)
    assert settled.action_of(PLACE) is None

    settled.note(1, b"receipt", range(5, 10), action=SettleAction.RELEASE)

    assert settled.action_of(PLACE) is SettleAction.RELEASE


def test_an_extension_settles_nothing() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)

    settled.note(1, b"receipt", [7], action=SettleAction.EXTEND)

    assert settled.action_of(PLACE) is None


def test_another_delivery_of_a_message_is_another_one() -> None:
    settled = SettledMessages()
    settled.watch(PLACE)

    settled.note(1, b"later", [7], action=SettleAction.DELETE)
    settled.note(2, b"receipt", [7], action=SettleAction.DELETE)

    assert settled.action_of(PLACE) is None


def test_nothing_is_remembered_that_nobody_watches() -> None:
    settled = SettledMessages()
    settled.note(1, b"receipt", [7], action=SettleAction.DELETE)
    settled.watch(PLACE)
    settled.forget(PLACE)
    settled.note(1, b"receipt", [7], action=SettleAction.DELETE)

    assert settled.action_of(PLACE) is None
