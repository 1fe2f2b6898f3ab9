"""Descriptions of queues, as actions need them.

Shell: it asks brokers.
"""

from collections.abc import Mapping, Sequence

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    SERVICE_UNAVAILABLE,
    SqsError,
    queue_does_not_exist,
)
from tidelog.wire.errors import InvalidConfigError, UnknownQueueError


async def find(caller: Caller, queue: str, *, with_counts: bool = False) -> DescribedQueue | None:
    """Return the description of a queue by its tidelog name; `None` if there is none."""
    try:
        return await caller.state.describe(queue, with_counts=with_counts)
    except UnknownQueueError:
        caller.state.forget(queue)
        return None


async def described(caller: Caller, queue: str, *, with_counts: bool = False) -> DescribedQueue:
    """Return the description of a queue by its tidelog name.

    Raises:
        SqsError: There is no such queue, or one of its brokers did not count in time.
    """
    found = await find(caller, queue, with_counts=with_counts)
    if found is None:
        raise queue_does_not_exist()
    if with_counts and found.counts is None:
        raise SqsError(
            SERVICE_UNAVAILABLE, "The messages could not be counted: a broker does not answer."
        )
    return found


async def relabel(
    caller: Caller, queue: str, labels: Mapping[str, str], *, removed: Sequence[str] = ()
) -> None:
    """Set and remove labels of a queue.

    Raises:
        SqsError: It was deleted meanwhile, or the labels are too large together.
    """
    try:
        await caller.client.admin.alter_queue(queue, set_labels=labels, remove_labels=removed)
    except UnknownQueueError:
        raise queue_does_not_exist() from None
    except InvalidConfigError as error:
        raise SqsError(INVALID_PARAMETER_VALUE, str(error)) from error
