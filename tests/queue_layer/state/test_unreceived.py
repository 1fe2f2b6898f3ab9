"""Records that no consumer has received: messages, chunks and delivery times."""

from tidelog.queue_layer.state.unreceived import UnreceivedRecords


def test_a_range_that_ends_before_it_begins_has_no_messages() -> None:
    unreceived = UnreceivedRecords(0, 0)
    unreceived.on_records(10)
    assert list(unreceived.messages(7, 5)) == []

    unreceived.skip_chunks(8, 9)

    assert list(unreceived.messages(7, 5)) == []
    assert list(unreceived.messages(7, 10)) == [(7, 8), (9, 10)]
