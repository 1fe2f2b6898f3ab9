"""Mutations of the counts of metrics."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.metrics import event_counts, queue_totals
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.wire.messages.queues import Run

_queues_on = QueueServer.queues_on


def _queues_served_here(self: QueueServer, topic_id: bytes) -> list[Topic]:
    journals = [each for each in self.partitions.all() if each.queue_name and each.leader]
    served = {journal.topic_id for journal in journals}
    return [queue for queue in _queues_on(self, topic_id) if queue.topic_id in served]


def _runs(runs: Sequence[Run]) -> int:
    return len(runs)


def _one(fields: dict[str, object]) -> int:
    del fields
    return 1


MUTATIONS: Final = (
    Mutation(
        "sent-counted-by-the-server-of-the-queue",
        "messages that one broker gets while another serves their queue are not counted",
        (QueueServer, "queues_on", _queues_served_here),
    ),
    Mutation(
        "runs-counted-as-messages",
        "messages that were deleted together count as one",
        (queue_totals, "_length", _runs),
    ),
    Mutation(
        "isr-changes-counted-by-event",
        "an event of several partitions counts once",
        (event_counts, "_count", _one),
    ),
)
