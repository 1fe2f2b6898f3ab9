"""Which producers of a log are those by which queues move messages.

Pure: no clock, no I/O.
"""

from collections.abc import Callable
from typing import final

from broker.queues.dead_letters import may_be_mover, producer_id_of
from coordinator.catalog import Catalog
from wire.produce import STAGED_PRODUCER_ID


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
