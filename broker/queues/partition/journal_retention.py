"""Retention of a queue's journal, which holds the history of its messages.

Shell without tasks. A journal always begins with a whole snapshot, or with its first entry: so its
reader knows the earlier history of every message.
"""

from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.queues.partition.journal import Journal


async def cut_history(
    journal: Journal,
    reader: SliceReader,
    search: OffsetSearch,
    *,
    snapshot_offset: int,
    keep_from_ms: int,
) -> None:
    """Delete history before a time, as far as the rest begins with a snapshot.

    Args:
        journal: A journal; without change unless it is led here.
        reader: Reader of its log.
        search: Finds times in it.
        snapshot_offset: Offset of the last committed snapshot.
        keep_from_ms: Records of this time or later are kept, unless they are 0 ms old; Unix
            milliseconds.

    Raises:
        BrokerError: The journal cannot be read; nothing was changed.
        WireFormatError: A newer version wrote the journal.
    """
    partition = journal.partition
    first = (await search.find_time(partition, keep_from_ms)).offset
    end: int | None = snapshot_offset
    if first is not None and first < snapshot_offset:
        if first <= partition.log.log_start_offset:
            return
        end = await journal.snapshot_before(reader, first)
    if end is not None and journal.is_led:
        journal.cut(min(end, snapshot_offset))
