"""Usage of one request: its traffic by topic, added to the usage of its principal at the end.

Pure: no clock, no I/O.
"""

from typing import final

from tidelog.broker.audit.usage import UsageFold
from tidelog.broker.requests.response import RequestContext
from tidelog.coordinator.metadata.catalog import topic_of_staging
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.security.principal import Principal


@final
class RequestUsage:
    """Traffic of one request of a client."""

    __slots__ = ("_fold", "_principal", "_traffic")

    def __init__(self, fold: UsageFold, principal: Principal) -> None:
        """Add to the usage of `principal` in `fold`, when `add` is called."""
        self._fold = fold
        self._principal = principal
        self._traffic: dict[str, list[int]] = {}

    def received(self, topic: str, header: BatchHeader) -> None:
        """Count an appended batch, also in the staging log of a topic."""
        self._count(
            f"topic:{topic_of_staging(topic) or topic}", (header.record_count, 0, header.size, 0)
        )

    def sent(self, topic: str, byte_count: int) -> None:
        """Count bytes of batches in the reply."""
        self._count(f"topic:{topic}", (0, 0, 0, byte_count))

    def sent_to_queue(self, queue: str, *, messages: int, byte_count: int) -> None:
        """Count messages that the request has sent to a queue."""
        self._count(f"queue:{queue}", (messages, 0, byte_count, 0))

    def delivered(self, queue: str, *, messages: int, byte_count: int) -> None:
        """Count messages of a queue in the reply."""
        self._count(f"queue:{queue}", (0, messages, 0, byte_count))

    def add(self) -> None:
        """Add the traffic to that of the principal, as one request for each topic and queue."""
        for resource, (records_in, records_out, bytes_in, bytes_out) in self._traffic.items():
            usage = self._fold.of(self._principal, resource)
            usage.requests += 1
            usage.records_in += records_in
            usage.records_out += records_out
            usage.bytes_in += bytes_in
            usage.bytes_out += bytes_out
        self._traffic = {}

    def _count(self, resource: str, counts: tuple[int, int, int, int]) -> None:
        known = self._traffic.setdefault(resource, [0, 0, 0, 0])
        for place, count in enumerate(counts):
            known[place] += count


def usage_of(context: RequestContext) -> RequestUsage | None:
    """Return the usage of a request; `None` if it is a node's, or if usage is not counted."""
    fold = context.audit.usage
    if fold is None or context.node_id is not None:
        return None
    return RequestUsage(fold, context.principal)
