"""How long a queue remembers what happened to its messages.

Shell without tasks. A journal always begins with a whole snapshot, or with the first entry of all:
so whoever reads it knows of every message what had happened to it before.
"""

from typing import final

from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import Partitions
from tidelog.broker.queues.partition.journal import Journal
from tidelog.wire.errors import UnknownQueueError


@final
class Journals:
    """Journals that are led here, for people who read what happened to messages."""

    def __init__(self, partitions: Partitions) -> None:
        """Find them among `partitions`."""
        self._partitions = partitions

    def find(self, topic_id: bytes, number: int) -> Partition:
        """Return that of a partition of the queue with this id.

        Raises:
            UnknownQueueError: It is the id of something else.
            BrokerError: As for `Partitions.led`.
        """
        partition = self._partitions.led(topic_id, number)
        if not partition.queue_name:
            raise UnknownQueueError(f"{topic_id.hex()} is the id of a topic, not that of a queue")
        return partition

    readable = find
    """Who follows a journal does not answer: histories are short, and read seldom."""


async def cut_history(
    journal: Journal,
    reader: SliceReader,
    offsets: OffsetsHandler,
    *,
    snapshot_offset: int,
    keep_from_ms: int,
) -> None:
    """Let go of what is older than a time, as far as the journal begins with a snapshot then.

    Args:
        journal: Led here, or it stays as it is.
        reader: Of its log.
        offsets: Finds times in it.
        snapshot_offset: Where the last snapshot begins that is committed.
        keep_from_ms: Nothing of this time or later is let go of, unless it is 0 ms old; Unix
            milliseconds.

    Raises:
        BrokerError: It cannot be read; nothing has changed.
        WireFormatError: A newer version wrote it.
    """
    partition = journal.partition
    first = (await offsets.find_time(partition, keep_from_ms)).offset
    end: int | None = snapshot_offset
    if first is not None and first < snapshot_offset:
        if first <= partition.log.log_start_offset:
            return
        end = await journal.snapshot_before(reader, first)
    if end is not None and journal.is_led:
        journal.cut(min(end, snapshot_offset))
