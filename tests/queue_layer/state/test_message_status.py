"""What becomes of the status of a message."""

from tidelog.queue_layer.state.message_status import Kind, MessageStatus


def test_what_is_not_spoken_of_stays() -> None:
    status = MessageStatus(Kind.LEASED, 30, 2, 10, 20, 7, "worker-1", "no route to host")

    assert status.changed(Kind.WAITING, 40) == MessageStatus(
        Kind.WAITING, 40, 2, 10, 20, 7, "worker-1", "no route to host"
    )
    assert status.changed(Kind.DEAD, 0, reason="").reason == ""
