"""Samples of messages between a follower and its leader."""

from msgspec.structs import replace

from tidelog.wire.errors import CorruptBatchError
from tidelog.wire.messages.replication import (
    Diverging,
    FollowedPartition,
    ReplicaDurable,
    ReplicaDurableReply,
    ReplicaDurableRequest,
    ReplicaFetched,
    ReplicaFetchReply,
    ReplicaFetchRequest,
    ReplicaIdentity,
    ReplicaPosition,
    ReplicaReadReply,
    ReplicaReadRequest,
)

IDENTITY = ReplicaIdentity(
    cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
    node_id=2,
    broker_epoch=17,
    incarnation_id="0c1d2e3f4a5b6c7d8e9f0a1b",
)

FETCH = (
    ReplicaFetchRequest(
        identity=IDENTITY,
        begins_session=True,
        max_wait_ms=500,
        max_bytes=8_388_608,
        followed=[
            FollowedPartition(
                number_in_session=4,
                topic_id=bytes(range(16)),
                partition=3,
                leader_epoch=6,
                leader_epochs=[(2, 0), (5, 1000)],
            )
        ],
        positions=[
            ReplicaPosition(
                number_in_session=4,
                fetch_offset=1019,
                last_fetched_epoch=5,
                durable_end_offset=1000,
                is_whole=False,
                is_suspect=True,
            ),
            ReplicaPosition(5, 0, None, 0),
        ],
        unfollowed=[3],
        has_readers=True,
    ),
    ReplicaFetchReply(
        results=[
            ReplicaFetched(
                number_in_session=4,
                batch_bytes=300,
                high_watermark=1000,
                log_start_offset=10,
            ),
            ReplicaFetched(5, 0, 90, 0, diverging=Diverging(epoch=4, end_offset=80)),
            ReplicaFetched(6, 0, 0, 0, error=CorruptBatchError("damaged").to_wire()),
        ]
    ),
)

_FOLLOWED_V3 = [replace(each, leader_epochs=[]) for each in FETCH[0].followed]
FETCH_V3 = replace(FETCH[0], followed=_FOLLOWED_V3)
FETCH_V2 = replace(FETCH_V3, has_readers=False)
FETCH_V1 = ReplicaFetchRequest(
    identity=IDENTITY,
    begins_session=True,
    max_wait_ms=500,
    max_bytes=8_388_608,
    followed=_FOLLOWED_V3,
    positions=[ReplicaPosition(4, 1019, 5, 1000), ReplicaPosition(5, 0, None, 0)],
    unfollowed=[3],
)

DURABLE = (
    ReplicaDurableRequest(
        identity=IDENTITY,
        partitions=[ReplicaDurable(number_in_session=4, durable_end_offset=1019)],
        ends_wait=True,
    ),
    ReplicaDurableReply(known_count=1),
)

READ = (
    ReplicaReadRequest(
        identity=IDENTITY,
        topic_id=bytes(range(16)),
        partition=3,
        leader_epoch=6,
        offset=100,
        end_offset=250,
        max_bytes=1_048_576,
    ),
    ReplicaReadReply(log_start_offset=10),
)
