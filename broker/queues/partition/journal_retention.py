"""How long a queue remembers what happened to its messages.

Shell without tasks. A journal always begins with a whole snapshot, or with the first entry of all:
so whoever reads it knows of every message what had happened to it before.
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
    """Let go of what is older than a time, as far as the journal begins with a snapshot then.

    Args:
        journal: Led here, or it stays as it is.
        reader: Of its log.
        search: Finds times in it.
        snapshot_offset: Where the last snapshot begins that is committed.
        keep_from_ms: Nothing of this time or later is let go of, unless it is 0 ms old; Unix
            milliseconds.

    Raises:
        BrokerError: It cannot be read; nothing has changed.
        WireFormatError: A newer version wrote it.
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
