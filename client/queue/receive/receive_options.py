"""Options of a receive, and the request for them.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence

import msgspec

from tidelog.client.queue.receive.queue_layout import QueueLayout
from tidelog.wire.messages.queues import ReceiveRequest, Settlement


class ReceiveOptions(msgspec.Struct, frozen=True):
    """Options of one call."""

    max_messages: int
    max_bytes: int
    visibility_timeout_ms: int | None
    holder: str
    attempt_id: bytes | None
    """Receive attempt id in FIFO queues."""
    raises_at_limit: bool = False
    """Whether a call raises `OverLimitError` where `max_in_flight` leaves it without messages."""
    is_repeatable: bool = False
    """Whether the caller chose the attempt id, and may call again with it."""
    is_repetition: bool = False
    """Whether only messages of an earlier call with the attempt id are wanted, all of them."""


def request_of(
    layout: QueueLayout,
    partitions: list[int],
    options: ReceiveOptions,
    *,
    max_wait_ms: int = 0,
    settlements: Sequence[Settlement] = (),
) -> ReceiveRequest:
    """Return a request for some partitions of a broker."""
    return ReceiveRequest(
        layout.description.queue_id,
        partitions,
        options.max_messages,
        options.max_bytes,
        max_wait_ms,
        options.visibility_timeout_ms,
        options.holder,
        options.attempt_id,
        options.raises_at_limit,
        options.is_repetition,
        [*settlements],
    )
