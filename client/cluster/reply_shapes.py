"""Shape of replies: as many results as the request has items, and runs no longer than asked for.

Pure: no clock, no I/O. Callers may then combine both lists, and iterate over runs. Replies to
producers, fetches of consumers and settlements are checked where they arrive.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.groups import (
    CommitOffsetsRequest,
    DescribeGroupsRequest,
    ResetOffsetsRequest,
)
from tidelog.wire.messages.hot_keys import HotKeysRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.metrics import MetricFamily, ReadMetricsReply
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest
from tidelog.wire.messages.queue_admin import CreateQueuesRequest, DescribeQueuesRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.messages.transactions import StageRequest

_SAME_LENGTH: Final[dict[type, tuple[str, str]]] = {
    CommitOffsetsRequest: ("offsets", "results"),
    CreateQueuesRequest: ("queues", "results"),
    DescribeGroupsRequest: ("group_ids", "groups"),
    DescribeQueuesRequest: ("queues", "queues"),
    DescribeTopicsRequest: ("topics", "topics"),
    FetchRequest: ("partitions", "results"),
    HotKeysRequest: ("partitions", "partitions"),
    ListOffsetsRequest: ("partitions", "partitions"),
    MetadataRequest: ("topics", "topics"),
    ResetOffsetsRequest: ("partitions", "results"),
    StageRequest: ("batches", "results"),
}
"""Lists of a request and of its reply that have the same length; a request for all has `None`."""

_OF_PARTITIONED: Final = (DescribeQueuesRequest, MetadataRequest)


def mismatch(request: object, reply: object) -> str | None:
    """Return in which way a reply does not belong to its request, `None` if it does."""
    if isinstance(reply, ReadMetricsReply):
        return next(filter(None, map(_malformed, reply.families)), None)
    names = _SAME_LENGTH.get(type(request))
    if names is None:
        return None
    asked: Sequence[object] | None = getattr(request, names[0])
    answered: Sequence[Any] = getattr(reply, names[1])
    if asked is not None and len(asked) != len(answered):
        return f"{len(answered)} {names[1]} for {len(asked)} {names[0]}"
    for each in answered if isinstance(request, _OF_PARTITIONED) else ():
        numbers = [partition.partition for partition in each.partitions]
        if each.name and numbers != list(range(len(numbers) or 1)) and not _failed(each):
            return f"{each.name!r} does not have all of its partitions, in order"
    return None


def _malformed(family: MetricFamily) -> str | None:
    for sample in family.samples:
        histogram = sample.histogram
        if len(sample.labels) != len(family.labels):
            return f"a sample of {family.name!r} has {len(sample.labels)} labels"
        if histogram is not None and len(histogram.counts) != len(histogram.bounds) + 1:
            return f"a histogram of {family.name!r} has {len(histogram.counts)} counts"
    return None


def _failed(described: object) -> bool:
    return getattr(described, "error", None) is not None


def excess(counts: Iterable[int], limit: int) -> str | None:
    """Return what is wrong with runs of so many offsets, `None` if they have `limit` at most."""
    total = 0
    for count in counts:
        total += count
        if count < 1 or total > limit:
            return f"a run of {count} messages, where {limit} are possible"
    return None
