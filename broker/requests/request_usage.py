"""Usage of one request, counted for its principal.

Pure: no clock, no I/O.
"""

from typing import final

from tidelog.broker.audit.usage import Usage, UsageFold
from tidelog.broker.requests.response import RequestContext
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.security.principal import Principal


@final
class RequestUsage:
    """Traffic of one request of a client: it counts as one request for each topic and queue."""

    __slots__ = ("_counted", "_fold", "_principal")

    def __init__(self, fold: UsageFold, principal: Principal) -> None:
        """Add to the usage of `principal` in `fold`."""
        self._fold = fold
        self._principal = principal
        self._counted: set[str] = set()

    def received(self, resource: str, header: BatchHeader) -> None:
        """Count an appended batch."""
        usage = self._of(resource)
        usage.records_in += header.record_count
        usage.bytes_in += header.size

    def sent(self, resource: str, byte_count: int) -> None:
        """Count bytes of batches in the reply."""
        self._of(resource).bytes_out += byte_count

    def sent_to_queue(self, queue: str, *, messages: int, byte_count: int) -> None:
        """Count messages that the request has sent to a queue."""
        usage = self._of(f"queue:{queue}")
        usage.records_in += messages
        usage.bytes_in += byte_count

    def delivered(self, queue: str, *, messages: int, byte_count: int) -> None:
        """Count messages of a queue in the reply."""
        usage = self._of(f"queue:{queue}")
        usage.records_out += messages
        usage.bytes_out += byte_count

    def _of(self, resource: str) -> Usage:
        usage = self._fold.of(self._principal, resource)
        if resource not in self._counted:
            self._counted.add(resource)
            usage.requests += 1
        return usage


def usage_of(context: RequestContext) -> RequestUsage | None:
    """Return the usage of a request; `None` if it is a node's, or if usage is not counted."""
    fold = context.audit.usage
    if fold is None or context.node_id is not None:
        return None
    return RequestUsage(fold, context.principal)
