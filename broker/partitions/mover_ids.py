"""Producer ids under which queues move messages.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import final

from tidelog.coordinator.metadata.catalog import Catalog
from tidelog.wire.messages.produce import BROKER_PRODUCER_IDS_FROM, STAGED_PRODUCER_ID


def producer_id_of(queue_id: bytes, partition: int) -> int:
    """Return the producer id of one partition of a queue for its moves, always the same."""
    drawn = blake2b(queue_id + partition.to_bytes(4, "little"), digest_size=8).digest()
    return BROKER_PRODUCER_IDS_FROM | int.from_bytes(drawn, "little") >> 2


def may_be_mover(producer_id: int) -> bool:
    """Return whether a producer id may be that of a mover."""
    return producer_id >= BROKER_PRODUCER_IDS_FROM


@final
class MoverIds:
    """The mover ids of all existing queues.

    Logs never expire these producers, however long they are silent: a broker that resumes an
    interrupted move, after any time, asks the target for them to learn whether the message is
    there.
    """

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        """Take the queues from `catalog`."""
        self._catalog = catalog
        self._queues: dict[int, bytes] = {}
        """Queue ids by producer id, also of deleted queues."""

    def is_one(self, producer_id: int) -> bool:
        """Return whether an existing queue moves messages under this id.

        The id under which staged records are appended counts, too.
        """
        if producer_id == STAGED_PRODUCER_ID:
            return True
        if not may_be_mover(producer_id):
            return False
        catalog = self._catalog()
        if producer_id not in self._queues:
            self._queues = {
                producer_id_of(journal.topic_id, number): journal.topic_id
                for journal in catalog.journals
                for number in range(journal.partition_count)
            }
        queue_id = self._queues.get(producer_id)
        return queue_id is not None and catalog.topic_by_id(queue_id) is not None
