"""Hot keys of a topic, and the largest message groups of a queue, all partitions together.

Shell: asks the leaders of the partitions. What they do not answer in time is left out.
"""

from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from typing import Final, final

import msgspec
import trio

from tidelog.client.admin.queues import describe_queues
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import (
    ConnectionLostError,
    ErrorDetail,
    NotLeaderError,
    RequestTimedOutError,
    RetriableError,
    TidelogError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.hot_keys import (
    HOT_KEYS_MAX,
    HotGroup,
    HotKey,
    HotKeysRequest,
    PartitionHotKeys,
)
from tidelog.wire.protocol import api

_PATIENCE_S: Final = 5.0
"""Seconds for all leaders together."""
_PARTITIONS_AT_ONCE: Final = 250
"""Partitions of one request: their keys fit into a reply of some megabytes."""

_Leaders = Callable[[], Awaitable[tuple[bytes, Mapping[int, int | None]]]]
"""Returns an id, and the leaders of its partitions by number."""


@final
class TopicHotKey(msgspec.Struct, frozen=True):
    """A frequent key of a topic."""

    partition: int
    key: bytes
    """The key, or its first 128 bytes."""
    key_bytes: int
    """Length of the whole key in bytes."""
    share: float
    """Estimated share of the topic's recent records, from 0 to 1."""
    error_bound: float
    """Maximum error of `share`, in 95 % of all cases."""


@final
class HotKeys(msgspec.Struct, frozen=True):
    """Recent traffic of a topic: its partitions, and its most frequent keys."""

    topic: str
    partition_count: int
    partitions: list[PartitionHotKeys]
    """Partitions whose leaders answered, in order; shares are those of each partition."""
    keys: list[TopicHotKey]
    """Keys with the largest shares of the topic, the largest first."""


@final
class QueueHotGroup(msgspec.Struct, frozen=True):
    """A message group of a queue, with its messages in one partition."""

    partition: int
    key: bytes
    """The key of the group, or its first 128 bytes."""
    key_bytes: int
    """Length of the whole key in bytes."""
    message_count: int
    """Messages that are neither deleted nor moved, in any state."""
    not_visible_count: int
    """Messages in flight or delayed among them."""


@final
class HotMessageGroups(msgspec.Struct, frozen=True):
    """Largest message groups of a queue."""

    queue: str
    partition_count: int
    answered_count: int
    """Partitions whose leaders answered."""
    groups: list[QueueHotGroup]
    """Groups with the most messages, the largest first."""


async def hot_keys(cluster: ClusterClient, topic: str, limit: int) -> HotKeys:
    """See `Admin.hot_keys`."""
    _check_limit(limit)

    async def leaders() -> tuple[bytes, Mapping[int, int | None]]:
        known = await cluster.topic(topic)
        return known.topic_id, {each.partition: each.leader_id for each in known.partitions}

    count, partitions = await _ask_leaders(cluster, leaders, limit)
    rate = sum(each.received_records_per_s for each in partitions)
    keys = [
        _of_topic(each.partition, key, each.received_records_per_s / rate)
        for each in partitions
        for key in each.keys
        if rate
    ]
    keys.sort(key=lambda each: each.share, reverse=True)
    return HotKeys(topic, count, partitions, keys[:limit])


async def hot_message_groups(cluster: ClusterClient, queue: str, limit: int) -> HotMessageGroups:
    """See `Admin.hot_message_groups`."""
    _check_limit(limit)

    async def leaders() -> tuple[bytes, Mapping[int, int | None]]:
        (known,) = await describe_queues(cluster, [queue])
        return known.queue_id, {each.partition: each.leader_id for each in known.partitions}

    count, partitions = await _ask_leaders(cluster, leaders, limit)
    groups = [_group(each.partition, group) for each in partitions for group in each.groups]
    groups.sort(key=lambda each: each.message_count, reverse=True)
    return HotMessageGroups(queue, count, len(partitions), groups[:limit])


def _of_topic(partition: int, key: HotKey, factor: float) -> TopicHotKey:
    """Return a key with its share of the topic: that of its partition, times `factor`."""
    return TopicHotKey(
        partition, key.key, key.key_bytes, key.share * factor, key.error_bound * factor
    )


def _group(partition: int, group: HotGroup) -> QueueHotGroup:
    return QueueHotGroup(
        partition, group.key, group.key_bytes, group.message_count, group.not_visible_count
    )


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= HOT_KEYS_MAX:
        raise ValueError(f"limit must be from 1 to {HOT_KEYS_MAX}, not {limit}")


async def _ask_leaders(
    cluster: ClusterClient, leaders: _Leaders, limit: int
) -> tuple[int, list[PartitionHotKeys]]:
    """Return the number of partitions, and those whose leaders answer in time.

    Raises:
        TidelogError: No partition answered; the last error.
    """
    found: dict[int, PartitionHotKeys] = {}
    count = 0
    failure: TidelogError = RequestTimedOutError(
        f"no leader answered within {_PATIENCE_S:g} s; see `tidelog cluster status`"
    )

    async def attempt() -> None:
        nonlocal count, failure
        topic_id, wanted = await leaders()
        count = len(wanted)
        failures: list[TidelogError] = []

        async def ask(leader_id: int | None, numbers: list[int]) -> None:
            try:
                if leader_id is None:
                    raise NotLeaderError(f"partition {numbers[0]} has no leader now")
                connection = await cluster.connection_to(leader_id)
                for start in range(0, len(numbers), _PARTITIONS_AT_ONCE):
                    part = numbers[start : start + _PARTITIONS_AT_ONCE]
                    request = HotKeysRequest(topic_id, part, limit)
                    reply = await cluster.call_once(connection, api.HOT_KEYS, request)
                    _add(part, reply.partitions, found)
            except TidelogError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for leader_id, numbers in _by_leader(wanted, found).items():
                nursery.start_soon(ask, leader_id, numbers)
        if failures:
            failure = failures[-1]
            raise failure

    with (
        trio.move_on_after(_PATIENCE_S),
        suppress(RetriableError, ConnectionLostError, WireFormatError),
    ):
        await cluster.retry(attempt, is_repeatable=True, waits_for=api.HOT_KEYS.key.name)
    if not found:
        raise failure
    return count, [found[number] for number in sorted(found)]


def _by_leader(
    leaders: Mapping[int, int | None], known: Container[int]
) -> dict[int | None, list[int]]:
    """Return the partitions that are not known yet, by their leader."""
    by_leader: dict[int | None, list[int]] = {}
    for number, leader_id in leaders.items():
        if number not in known:
            by_leader.setdefault(leader_id, []).append(number)
    return by_leader


def _add(
    numbers: list[int], answers: list[PartitionHotKeys], found: dict[int, PartitionHotKeys]
) -> None:
    """Add the answers of one leader.

    Raises:
        BrokerError: The error of a partition, after the answers of all others.
    """
    failure: ErrorDetail | None = None
    for number, answer in zip(numbers, answers, strict=True):
        if answer.error is None:
            found[number] = answer
        else:
            failure = answer.error
    if failure is not None:
        raise from_wire(failure)
