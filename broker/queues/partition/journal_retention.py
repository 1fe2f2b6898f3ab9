"""Retention of a queue's journal, which holds the history of its messages.

Shell without tasks. A journal always begins with a whole snapshot, or with its first entry: so its
reader knows the earlier history of every message.
"""

from collections.abc import Callable
from typing import final

from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.queues.partition.journal import Journal
from tidelog.wire.env.env import Probe
from tidelog.wire.errors import BrokerError, WireFormatError


@final
class JournalHistory:
    """The history in the journal of one partition; one task cuts it at a time."""

    def __init__(
        self,
        journal: Journal,
        reader: SliceReader,
        search: OffsetSearch,
        *,
        deletion_ms: Callable[[], int | None],
        probe: Probe,
    ) -> None:
        """Cut the history of a journal.

        Args:
            journal: A journal; it does not change unless it is led here.
            reader: Reader of its log.
            search: Finds times in it.
            deletion_ms: Returns the time that decides about deletion; `None`: nothing is deleted.
            probe: Reports failures.
        """
        self._journal = journal
        self._reader = reader
        self._search = search
        self._deletion_ms = deletion_ms
        self._probe = probe
        self._is_cutting = False

    async def cut(self, snapshot_offset: int, keep_ms: int) -> None:
        """Delete the history that is older than a time, before a committed snapshot.

        Only as far as the rest begins with a snapshot. If it fails, or nothing may be deleted now,
        the next snapshot repeats it.
        """
        deletion_ms = self._deletion_ms()
        if self._is_cutting or deletion_ms is None:
            return
        self._is_cutting = True
        try:
            await self._cut(snapshot_offset, keep_from_ms=deletion_ms - keep_ms)
        except (BrokerError, WireFormatError) as error:
            self._probe("queue_history_not_cut", severity="warning", reason=str(error))
        finally:
            self._is_cutting = False

    async def _cut(self, snapshot_offset: int, *, keep_from_ms: int) -> None:
        """Delete history; records of `keep_from_ms` or later are kept.

        Raises:
            BrokerError: The journal cannot be read; nothing was changed.
            WireFormatError: A newer version wrote the journal.
        """
        journal, partition = self._journal, self._journal.partition
        first = (await self._search.find_time(partition, keep_from_ms)).offset
        end: int | None = snapshot_offset
        if first is not None and first < snapshot_offset:
            if first <= partition.log.log_start_offset:
                return
            end = await journal.snapshot_before(self._reader, first)
        if end is not None and journal.is_led:
            journal.cut(min(end, snapshot_offset))
