"""Finding offsets by place or time.

Shell: asks the leader of each partition, again while that may help.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.metadata import partition_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    LeaderNotAvailableError,
    NotLeaderError,
    UnknownPartitionError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.fetch import (
    ListOffsetsRequest,
    OffsetAt,
    PartitionOffset,
    PartitionOffsetAt,
)
from tidelog.wire.protocol import api

OffsetPlace = Literal["earliest", "latest"] | int
"""The first readable record, the end of what is readable, or the first record of this time (Unix
milliseconds) or later."""

_Questions = dict[TopicPartition, PartitionOffsetAt]


async def list_offsets(
    cluster: ClusterClient, places: Mapping[TopicPartition, OffsetPlace]
) -> dict[TopicPartition, PartitionOffset]:
    """Return where these places are; the offset is `None` where no record is that young.

    Raises:
        UnknownTopicError: There is no such topic.
        UnknownPartitionError: The topic does not have the partition.
        TidelogError: Brokers could not be asked, or refused.
    """

    async def attempt() -> dict[TopicPartition, PartitionOffset]:
        found: dict[TopicPartition, PartitionOffset] = {}
        for leader_id, questions in (await _questions_by_leader(cluster, places)).items():
            connection = await cluster.connection_to(leader_id)
            request = ListOffsetsRequest(list(questions.values()))
            reply = await cluster.call_once(connection, api.LIST_OFFSETS, request)
            if len(reply.offsets) != len(questions):
                raise WireFormatError(
                    f"{len(reply.offsets)} offsets for {len(questions)} questions"
                )
            for at, offset in zip(questions, reply.offsets, strict=True):
                if offset.error is not None:
                    error = from_wire(offset.error)
                    if isinstance(error, UnknownPartitionError):
                        # The metadata have it: it is new, and this one has not heard of it.
                        raise LeaderNotAvailableError(str(error)) from error
                    raise error
                found[at] = offset
        return found

    return await cluster.retry(attempt, is_repeatable=True)


async def list_positions(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], place: OffsetPlace
) -> dict[TopicPartition, int]:
    """Return where to begin at a place; where no record is that young, at the end.

    Errors are those of `list_offsets`.
    """
    found = await list_offsets(cluster, dict.fromkeys(partitions, place))
    offsets = {at: answer.offset for at, answer in found.items() if answer.offset is not None}
    missing = [at for at in partitions if at not in offsets]
    if missing:
        offsets |= await list_positions(cluster, missing, "latest")
    return offsets


async def _questions_by_leader(
    cluster: ClusterClient, places: Mapping[TopicPartition, OffsetPlace]
) -> dict[int, _Questions]:
    by_leader: dict[int, _Questions] = {}
    for at, place in places.items():
        topic = await cluster.topic(at.topic)
        leader_id = partition_of(topic, at.partition).leader_id
        if leader_id is None:
            raise NotLeaderError(f"{at.topic}/{at.partition} has no leader now")
        by_leader.setdefault(leader_id, {})[at] = _question(topic.topic_id, at.partition, place)
    return by_leader


def _question(topic_id: bytes, partition: int, place: OffsetPlace) -> PartitionOffsetAt:
    if place == "earliest":
        return PartitionOffsetAt(topic_id, partition, int(OffsetAt.EARLIEST))
    if place == "latest":
        return PartitionOffsetAt(topic_id, partition, int(OffsetAt.LATEST))
    return PartitionOffsetAt(topic_id, partition, int(OffsetAt.TIMESTAMP), place)
