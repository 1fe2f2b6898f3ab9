"""Which producers of a log are those by which queues move messages.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import final

from tidelog.coordinator.metadata.catalog import Catalog
from tidelog.wire.messages.produce import BROKER_PRODUCER_IDS_FROM, STAGED_PRODUCER_ID


def producer_id_of(queue_id: bytes, partition: int) -> int:
    """Return the identity under which one partition of a queue moves messages, always the same."""
    drawn = blake2b(queue_id + partition.to_bytes(4, "little"), digest_size=8).digest()
    return BROKER_PRODUCER_IDS_FROM | int.from_bytes(drawn, "little") >> 2


def may_be_mover(producer_id: int) -> bool:
    """Return whether it may be an identity under which messages of queues are moved."""
    return producer_id >= BROKER_PRODUCER_IDS_FROM


@final
class MoverIds:
    """The producers of all queues that there are.

    No log forgets them, however long they are silent: whoever goes on with a move that was under
    way, after whatever time, asks the target for them to know whether the message is there.
    """

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        """Know of queues what `catalog` returns."""
        self._catalog = catalog
        self._queues: dict[int, bytes] = {}
        """Ids of queues by their producers, also of queues that are gone."""

    def is_one(self, producer_id: int) -> bool:
        """Return whether a queue that is there moves messages under this identity.

        Or whether staged records are appended under it.
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
