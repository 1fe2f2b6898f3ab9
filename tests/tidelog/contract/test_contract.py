"""The contract of all faces of the client: `tidelog`, `tidelog.aio`, `tidelog.blocking`."""

import io
from collections.abc import Iterator

import pytest

import tidelog
from tests.tidelog.contract.faces import FACES, Scenario
from tidelog.blocking import open_broker
from tidelog.client.topic_partition import TopicPartition

SCENARIOS: list[Scenario] = []


def contract(scenario: Scenario) -> Scenario:
    """Add a scenario to the suite."""
    SCENARIOS.append(scenario)
    return scenario


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("contract")
    with open_broker(folder, group_initial_rebalance_delay_ms=10) as broker:
        yield broker.address


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_face_keeps_the_contract(scenario: Scenario, face: str, address: str) -> None:
    FACES[face](scenario, address, f"{scenario.__name__}.{face}")


@pytest.mark.parametrize("face", FACES)
def test_every_face_says_what_it_cannot_connect_to(face: str) -> None:
    with pytest.raises(tidelog.ConnectError, match=r"127\.0\.0\.1:1\b"):
        FACES[face](what_is_closed_says_so, "127.0.0.1:1", "unused", connect_timeout=0.3)
    with pytest.raises(tidelog.ConfigError, match="port"):
        FACES[face](what_is_closed_says_so, "nowhere:port", "unused")


# -- quotas ---------------------------------------------------------------------------------------


@contract
async def quotas_are_set_listed_and_removed(client: tidelog.Client, name: str) -> None:
    principal = f"user:{name}"
    values = await client.security.alter_quotas(
        principal, set={"produce_bytes_per_s": "10MiB", "over_quota": "error"}
    )
    assert values == {"produce_bytes_per_s": 10 << 20, "over_quota": 1}

    (found,) = await client.security.list_quotas([principal])
    assert (found.principal, found.values, found.is_own) == (principal, values, True)

    assert await client.security.alter_quotas(principal, remove=["*"]) == {}


# -- producers ------------------------------------------------------------------------------------


@contract
async def sent_records_are_read_in_order(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    async with client.producer() as producer:
        receipt = await producer.send(name, b"one", key=b"k", headers=[("h", b"1")])
        ranges = await producer.send_many(name, [b"two", None], keys=[b"a", b"b"])
        producer.send_nowait(name, b"three", timestamp_ms=5)
        await producer.flush()
        acknowledged = producer.statistics().acknowledged_record_count

    async with client.consumer(name, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        records = [record async for record in consumer.records(end)]

    assert (receipt.partition, receipt.offset, receipt.message_id) == (0, 0, "0-0")
    assert [(each.offset, list(each.indexes)) for each in ranges] == [(1, [0, 1])]
    assert acknowledged == 4
    assert [record.value for record in records] == [b"one", b"two", None, b"three"]
    assert [record.key for record in records] == [b"k", b"a", b"b", None]
    assert records[0].headers == (("h", b"1"),)
    assert records[3].timestamp_ms == 5


@contract
async def users_and_tokens_are_created_listed_and_removed(
    client: tidelog.Client, name: str
) -> None:
    await client.security.create_user(name, "a password")
    token = await client.security.create_token(name, expires_in=60, description="ci")
    users = {each.name: each for each in await client.security.list_users()}
    (listed,) = await client.security.list_tokens(name)

    assert users[name].has_password
    assert (listed.user, listed.description) == (name, "ci")
    assert listed.token_id in token
    with pytest.raises(tidelog.InvalidRequestError, match="exists"):
        await client.security.create_user(name)
    await client.security.set_password(name, None)
    assert await client.security.revoke_token(token)
    assert await client.security.remove_user(name)
    assert not await client.security.remove_user(name)


@contract
async def records_of_send_nowait_keep_their_order(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name, 2)
    values = [b"%d" % number for number in range(3_000)]
    async with client.producer(linger=0.001) as producer:
        for value in values:
            producer.send_nowait(name, value, partition=1)

    async with client.consumer(name, partitions=[1], auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        found = [value async for batch in consumer.batches(end) for value in batch.values]

    assert found == values


@contract
async def a_send_to_no_topic_is_an_error(client: tidelog.Client, name: str) -> None:
    async with client.producer() as producer:
        with pytest.raises(tidelog.UnknownTopicError, match=name):
            await producer.send(name, b"value")
        producer.send_nowait(name, b"value")
        with pytest.raises(tidelog.UnknownTopicError, match=name):
            await producer.flush()


@contract
async def a_record_above_the_limit_of_a_topic_is_an_error(
    client: tidelog.Client, name: str
) -> None:
    await client.admin.create_topic(name, max_message_bytes=2048)
    async with client.producer() as producer:
        with pytest.raises(tidelog.RecordTooLargeError) as caught:
            await producer.send(name, bytes(4096))
        await producer.send(name, bytes(1024))

    assert caught.value.limit_bytes == 2048


@contract
async def a_failure_that_no_call_waited_for_is_raised_at_the_end(
    client: tidelog.Client, name: str
) -> None:
    with pytest.raises(tidelog.UnknownTopicError):
        async with client.producer() as producer:
            producer.send_nowait(name, b"value")


@contract
async def a_block_that_raises_keeps_its_error(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    with pytest.raises(LookupError, match="mine"):  # noqa: PT012
        async with client.producer() as producer:
            producer.send_nowait(name, b"value")
            raise LookupError("mine")

    async with client.consumer(name, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        assert [record.value async for record in consumer.records(end)] == [b"value"]


# -- consumers ------------------------------------------------------------------------------------


@contract
async def a_consumer_seeks_and_tells_its_position(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    async with client.producer() as producer:
        for number in range(5):
            await producer.send(name, b"%d" % number, timestamp_ms=1000 * (number + 1))

    async with client.consumer(name, auto_offset_reset="earliest") as consumer:
        assert consumer.assignment == [TopicPartition(name, 0)]
        assert await consumer.beginning_offsets() == {TopicPartition(name, 0): 0}
        consumer.seek(name, 0, 3)
        records = aiter(consumer)
        assert (await anext(records)).value == b"3"
        assert consumer.position(name, 0) == 4
        await consumer.seek_to_time(2000)
        assert (await anext(aiter(consumer))).value == b"1"
        await consumer.seek_to_beginning()
        batch = await anext(aiter(consumer.batches()))
        consumer.give_back(batch)
        assert (await anext(aiter(consumer))).value == b"0"
        await consumer.seek_to_end()
        assert consumer.position(name, 0) == 5
        with pytest.raises(ValueError, match="negative"):
            consumer.seek(name, 0, -1)


@contract
async def a_consumer_reads_several_topics_to_their_ends(client: tidelog.Client, name: str) -> None:
    topics = [f"{name}.a", f"{name}.b"]
    async with client.producer() as producer:
        for topic in topics:
            await client.admin.create_topic(topic, 3)
            await producer.send_many(topic, [b"x"] * 100, keys=[b"%d" % n for n in range(100)])

    async with client.consumer(topics, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        count = 0
        async for record in consumer.records(end):
            count += record.value == b"x"
        await consumer.assign([(topics[0], 1)])
        assert consumer.assignment == [TopicPartition(topics[0], 1)]

    assert count == 200


@contract
async def a_consumer_without_a_position_is_an_error(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    async with client.consumer(name) as consumer:
        with pytest.raises(tidelog.NoPositionError):
            await anext(aiter(consumer))
    with pytest.raises(tidelog.UnknownTopicError):
        async with client.consumer("no." + name):
            pass


@contract
async def a_member_commits_what_it_has_processed(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    async with client.producer() as producer:
        await producer.send_many(name, [b"0", b"1", b"2", b"3"])
    told: list[str] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        told.append(f"assigned {len(partitions)}")

    async def revoked(partitions: list[TopicPartition]) -> None:
        told.append(f"revoked {len(partitions)}")

    async with client.consumer(
        name,
        group_id=name,
        auto_offset_reset="earliest",
        on_assigned=assigned,
        on_revoked=revoked,
    ) as consumer:
        records = aiter(consumer)
        assert (await anext(records)).value == b"0"
        await consumer.commit()
        assert (await anext(records)).value == b"1"
        assert (await anext(records)).value == b"2"
        assert await consumer.committed() == {TopicPartition(name, 0): 1}
        with pytest.raises(tidelog.ConfigError, match="group"):
            await consumer.assign([(name, 0)])

    description = await client.admin.describe_group(name)

    assert told[0] == "assigned 1"
    assert [progress.offset for progress in description.partitions] == [2]


@contract
async def an_error_of_a_callback_is_raised_by_the_iteration(
    client: tidelog.Client, name: str
) -> None:
    await client.admin.create_topic(name)

    async def assigned(partitions: list[TopicPartition]) -> None:
        raise LookupError(f"for {len(partitions)} partitions")

    async with client.consumer(
        name, group_id=name, auto_offset_reset="earliest", on_assigned=assigned
    ) as consumer:
        with pytest.raises(LookupError, match="for 1 partitions"):
            await anext(aiter(consumer))


# -- administration -------------------------------------------------------------------------------


@contract
async def topics_are_administered(client: tidelog.Client, name: str) -> None:
    admin = client.admin
    await admin.create_topic(name, 2, retention_ms="1h")
    with pytest.raises(tidelog.TopicExistsError, match=name):
        await admin.create_topic(name, 3)
    await admin.alter_topic(name, set={"retention_ms": "2h"})
    (described,) = await admin.describe_topics([name])
    listed = await admin.list_topics(name)
    await admin.delete_topic(name)

    assert len(described.partitions) == 2
    assert list(listed) == [name]
    with pytest.raises(tidelog.UnknownTopicError):
        await admin.describe_topics([name])
    with pytest.raises(tidelog.InvalidConfigError, match="no_such_setting"):
        await admin.create_topic(name, no_such_setting=1)


@contract
async def the_cluster_is_described(client: tidelog.Client, name: str) -> None:
    cluster = await client.admin.describe_cluster()
    async with client.producer() as producer:
        await client.admin.create_topic(name)
        await producer.send(name, b"x")
    statistics = client.statistics()

    assert [node.node_id for node in cluster.nodes] == [1]
    assert statistics.producers.topics[name].records == 1


# -- queues ---------------------------------------------------------------------------------------


@contract
async def a_message_is_received_extended_released_and_deleted(
    client: tidelog.Client, name: str
) -> None:
    await client.admin.create_queue(name, visibility_timeout=30)
    queue = client.queue(name, holder="me")
    receipt = await queue.send(b"one", headers=[("h", b"1")])

    (message,) = await queue.receive(wait=5)
    (in_flight,) = await queue.in_flight()
    await message.extend(60)
    await message.release(reason="not now")
    (again,) = await queue.receive(wait=5)
    await again.change_visibility(0)
    (third,) = await queue.receive(wait=5)
    await queue.delete(third.receipt_handle)
    left = await queue.receive(wait=0)
    history = await queue.history()

    assert (message.value, message.headers, message.receive_count) == (b"one", (("h", b"1"),), 1)
    assert message.message_id == receipt.message_id
    assert in_flight.holder == "me"
    assert (again.receive_count, third.receive_count, left) == (2, 3, [])
    assert [event.kind for event in history][-1] == tidelog.EventKind.DELETE
    with pytest.raises(tidelog.BrokerError):
        await third.extend(10)


@contract
async def messages_are_sent_and_settled_together(client: tidelog.Client, name: str) -> None:
    await client.admin.create_queue(name)
    queue = client.queue(name)
    receipts = await queue.send_batch(
        [b"0", tidelog.OutgoingMessage(value=b"1", key=b"k"), b"2", b"3"]
    )
    messages = await queue.receive(10, wait=5)
    await queue.extend_batch(messages, 60)
    await queue.delete_batch(messages[:2])
    await queue.release_batch(messages[2:])
    (counts,) = await queue.counts()
    purged = await queue.purge()

    assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3]
    assert [message.value for message in messages] == [b"0", b"1", b"2", b"3"]
    assert counts.visible == 2
    assert purged == 2
    with pytest.raises(tidelog.BatchError):
        await queue.delete_batch(["no handle", "no handle either"])
    with pytest.raises(ValueError, match="max_messages"):
        await queue.receive(0)


@contract
async def a_message_is_rejected_and_redriven(client: tidelog.Client, name: str) -> None:
    await client.admin.create_queue(name + ".dead")
    await client.admin.create_queue(name, max_receive_count=2, dead_letter_queue=name + ".dead")
    queue, dead = client.queue(name), client.queue(name + ".dead")
    await queue.send(b"bad")
    (message,) = await queue.receive(wait=5)
    await message.reject("no good")
    (letter,) = await dead.receive(wait=5)
    await letter.change_visibility(0)
    moved = await dead.redrive()
    (again,) = await queue.receive(wait=5)
    await again.delete()
    report = await dead.redrive_status()

    assert letter.origin is not None
    assert (letter.origin.queue, letter.origin.reason) == (name, "no good")
    assert (moved, again.value) == (1, b"bad")
    assert report.moved == 1


@contract
async def delayed_messages_are_cancelled(client: tidelog.Client, name: str) -> None:
    await client.admin.create_queue(name)
    queue = client.queue(name)
    receipt = await queue.send(b"later", delay=3600)
    (peeked,) = await queue.peek()
    await queue.cancel(receipt.message_id)

    assert peeked.state is tidelog.MessageState.DELAYED
    assert await queue.receive(wait=0) == []
    with pytest.raises(tidelog.MessageGoneError):
        await queue.cancel(receipt.message_id)


@contract
async def groups_of_a_fifo_queue_keep_their_order(client: tidelog.Client, name: str) -> None:
    await client.admin.create_queue(name, fifo=True)
    queue = client.queue(name)
    for number in range(3):
        await queue.send(b"%d" % number, group=b"g", deduplication_id=str(number))
    duplicate = await queue.send(b"0", group=b"g", deduplication_id="0")
    first = await queue.receive(1, wait=5, attempt_id="attempt")
    same = await queue.receive(1, wait=5, attempt_id="attempt")
    none = await queue.receive(1, wait=0)
    await queue.delete_batch(same)
    rest = await queue.receive(10, wait=5)

    assert duplicate.is_duplicate
    assert [each.value for each in first + same] == [b"0", b"0"]
    assert (none, [each.value for each in rest]) == ([], [b"1", b"2"])


@contract
async def a_subscription_hands_out_messages_and_gives_them_back(
    client: tidelog.Client, name: str
) -> None:
    await client.admin.create_queue(name)
    queue = client.queue(name)
    await queue.send_batch([b"0", b"1", b"2"])
    async with queue.subscribe(10, wait=1) as messages:
        first = await anext(messages)
        await first.delete()
        second = await anext(messages)

    (again, third) = await queue.receive(10, wait=5)

    assert [first.value, second.value] == [b"0", b"1"]
    assert [(each.value, each.receive_count) for each in (again, third)] == [(b"1", 2), (b"2", 1)]


@contract
async def a_worker_settles_by_what_its_handler_does(client: tidelog.Client, name: str) -> None:
    await client.admin.create_queue(name + ".dead")
    await client.admin.create_queue(
        name, dead_letter_queue=name + ".dead", max_receive_count=2, visibility_timeout=30
    )
    queue = client.queue(name)
    await queue.send_batch([b"good", b"bad", b"poor"])
    told: list[str] = []
    workers: list[tidelog.QueueWorker] = []

    async def handle(message: tidelog.Message) -> None:
        if message.value == b"bad":
            raise ValueError("bad")
        if message.value == b"poor" and message.receive_count == 1:
            raise LookupError("poor")
        if message.value == b"poor":
            workers[0].stop()

    async def tell(message: tidelog.Message, error: Exception) -> None:
        told.append(f"{message.value!r} {type(error).__name__}")

    worker = queue.worker(handle, concurrency=1, reject_on=(ValueError,), on_error=tell)
    workers.append(worker)
    await worker.run()
    (letter,) = await client.queue(name + ".dead").receive(wait=5)

    assert sorted(told) == ["b'bad' ValueError", "b'poor' LookupError"]
    assert (worker.statistics.done_count, worker.statistics.rejected_count) == (2, 1)
    assert letter.value == b"bad"
    with pytest.raises(tidelog.UnknownQueueError):
        await client.queue("no." + name).work(handle)


@contract
async def large_messages_are_sent_from_files_and_read_in_chunks(
    client: tidelog.Client, name: str
) -> None:
    await client.admin.create_queue(name)
    queue = client.queue(name)
    value = bytes(range(256)) * 12_000
    await queue.send(io.BytesIO(value))
    (whole,) = await queue.receive(wait=10)
    await whole.change_visibility(0)
    (large,) = await queue.receive(wait=10, max_value_bytes=0)
    chunks = [chunk async for chunk in large.chunks()]

    assert (whole.is_large, whole.length) == (True, len(value))
    assert whole.value == value
    assert b"".join(chunks) == value
    assert await large.read() == value


# -- transactions ---------------------------------------------------------------------------------


@contract
async def a_transaction_is_committed_once(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    for _ in range(2):
        transaction = client.transaction(name, 1)
        async with transaction.task() as task:
            await task.send_many(name, [b"0", b"1"])
        await transaction.commit([task.result])
    other = client.transaction(name, 2)
    async with other.task() as task:
        await task.send_many(name, [b"never"])
    assert not await other.abort()

    async with client.consumer(name, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        assert [record.value async for record in consumer.records(end)] == [b"0", b"1"]
    with pytest.raises(tidelog.StaleTransactionError):
        await client.transaction(name, 0).begin()


@contract
async def a_task_stages_single_records(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    transaction = client.transaction(name, 1)
    async with transaction.task() as task:
        task.send_nowait(name, b"0", headers=iter([("h", b"1")]))
        await task.send(name, b"1", timestamp_ms=1_000)
        task.send_nowait(name, b"2")
        await task.flush()
        await task.send_batch([tidelog.ProducerRecord(name, b"3")])
        task.send_nowait(name, b"4")
    await transaction.commit([task.result])

    async with client.consumer(name, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        records = [record async for record in consumer.records(end)]
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]
    assert (records[0].headers, records[1].timestamp_ms) == ((("h", b"1"),), 1_000)


@contract
async def each_record_is_processed_once(client: tidelog.Client, name: str) -> None:
    copies = f"{name}.copies"
    await client.admin.create_topic(name)
    await client.admin.create_topic(copies)
    async with client.producer() as producer:
        await producer.send_many(name, [b"a", b"b", b"poison"])

    async def twice(record: tidelog.Record) -> Iterator[tidelog.ProducerRecord]:
        if record.value == b"poison":
            raise ValueError("a bad record")
        return iter([tidelog.ProducerRecord(copies, record.value)] * 2)

    with pytest.raises(ValueError, match="a bad record") as failure:
        await client.process(name, twice, name=name)
    assert "offset 2 failed" in failure.value.__notes__[0]

    async def stopping(records: list[tidelog.Record]) -> tidelog.ProducerRecord:
        processor.stop()
        return tidelog.ProducerRecord(copies, b"%d" % len(records))

    processor = client.processor(name, stopping, name=name, batch=True)
    counts = await processor.run()

    async with client.consumer(copies, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        values = [record.value async for record in consumer.records(end)]
    assert values == [b"a", b"a", b"b", b"b", b"1"]
    assert counts == processor.statistics
    assert (counts.input_count, counts.transaction_count) == (1, 1)


@contract
async def a_processor_makes_output_once(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name, 2)
    await client.admin.create_topic(name + ".out")
    async with client.producer() as producer:
        await producer.send_many(name, [b"1", b"2", b"bad", b"3"], keys=[b"a", b"b", b"a", b"b"])

    async def double(record: tidelog.Record) -> tidelog.ProducerRecord:
        return tidelog.ProducerRecord(name + ".out", b"%d" % (2 * int(record.value or b"")))

    for _ in range(2):
        await client.process(
            name,
            double,
            name=name,
            partitions=[0, 1],
            until_end=True,
            dead_letter_topic=name + ".out",
        )
    async with client.consumer(name + ".out", auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        values = [record.value async for record in consumer.records(end)]

    assert sorted(value or b"" for value in values) == [b"2", b"4", b"6", b"bad"]


# -- errors ---------------------------------------------------------------------------------------


@contract
async def what_is_not_legal_says_so(client: tidelog.Client, name: str) -> None:
    with pytest.raises(tidelog.ConfigError, match="batch_size"):
        client.producer(batch_size=-1)
    with pytest.raises(tidelog.ConfigError, match="can be kept"):
        client.transaction(name, 1, timeout=0)


@contract
async def what_is_closed_says_so(client: tidelog.Client, name: str) -> None:
    await client.admin.create_topic(name)
    async with client.producer() as producer:
        await producer.send(name, b"x")
    async with client.consumer(name, auto_offset_reset="earliest") as consumer:
        pass
    with pytest.raises(tidelog.ClosedError):
        await producer.send(name, b"x")
    with pytest.raises(tidelog.ClosedError):
        await anext(aiter(consumer))
