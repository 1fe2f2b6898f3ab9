"""Generator of the table of all APIs by principal.

Run it as `python -m tests.broker.security.access_of_apis`. Each API is sent to a real broker that
requires authentication and enforces access, by an anonymous client, by a user without a rule, by
one with rules for all that exists, by a node with the identity of another one, and by the node that
the request names.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic
from tests.broker.security.access_world import (
    administrator,
    client_of,
    features_known,
    grant,
    set_role,
)
from tests.broker.world import World
from tests.wire.samples import EXCHANGES
from tidelog.broker.security.requirements import REQUIREMENTS
from tidelog.broker.server import Broker
from tidelog.wire.errors import BrokerError, ErrorCode, ErrorDetail
from tidelog.wire.messages import (
    access,
    cluster_admin,
    fetch,
    groups,
    hot_keys,
    metadata,
    names,
    offset_ranges,
    produce,
    queue_admin,
    queues,
    redrives,
    topic_usage,
    topics,
    transactions,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.rpc import RpcConnection

FILE: Final = Path(__file__).parent / "access_of_apis.txt"
PRINCIPALS: Final = ("anonymous", "without rule", "with rules", "other node", "node")
_NAMES: Final = (b"orders", b"work", b"readers", b"job", b"watchers")
_TOLD: Final = {
    ErrorCode.NOT_AUTHORIZED,
    ErrorCode.NOT_A_NODE,
    ErrorCode.AUTHENTICATION_REQUIRED,
    ErrorCode.UNKNOWN_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_QUEUE,
    ErrorCode.UNKNOWN_GROUP,
}
"""Errors that tell about access; all others mean that the request was served."""
_PAGE: Final = names.ListNamesRequest("", "", 10)
_CLAIMED: Final = 2
"""Node that the sample requests of nodes name."""


class Scene(NamedTuple):
    """What the requests are about."""

    topic_id: bytes
    queue_id: bytes
    staging_id: bytes


@asynccontextmanager
async def scene(clock: MockClock) -> AsyncGenerator[tuple[World, Broker, Scene]]:
    """Run a broker with one of each resource, while the block runs."""
    world = World(clock)
    async with (
        world.broker(authorization="enforce", authentication="required") as broker,
        administrator(world, broker) as admin,
    ):
        await features_known(admin)
        topic_id = await create_topic(admin)
        queue = queue_admin.CreateQueueRequest(
            "work", "orders", topic_id, [0], is_fifo=False, config={}, topic_config={}
        )
        queue_id = (await admin.ask(api.CREATE_QUEUE, queue)).queue_id
        commit = groups.CommitOffsetsRequest(
            "readers", "", -1, 1, [groups.PartitionCommit(topic_id, 0, 0)]
        )
        await admin.ask(api.COMMIT_OFFSETS, commit)
        begin = transactions.BeginTransactionRequest("job", 1, ["orders"], 60_000)
        await admin.ask(api.BEGIN_TRANSACTION, begin)
        found = await admin.ask(api.METADATA, metadata.MetadataRequest(["staged@orders"]))
        await grant(admin, *(f"user:bob * {each}" for each in ("topic o*", "queue w*", "cluster")))
        await grant(admin, "user:bob * group readers", "user:bob * staged job")
        await set_role(admin, "watchers", "carol")
        yield world, broker, Scene(topic_id, queue_id, found.topics[0].topic_id)


def requests_of(scene: Scene) -> dict[Api[Any, Any], tuple[object, bytes]]:
    """Return the request and attachment of each API: about what exists, or its sample."""
    batch = bytes(batch_of(b"1", producer_id=1))
    aimed = {
        **_about_topics(scene.topic_id, len(batch)),
        **_about_queues(scene.topic_id, scene.queue_id),
        **_about_transactions(scene.staging_id, len(batch)),
        api.ELECT_LEADERS: cluster_admin.ElectLeadersRequest(None),
        api.LIST_ACCESS: access.ListAccessRequest(None),
    }
    attachments = {api.PRODUCE: batch, api.SEND: batch, api.STAGE: batch}
    samples = {each.api: each.request for each in EXCHANGES}
    return {
        each: (aimed.get(each, samples.get(each)), attachments.get(each, b"")) for each in api.APIS
    }


def _about_topics(topic_id: bytes, batch_bytes: int) -> dict[Api[Any, Any], object]:
    entry = produce.PartitionBatch(topic_id, 0, batch_bytes)
    return {
        api.METADATA: metadata.MetadataRequest(None),
        api.CREATE_TOPIC: topics.CreateTopicRequest("orders2", 1, {}),
        api.DESCRIBE_TOPICS: topics.DescribeTopicsRequest(["orders"]),
        api.LIST_TOPICS: _PAGE,
        api.TOPIC_USAGE: topic_usage.TopicUsageRequest(["orders"]),
        api.ALTER_TOPIC: topics.AlterTopicRequest("orders", {}, []),
        api.ADD_PARTITIONS: topics.AddPartitionsRequest("orders", 2),
        api.DELETE_TOPIC: topics.DeleteTopicRequest("orders"),
        api.DELETE_RECORDS: topics.DeleteRecordsRequest(topic_id, 0, None),
        api.HOT_KEYS: hot_keys.HotKeysRequest(topic_id, [0]),
        api.INIT_PRODUCER: produce.InitProducerRequest(),
        api.PRODUCE: produce.ProduceRequest(2, 1_000, [entry]),
        api.FETCH: fetch.FetchRequest(0, 1, 100, [fetch.PartitionFetch(topic_id, 0, 0, 100)]),
        api.LIST_OFFSETS: offset_ranges.ListOffsetsRequest(
            [offset_ranges.OffsetQuery(topic_id, 0)], ["orders"]
        ),
        api.DESCRIBE_PRODUCER: produce.DescribeProducerRequest(topic_id, 0, 1),
        api.GROUP_HEARTBEAT: groups.GroupHeartbeatRequest(
            "readers", "member", 0, subscription=groups.Subscription(["orders"])
        ),
        api.COMMIT_OFFSETS: groups.CommitOffsetsRequest(
            "readers", "", -1, 2, [groups.PartitionCommit(topic_id, 0, 0)]
        ),
        api.FETCH_OFFSETS: groups.FetchOffsetsRequest("readers"),
        api.LIST_GROUPS: groups.ListGroupsRequest(),
        api.DESCRIBE_GROUPS: groups.DescribeGroupsRequest(["readers"]),
        api.RESET_OFFSETS: groups.ResetOffsetsRequest(
            "readers", [groups.PartitionReset(topic_id, 0, 1)]
        ),
        api.ALTER_GROUP: groups.AlterGroupRequest("readers", {}, []),
        api.DELETE_GROUP: groups.DeleteGroupRequest("readers"),
    }


def _about_queues(topic_id: bytes, queue_id: bytes) -> dict[Api[Any, Any], object]:
    settlement = queues.Settlement(0, b"", [(0, 1)], 0)
    create_queue = queue_admin.CreateQueueRequest(
        "work2", "orders", topic_id, [0], is_fifo=False, config={}, topic_config={}
    )
    return {
        api.CREATE_QUEUE: create_queue,
        api.CREATE_QUEUES: queue_admin.CreateQueuesRequest([create_queue]),
        api.DESCRIBE_QUEUES: queue_admin.DescribeQueuesRequest(["work"]),
        api.LIST_QUEUES: _PAGE,
        api.ALTER_QUEUE: queue_admin.AlterQueueRequest("work", {}, []),
        api.DELETE_QUEUE: queue_admin.DeleteQueueRequest("work"),
        api.SEND: queues.SendRequest(queue_id, 0, 1_000),
        api.RECEIVE: queues.ReceiveRequest(queue_id, [0], 1, 100, 0),
        api.END_RECEIVES: queues.EndReceivesRequest(queue_id),
        api.SETTLE: queues.SettleRequest(queue_id, [settlement]),
        api.PEEK: queues.PeekRequest(queue_id, 0, [], 0, 1, 100),
        api.COUNT_MESSAGES: queues.CountMessagesRequest(queue_id, [0]),
        api.PURGE: queues.PurgeRequest(queue_id, [0]),
        api.QUEUE_SEEK: queues.QueueSeekRequest(queue_id, 0, 0),
        api.REDRIVE: queues.RedriveRequest(queue_id, [0], destination=topic_id),
        api.GET_PURGE_OFFSET: queues.GetPurgeOffsetRequest(queue_id, 0),
        api.CANCEL_SCHEDULED: queues.CancelScheduledRequest(queue_id, 0, [(0, 1)]),
        api.DESCRIBE_REDRIVE: redrives.DescribeRedriveRequest(queue_id, [0]),
    }


def _about_transactions(staging_id: bytes, batch_bytes: int) -> dict[Api[Any, Any], object]:
    staged = produce.PartitionBatch(staging_id, 0, batch_bytes)
    return {
        api.BEGIN_TRANSACTION: transactions.BeginTransactionRequest("job", 1, ["orders"], 60_000),
        api.STAGE: transactions.StageRequest(1, 1_000, [staged]),
        api.COMMIT_TRANSACTION: transactions.CommitTransactionRequest("job", 1, 1, [], 1_000),
        api.ABORT_TRANSACTION: transactions.AbortTransactionRequest("job", 1, 0),
        api.LIST_TRANSACTIONS: transactions.ListTransactionsRequest(None),
        api.FORGET_TRANSACTIONS: transactions.ForgetTransactionsRequest(["job"], 60_000),
    }


async def outcome(
    client: RpcConnection, of: Api[Any, Any], request: object, *, attachment: bytes
) -> str:
    """Return what a request met, as far as access decides about it."""
    try:
        with trio.fail_after(3600):
            reply = await client.call(
                of, request, take=lambda reply, _: reply, attachment=[attachment]
            )
    except BrokerError as error:
        return error.code.name if error.code in _TOLD else "served"
    for detail in _errors(reply):
        if detail.code in _TOLD:
            return ErrorCode(detail.code).name
    if REQUIREMENTS[int(of.key)].shown is not None:
        is_seen = any(name in msgspec.msgpack.encode(reply) for name in _NAMES)
        return "served" if is_seen else "served, sees nothing"
    return "served"


def _errors(value: object) -> Iterator[ErrorDetail]:
    if isinstance(value, ErrorDetail):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _errors(getattr(value, name))
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _errors(each)


async def row_of(clock: MockClock, of: Api[Any, Any]) -> Sequence[str]:
    """Return the outcomes of one API, by principal."""
    if REQUIREMENTS[int(of.key)].is_open:
        return ("open",) * len(PRINCIPALS)
    cells: list[str] = []
    async with scene(clock) as (world, broker, found):
        request, attachment = requests_of(found)[of]
        openings: tuple[Callable[[], AbstractAsyncContextManager[RpcConnection]], ...] = (
            world.client,
            lambda: client_of(world, broker, "alice"),
            lambda: client_of(world, broker, "bob"),
            lambda: world.node(9),
            lambda: world.node(_CLAIMED),
        )
        for place, opened in enumerate(openings):
            async with opened() as client:
                cell = await outcome(client, of, request, attachment=attachment)
            # What the user has changed, the nodes find changed.
            is_of_node = place > PRINCIPALS.index("with rules")
            cells.append("served" if is_of_node and cell.startswith("UNKNOWN") else cell)
    return cells


async def table(clock: MockClock) -> str:
    """Return the table of all APIs."""
    ordered = sorted(api.APIS, key=lambda each: each.key)
    rows: list[tuple[str, ...]] = [("API", *PRINCIPALS)]
    rows += [(each.key.name, *await row_of(clock, each)) for each in ordered]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    time = MockClock(autojump_threshold=0)
    FILE.write_text(trio.run(table, time, clock=time), encoding="utf-8")
    sys.stdout.write(f"wrote {FILE}\n")
