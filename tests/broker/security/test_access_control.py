"""Access of clients: what a broker carries out, denies and shows."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    produce,
    submit,
    submit_batches,
    submit_produce,
)
from tests.broker.security.access_world import (
    administrator,
    client_of,
    features_known,
    grant,
    revoke,
    set_role,
)
from tests.broker.world import World, settle
from tests.wire.memory import at_most_allocated
from tidelog.broker.server import Broker
from tidelog.queue_layer.state import snapshots
from tidelog.wire.errors import (
    ErrorCode,
    NotANodeError,
    NotAuthorizedError,
    UnknownQueueError,
    UnknownTopicError,
)
from tidelog.wire.messages.access import (
    AccessExplanation,
    ExplainAccessRequest,
    ListAccessRequest,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.groups import (
    CommitOffsetsRequest,
    DescribeGroupsRequest,
    GroupHeartbeatRequest,
    ListGroupsRequest,
    PartitionCommit,
    Subscription,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.names import ListNamesRequest
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.produce import InitProducerRequest
from tidelog.wire.messages.queue_admin import (
    AlterQueueRequest,
    CreateQueueRequest,
    CreateQueuesRequest,
    DeleteQueueRequest,
    DescribeQueuesRequest,
)
from tidelog.wire.messages.queues import (
    GetPurgeOffsetRequest,
    ReceiveRequest,
    RedriveRequest,
    SendRequest,
)
from tidelog.wire.messages.quotas import ListQuotasRequest
from tidelog.wire.messages.topics import (
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribeTopicsRequest,
)
from tidelog.wire.messages.transactions import (
    BeginTransactionRequest,
    ListTransactionsRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.security.audit_topic import AUDIT_TOPIC
from tidelog.wire.transport.rpc import RpcConnection

UNKNOWN_ID = bytes(16)


class Scene(NamedTuple):
    """A broker that enforces access, its administrator, and a user without rules."""

    world: World
    broker: Broker
    admin: RpcConnection
    alice: RpcConnection


@asynccontextmanager
async def scene(clock: MockClock, mode: str = "enforce") -> AsyncGenerator[Scene]:
    world = World(clock)
    async with (
        world.broker(authorization=mode) as broker,
        administrator(world, broker) as admin,
        client_of(world, broker, "alice") as alice,
    ):
        await features_known(admin)
        yield Scene(world, broker, admin, alice)


async def create_queue(client: RpcConnection, name: str, **config: str) -> bytes:
    request = CreateQueueRequest(
        name, name, None, [], is_fifo=False, config=config, topic_config={}
    )
    return (await client.ask(api.CREATE_QUEUE, request)).queue_id


def fetch_of(topic_id: bytes, *more: bytes, wait_ms: int = 0) -> FetchRequest:
    wanted = [PartitionFetch(each, 0, 0, 1 << 20) for each in (topic_id, *more)]
    return FetchRequest(wait_ms, 1, 1 << 20, wanted)


async def test_a_user_without_a_rule_is_denied_and_one_with_it_is_served(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        topic_id = await create_topic(admin)
        await grant(admin, "user:alice read topic orders")

        with pytest.raises(NotAuthorizedError, match="user:alice may not write topic orders"):
            await produce(alice, topic_id, batch_of(b"1"))

        await grant(admin, "user:alice write topic orders")
        assert (await produce(alice, topic_id, batch_of(b"1"))).base_offset == 0


async def test_a_denied_batch_fails_alone_in_its_place(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        ids = [await create_topic(admin, name) for name in ("a", "b", "c")]
        await grant(admin, "user:alice write topic a", "user:alice write topic c")
        await grant(admin, "user:alice read topic b")

        batches = [(each, 0, batch_of(b"%d" % index)) for index, each in enumerate(ids)]
        reply = await submit_batches(alice, batches).reply()

        codes = [each.error and each.error.code for each in reply.results]
        assert codes == [None, ErrorCode.NOT_AUTHORIZED, None]
        fetched, content = await submit(admin, api.FETCH, fetch_of(*ids)).reply_and_attachment()
        lengths = [each.batch_bytes for each in fetched.results]
        assert lengths[1] == 0
        assert b"0" in content[: lengths[0]]
        assert b"2" in content[lengths[0] :]


async def test_a_denied_partition_is_missing_in_a_fetch_alone(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        seen, secret = await create_topic(admin, "seen"), await create_topic(admin, "secret")
        await produce(admin, seen, batch_of(b"public"))
        await produce(admin, secret, batch_of(b"hidden"))
        await grant(admin, "user:alice read topic seen", "user:alice write topic secret")

        request = fetch_of(secret, seen, wait_ms=60_000)
        reply, content = await submit(alice, api.FETCH, request).reply_and_attachment()

        assert [each.error and each.error.code for each in reply.results] == [
            ErrorCode.NOT_AUTHORIZED,
            None,
        ]
        assert b"public" in content
        assert b"hidden" not in content


async def test_an_unseen_topic_is_answered_as_an_unknown_one_by_name_and_id(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        topic_id = await create_topic(admin, "secret")
        await create_topic(admin, "mine")
        await grant(admin, "user:alice read topic mine")

        texts = list[str]()
        for name in ("secret", "nosuch"):
            with pytest.raises(UnknownTopicError) as caught:
                await alice.ask(api.DESCRIBE_TOPICS, DescribeTopicsRequest(["mine", name]))
            texts.append(str(caught.value).replace(name, "NAME"))
            with pytest.raises(UnknownTopicError) as caught:
                await alice.ask(api.DELETE_TOPIC, DeleteTopicRequest(name))
            texts.append(str(caught.value).replace(name, "NAME"))
            (found,) = (await alice.ask(api.METADATA, MetadataRequest([name]))).topics
            assert found.error is not None
            assert found.topic_id == b""
            texts.append(found.error.message.replace(name, "NAME"))
        assert texts[:3] == texts[3:]

        errors = list[str]()
        for each in (topic_id, UNKNOWN_ID):
            produced = await submit_produce(alice, each, batch_of(b"1")).reply()
            fetched = await alice.ask(api.FETCH, fetch_of(each))
            listed = await alice.ask(api.LIST_OFFSETS, ListOffsetsRequest([OffsetQuery(each, 0)]))
            for error in (
                produced.results[0].error,
                fetched.results[0].error,
                listed.partitions[0].error,
            ):
                assert error is not None
                errors.append(f"{error.code} {error.message.replace(each.hex(), 'ID')}")
        assert errors[:3] == errors[3:]


async def test_a_creation_tells_nothing_about_an_unseen_name(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await create_topic(admin, "secret")
        texts = list[str]()
        for name in ("secret", "nosuch"):
            with pytest.raises(NotAuthorizedError) as caught:
                await alice.ask(api.CREATE_TOPIC, CreateTopicRequest(name, 1, {}))
            texts.append(str(caught.value).replace(name, "NAME"))
        assert texts[0] == texts[1]


async def test_lists_show_what_a_principal_may_see(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        for name in ("a", "ab", "abc", "b", "c"):
            await create_topic(admin, name)
        await create_queue(admin, "work")
        await grant(admin, "user:alice read topic ab*", "user:alice read topic c")
        await grant(admin, "deny user:alice describe topic abc")

        everything = (await alice.ask(api.METADATA, MetadataRequest(None))).topics
        assert [each.name for each in everything] == ["ab", "c"]
        described = (await alice.ask(api.DESCRIBE_TOPICS, DescribeTopicsRequest(None))).topics
        assert [each.name for each in described] == ["ab", "c"]
        offsets = await alice.ask(api.LIST_OFFSETS, ListOffsetsRequest([], topics=None))
        assert [each.name for each in offsets.topics] == ["ab", "c"]
        assert not (await alice.ask(api.DESCRIBE_QUEUES, DescribeQueuesRequest(None))).queues
        assert not (await alice.ask(api.LIST_QUEUES, ListNamesRequest("", "", 10))).names
        assert not (await alice.ask(api.LIST_GROUPS, ListGroupsRequest())).groups
        names, after = list[str](), ""
        while True:
            page = await alice.ask(api.LIST_TOPICS, ListNamesRequest("", after, 1))
            names += page.names
            if not page.has_more:
                break
            after = page.names[-1]
        assert names == ["ab", "c"]
        page = await alice.ask(api.LIST_TOPICS, ListNamesRequest("c", "", 10))
        assert (page.names, page.has_more) == (["c"], False)


async def test_an_unseen_queue_or_group_is_an_unknown_one(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        queue_id = await create_queue(admin, "work")
        deleted_id = await create_queue(admin, "gone")
        await admin.ask(api.DELETE_QUEUE, DeleteQueueRequest("gone"))
        await admin.ask(api.COMMIT_OFFSETS, CommitOffsetsRequest("readers", "", -1, 1, []))
        texts = list[str]()
        for name, each in (("work", queue_id), ("gone", deleted_id)):
            with pytest.raises(UnknownQueueError) as caught:
                await alice.ask(api.DESCRIBE_QUEUES, DescribeQueuesRequest([name]))
            texts.append(str(caught.value).replace(name, "NAME"))
            with pytest.raises(UnknownQueueError) as caught:
                await alice.ask(api.RECEIVE, ReceiveRequest(each, [0], 1, 1, 0))
            texts.append(str(caught.value).replace(each.hex(), "ID"))
        assert texts[:2] == texts[2:]
        reply = await alice.ask(api.DESCRIBE_GROUPS, DescribeGroupsRequest(["readers", "nosuch"]))
        assert [each.error and each.error.code for each in reply.groups] == [
            ErrorCode.UNKNOWN_GROUP,
            ErrorCode.UNKNOWN_GROUP,
        ]


async def test_each_of_many_queues_needs_its_own_rules(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        queue_id = await create_queue(admin, "w")
        topic_id = (await admin.ask(api.DESCRIBE_QUEUES, DescribeQueuesRequest(["w"]))).queues
        await grant(admin, "user:alice create queue w*", "user:alice create topic w*")
        wanted = [
            CreateQueueRequest(name, topic, None, [], is_fifo=False, config={}, topic_config={})
            for name, topic in (("w1", "w1"), ("x1", "x1"), ("w2", "x2"), ("w3", "w3"))
        ]
        # On an existing topic, which alice may not read: allowed once is not allowed for its id.
        wanted.append(
            CreateQueueRequest(
                *("w4", "w", topic_id[0].topic_id, [0]), is_fifo=False, config={}, topic_config={}
            )
        )

        reply = await alice.ask(api.CREATE_QUEUES, CreateQueuesRequest(wanted))

        codes = [each.error and each.error.code for each in reply.results]
        denied = ErrorCode.NOT_AUTHORIZED
        assert codes == [None, denied, denied, None, denied]
        listed = await admin.ask(api.DESCRIBE_QUEUES, DescribeQueuesRequest(None))
        assert [each.name for each in listed.queues] == ["w", "w1", "w3"]
        assert listed.queues[0].queue_id == queue_id


async def test_a_sender_of_a_queue_appends_to_its_topic_through_send_alone(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        queue_id = await create_queue(admin, "work")
        await grant(admin, "user:alice send queue work")
        (found,) = (await alice.ask(api.METADATA, MetadataRequest(["work"]))).topics

        batch = batch_of(b"1", producer_id=1, at_ms=0)
        sent = await submit(alice, api.SEND, SendRequest(queue_id, 0, 1_000), batch).reply()
        assert sent.offsets == [0]
        with pytest.raises(NotAuthorizedError, match="may not write topic work"):
            await produce(alice, found.topic_id, batch_of(b"2"))
        with pytest.raises(NotAuthorizedError, match="may not receive queue work"):
            await alice.ask(api.RECEIVE, ReceiveRequest(queue_id, [0], 1, 1, 0))


async def test_the_topic_of_a_queue_is_created_or_read_and_written_by_right(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await create_topic(admin, "orders")
        await grant(admin, "user:alice create queue orders")
        with pytest.raises(NotAuthorizedError, match="create topic orders"):
            await create_queue(alice, "orders")
        await grant(admin, "user:alice read topic orders")
        with pytest.raises(NotAuthorizedError, match="write topic orders"):
            await create_queue(alice, "orders")


async def test_a_right_to_create_opens_no_topic_that_exists_unseen(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await create_topic(admin, "secret")
        await grant(admin, "user:alice create,receive,send queue *", "user:alice create topic *")
        await grant(admin, "deny user:alice describe topic secret")

        with pytest.raises(UnknownTopicError):
            await create_queue(alice, "secret")

        await create_queue(alice, "other")


async def test_dead_letters_and_redrives_act_for_the_principal_that_asks(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await create_queue(admin, "dead")
        queue_id = await create_queue(admin, "work")
        await grant(admin, "user:alice alter,redrive,create queue work*")
        await grant(admin, "user:alice create topic work*")

        to_dead = {"dead_letter_queue": "dead"}
        with pytest.raises(NotAuthorizedError, match="may not send queue dead"):
            await alice.ask(api.ALTER_QUEUE, AlterQueueRequest("work", to_dead, []))
        with pytest.raises(NotAuthorizedError, match="may not send queue dead"):
            await create_queue(alice, "work2", dead_letter_queue="dead")
        with pytest.raises(NotAuthorizedError, match=r"may not write topic \*"):
            await alice.ask(api.REDRIVE, RedriveRequest(queue_id, [0]))
        (dead,) = (await admin.ask(api.DESCRIBE_QUEUES, DescribeQueuesRequest(["dead"]))).queues
        aimed = RedriveRequest(queue_id, [0], destination=dead.topic_id)
        assert (await submit_failed(alice, aimed)).startswith("no topic has the id")
        await grant(admin, "user:alice send queue dead")
        await alice.ask(api.ALTER_QUEUE, AlterQueueRequest("work", to_dead, []))
        await alice.ask(api.REDRIVE, aimed)


async def test_a_redrive_to_sources_needs_to_send_to_each(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        queue_id = await create_queue(admin, "dead")
        await create_queue(admin, "work", dead_letter_queue="dead")
        await create_queue(admin, "bills", dead_letter_queue="dead")
        await grant(admin, "user:alice redrive queue dead")
        await grant(admin, "user:alice send queue work")
        request = RedriveRequest(queue_id, [0], only_sources=True)

        with pytest.raises(NotAuthorizedError, match="may not send queue bills"):
            await alice.ask(api.REDRIVE, request)

        await grant(admin, "user:alice send queue bills")
        await alice.ask(api.REDRIVE, request)


async def submit_failed(client: RpcConnection, request: RedriveRequest) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its text is what counts
        await client.ask(api.REDRIVE, request)
    return str(caught.value)


async def test_a_parked_fetch_delivers_nothing_after_a_revocation(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        topic_id = await create_topic(admin)
        await grant(admin, "user:alice read,describe topic orders")
        waiting = submit(alice, api.FETCH, fetch_of(topic_id, wait_ms=60_000))
        await settle()

        await revoke(admin, "user:alice read topic orders")
        await produce(admin, topic_id, batch_of(b"late"))

        reply, content = await waiting.reply_and_attachment()
        assert reply.results[0].error is not None
        assert reply.results[0].error.code == ErrorCode.NOT_AUTHORIZED
        assert content == b""


async def test_a_parked_produce_is_not_acknowledged_after_a_revocation(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (world, _, admin, alice):
        topic_id = await create_topic(admin, durability="fsync")
        await grant(admin, "user:alice read,write topic orders")
        world.work.hold_syncs()
        waiting = submit_produce(alice, topic_id, batch_of(b"1"))
        await settle()
        assert not waiting.is_answered

        await revoke(admin, "user:alice write topic orders")
        world.work.let_all_sync()

        (result,) = (await waiting.reply()).results
        assert result.error is not None
        assert result.error.code == ErrorCode.NOT_AUTHORIZED


async def test_a_parked_receive_gives_its_messages_back_after_a_revocation(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        queue_id = await create_queue(admin, "work")
        await grant(admin, "user:alice receive queue work")
        waiting = submit(alice, api.RECEIVE, ReceiveRequest(queue_id, [0], 1, 1 << 20, 60_000))
        await settle()

        await revoke(admin, "user:alice receive queue work")
        batch = batch_of(b"1", producer_id=1, at_ms=0)
        await submit(admin, api.SEND, SendRequest(queue_id, 0, 1_000), batch).reply()

        with pytest.raises(UnknownQueueError):
            await waiting.reply()
        received = await admin.ask(api.RECEIVE, ReceiveRequest(queue_id, [0], 1, 1 << 20, 1_000))
        assert [each.runs[0].count for each in received.results] == [1]


async def test_messages_that_are_given_back_when_a_snapshot_is_due_stay_in_the_journal(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply is refused while the journal appends the lease; the return is appended next."""
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 0)
    async with scene(autojump_clock) as (_, _, admin, alice):
        queue_id = await create_queue(admin, "work")
        await grant(admin, "user:alice receive queue work")
        waiting = submit(alice, api.RECEIVE, ReceiveRequest(queue_id, [0], 1, 1 << 20, 60_000))
        await settle()

        await revoke(admin, "user:alice receive queue work")
        batch = batch_of(b"1", producer_id=1, at_ms=0)
        await submit(admin, api.SEND, SendRequest(queue_id, 0, 1_000), batch).reply()

        with pytest.raises(UnknownQueueError):
            await waiting.reply()
        received = await admin.ask(api.RECEIVE, ReceiveRequest(queue_id, [0], 1, 1 << 20, 1_000))
        assert [each.runs[0].count for each in received.results] == [1]
        assert not caplog.records, "the partition is not loaded again"


async def test_a_role_and_a_rule_for_all_count_as_ones_own(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        topic_id = await create_topic(admin)
        await grant(admin, "role:writers write topic orders", "* read topic orders")
        with pytest.raises(NotAuthorizedError):
            await produce(alice, topic_id, batch_of(b"1"))
        await set_role(admin, "writers", "alice")
        await produce(alice, topic_id, batch_of(b"1"))
        await grant(admin, "deny * write topic o*")
        with pytest.raises(NotAuthorizedError, match="a rule denies it"):
            await produce(alice, topic_id, batch_of(b"1"))
        await produce(admin, topic_id, batch_of(b"1"))


async def test_members_of_groups_read_what_they_subscribe_to(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        topic_id = await create_topic(admin)
        await grant(admin, "user:alice join,commit group g", "user:alice write topic orders")

        async def join(subscription: Subscription) -> None:
            await alice.ask(
                api.GROUP_HEARTBEAT,
                GroupHeartbeatRequest("g", "member", 0, subscription=subscription),
            )

        for subscription in (Subscription(["orders"]), Subscription(pattern="ord*")):
            with pytest.raises(NotAuthorizedError, match="may not read topic ord"):
                await join(subscription)
        commit = CommitOffsetsRequest("g", "", -1, 1, [PartitionCommit(topic_id, 0, 0)])
        (result,) = (await alice.ask(api.COMMIT_OFFSETS, commit)).results
        assert result.error is not None
        assert result.error.code == ErrorCode.NOT_AUTHORIZED

        await grant(admin, "user:alice read topic or*")
        (result,) = (await alice.ask(api.COMMIT_OFFSETS, commit)).results
        assert result.error is None
        await join(Subscription(pattern="ord*"))


async def test_transactions_are_of_the_principals_that_may_begin_them(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await create_topic(admin)
        begin = BeginTransactionRequest("job", 1, ["orders"], 10_000)
        await admin.ask(api.BEGIN_TRANSACTION, begin)
        with pytest.raises(NotAuthorizedError, match="begin staged job"):
            await alice.ask(api.BEGIN_TRANSACTION, begin)
        assert not (
            await alice.ask(api.LIST_TRANSACTIONS, ListTransactionsRequest(["job"]))
        ).transactions
        await grant(admin, "user:alice begin staged j*")
        with pytest.raises(UnknownTopicError):
            await alice.ask(api.BEGIN_TRANSACTION, begin)
        await grant(admin, "user:alice write topic orders")
        await alice.ask(api.BEGIN_TRANSACTION, begin)


async def test_producer_ids_are_for_those_that_may_append_somewhere(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        with pytest.raises(NotAuthorizedError):
            await alice.ask(api.INIT_PRODUCER, InitProducerRequest())
        await grant(admin, "user:alice send queue work")
        await alice.ask(api.INIT_PRODUCER, InitProducerRequest())


async def test_no_rule_opens_the_apis_of_nodes(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, _):
        with pytest.raises(NotANodeError):
            await admin.ask(api.GET_PURGE_OFFSET, GetPurgeOffsetRequest(UNKNOWN_ID, 0))


async def test_report_serves_everything_and_notes_what_would_be_denied(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock, "report") as (world, _, _, alice):
        topic_id = await create_topic(alice)
        for _ in range(3):
            await produce(alice, topic_id, batch_of(b"1"))

        told = [each["resource"] for each in world.told("access_would_be_denied")]
        assert told == ["create topic orders", "write topic orders"]
        assert not world.told("access_denied")


async def test_a_denial_is_in_the_log_once_a_minute(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (world, _, admin, alice):
        topic_id = await create_topic(admin)
        await grant(admin, "user:alice read topic orders")
        for _ in range(3):
            with pytest.raises(NotAuthorizedError):
                await produce(alice, topic_id, batch_of(b"1"))
        (told,) = world.told("access_denied")
        assert told["principal"] == "user:alice"
        assert told["resource"] == "write topic orders"


async def test_denied_names_of_any_length_cost_little_memory(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with (
        world.broker(authorization="enforce", audit="on") as broker,
        client_of(world, broker, "alice") as alice,
    ):
        with at_most_allocated(40 << 20):  # Of 60 MB, and errors of the client.
            for number in range(300):
                name = f"{number}" + 200_000 * "x"
                with pytest.raises(NotAuthorizedError):
                    await alice.ask(api.CREATE_TOPIC, CreateTopicRequest(name, 1, {}))


async def test_an_explanation_names_the_rule_or_the_command(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await create_queue(admin, "work")
        await grant(admin, "user:alice receive queue work", "deny * write topic w*")

        async def explain(
            client: RpcConnection, text: str, principal: str | None
        ) -> list[AccessExplanation]:
            action, kind, name = text.split(" ")
            request = ExplainAccessRequest(principal, action, kind, name)
            return (await client.ask(api.EXPLAIN_ACCESS, request)).explanations

        (of_queue,) = await explain(alice, "receive queue work", "user:alice")
        assert of_queue.is_allowed
        assert of_queue.rule is not None
        (of_topic,) = await explain(alice, "read topic work", "user:alice")
        assert of_topic.remedy == "tidelog access grant user:alice read topic work"
        assert of_topic.notes == [
            "user:alice may receive queue work, and so read records of topic work"
        ]
        (denied,) = await explain(admin, "write topic work", "user:alice")
        assert denied.remedy == "tidelog access revoke --deny '*' write topic 'w*'"
        holders = await explain(admin, "receive queue work", None)
        assert [each.principal for each in holders] == ["user:alice"]
        with pytest.raises(NotAuthorizedError):
            await explain(alice, "receive queue work", "user:bob")


async def test_a_principal_lists_its_own_rules_alone(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, admin, alice):
        await grant(admin, "user:alice read topic a", "user:bob read topic b", "* read topic c")
        listed = await alice.ask(api.LIST_ACCESS, ListAccessRequest(None))
        assert [each.pattern for each in listed.rules] == ["c", "a"]
        everything = await admin.ask(api.LIST_ACCESS, ListAccessRequest(None))
        assert len(everything.rules) == 3
        of_b = await admin.ask(api.LIST_ACCESS, ListAccessRequest(None, kind="topic", name="b"))
        assert [each.principal for each in of_b.rules] == ["user:bob"]


async def test_a_principal_lists_its_own_quotas_alone(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (_, _, _, alice):
        own = await submit(alice, api.LIST_QUOTAS, ListQuotasRequest(["user:alice"])).reply()
        assert [each.principal for each in own.quotas] == ["user:alice"]
        for principals in (None, ["user:bob"], ["user:alice", "user:bob"]):
            with pytest.raises(NotAuthorizedError):
                await submit(alice, api.LIST_QUOTAS, ListQuotasRequest(principals)).reply()


async def test_the_audit_is_for_principals_with_audit_of_the_cluster(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with (
        world.broker(authorization="enforce", audit="on") as broker,
        administrator(world, broker) as admin,
        client_of(world, broker, "alice") as alice,
    ):
        await features_known(admin)
        await create_topic(admin)
        await grant(admin, "user:alice * topic *")
        with trio.fail_after(600):
            while True:  # The topic is created by the first record.
                found = (await admin.ask(api.METADATA, MetadataRequest([AUDIT_TOPIC]))).topics
                if found[0].topic_id:
                    break
                await trio.sleep(1)
        everything = (await alice.ask(api.METADATA, MetadataRequest(None))).topics
        assert [each.name for each in everything] == ["orders"]
        denied = await alice.ask(api.FETCH, fetch_of(found[0].topic_id))
        assert denied.results[0].error is not None
        await grant(admin, "user:alice audit cluster")
        read = await alice.ask(api.FETCH, fetch_of(found[0].topic_id))
        assert read.results[0].error is None
        listed = await alice.ask(api.LIST_TOPICS, ListNamesRequest("", "", 10))
        assert listed.names == [AUDIT_TOPIC, "orders"]
        shorter = AlterTopicRequest(AUDIT_TOPIC, {"retention_ms": "60000"}, [])
        with pytest.raises(NotAuthorizedError):
            await alice.ask(api.ALTER_TOPIC, shorter)
        await grant(admin, "user:alice alter cluster")
        await alice.ask(api.ALTER_TOPIC, shorter)
