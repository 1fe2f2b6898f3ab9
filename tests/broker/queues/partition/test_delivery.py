"""What a receive got of one partition."""

from tidelog.broker.queues.partition.delivery import taken_of
from tidelog.wire.messages.queues import PartitionReceived, ReceivedRun


def test_the_reply_says_how_many_bytes_of_batches_belong_to_a_partition() -> None:
    received = PartitionReceived(3, b"receipt", [ReceivedRun(7, 2, 1, 5)], deadline_ms=9)

    taken = taken_of(received, [b"abc", b"de"])

    assert taken.pieces == [b"abc", b"de"]
    assert taken.received == PartitionReceived(
        3, b"receipt", [ReceivedRun(7, 2, 1, 5)], batch_bytes=5, deadline_ms=9
    )
