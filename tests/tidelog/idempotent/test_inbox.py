"""The inbox in SQLite, and the identity of messages over dead letters and redrives."""

import sqlite3
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog.idempotent import Inbox, InboxPositionError, message_id_of
from tidelog.wire.errors import ConfigError

INBOX = Inbox("billing", dialect="sqlite")
ORDERS, AGAIN = b"\x01" * 16, b"\x02" * 16


def record(offset: int, topic_id: bytes = ORDERS, **headers: bytes) -> tidelog.Record:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return tidelog.Record("orders", 3, offset, 0, b"k", b"v", pairs, topic_id)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(INBOX.ddl())
    connection.executescript(INBOX.ddl())
    yield connection
    connection.close()


def test_a_message_is_new_once_for_each_inbox(connection: sqlite3.Connection) -> None:
    assert INBOX.is_new(connection, record(7))
    assert not INBOX.is_new(connection, record(7))
    assert INBOX.is_new(connection, record(8))
    assert Inbox("mail", dialect="sqlite").is_new(connection, record(7))


def test_a_message_whose_transaction_was_rolled_back_is_new_again(
    connection: sqlite3.Connection,
) -> None:
    assert INBOX.is_new(connection, record(7))
    connection.rollback()

    assert INBOX.is_new(connection, record(7))


def test_messages_of_a_topic_that_was_created_again_are_new(
    connection: sqlite3.Connection,
) -> None:
    assert INBOX.is_new(connection, record(7))
    assert INBOX.is_new(connection, record(7, AGAIN))


def test_the_id_of_the_header_counts_wherever_the_record_is(
    connection: sqlite3.Connection,
) -> None:
    assert message_id_of(record(1, tidelog_message_id=b"invoice-7")) == "invoice-7"
    assert INBOX.is_new(connection, record(1, tidelog_message_id=b"invoice-7"))
    assert not INBOX.is_new(connection, record(9, AGAIN, tidelog_message_id=b"invoice-7"))
    # As a dead letter and after a redrive, which keep this id:
    assert INBOX.is_new(connection, record(7))
    moved = f"{ORDERS.hex()}-3-7".encode()
    assert not INBOX.is_new(connection, record(0, AGAIN, tidelog_message_id=moved))


def test_a_message_without_an_id_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="the message has no id: it was not read from a topic"):
        INBOX.is_new(connection, record(7, b""))


def test_old_marks_are_forgotten(connection: sqlite3.Connection) -> None:
    INBOX.is_new(connection, record(7))
    connection.execute("update tidelog_inbox set seen_at = datetime('now', '-2 hours')")
    INBOX.is_new(connection, record(8))

    assert INBOX.forget(connection, older_than="3h") == 0
    assert INBOX.forget(connection, older_than=3600.0) == 1
    assert INBOX.is_new(connection, record(7))
    assert not INBOX.is_new(connection, record(8))
    with pytest.raises(ConfigError, match="older_than is 'never': it must be a duration"):
        INBOX.forget(connection, older_than="never")


def test_positions_move_with_the_effect(connection: sqlite3.Connection) -> None:
    INBOX.save(connection, record(7))
    connection.commit()
    INBOX.save(connection, record(8))
    connection.rollback()
    assert INBOX.positions(connection) == {("orders", 3): 8}

    INBOX.save(connection, record(10))  # The log has gaps.
    assert INBOX.positions(connection) == {("orders", 3): 11}
    assert Inbox("mail", dialect="sqlite").positions(connection) == {}


def test_a_consumer_that_was_replaced_cannot_commit_its_effect(
    connection: sqlite3.Connection,
) -> None:
    INBOX.save(connection, record(8))

    for offset in (7, 8):
        with pytest.raises(
            InboxPositionError,
            match=rf"inbox 'billing' cannot save orders/3: the records from {offset} on were proces"
            r"sed before, up to 9; roll back, and seek to the positions of the inbox",
        ):
            INBOX.save(connection, record(offset))
    assert INBOX.positions(connection) == {("orders", 3): 9}


def test_positions_of_a_topic_that_was_created_again_are_refused_until_they_are_forgotten(
    connection: sqlite3.Connection,
) -> None:
    INBOX.save(connection, record(8))

    with pytest.raises(InboxPositionError, match="the topic was deleted and created again, and of"):
        INBOX.save(connection, record(20, AGAIN))
    INBOX.forget_topic(connection, "orders")
    INBOX.save(connection, record(0, AGAIN))
    assert INBOX.positions(connection) == {("orders", 3): 1}


def test_a_name_is_checked() -> None:
    with pytest.raises(ConfigError, match="the name of an inbox has 1 to 200 characters, not 0"):
        Inbox("")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[tidelog.Client, None]:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_queue("dead")
        await client.admin.create_queue("orders", dead_letter_queue="dead", max_receive_count=3)
        yield client


async def test_a_message_keeps_its_id_as_a_dead_letter_and_after_a_redrive(
    connection: sqlite3.Connection, client: tidelog.Client
) -> None:
    queue, dead = client.queue("orders"), client.queue("dead")
    await queue.send(b"paid")
    (message,) = await queue.receive(wait=20)
    assert INBOX.is_new(connection, message)
    first_id = message_id_of(message)
    await message.reject("the shop is closed")

    (letter,) = await dead.receive(wait=20)
    assert message_id_of(letter) == first_id
    await letter.release()
    await dead.redrive()

    (again,) = await queue.receive(wait=20)
    assert again.offset != message.offset
    assert not INBOX.is_new(connection, again)


async def test_records_and_batches_have_the_id_of_their_topic(
    connection: sqlite3.Connection, client: tidelog.Client
) -> None:
    await client.admin.create_topic("events")
    async with client.producer() as producer:
        await producer.send_many("events", [b"1", b"2", b"3"])
    async with client.consumer("events", auto_offset_reset="earliest") as consumer:
        async for batch in consumer.batches():
            assert all(INBOX.is_new(connection, each) for each in batch.records())
            INBOX.save(connection, batch)
            break
    assert INBOX.positions(connection) == {("events", 0): 3}

    await client.admin.delete_topic("events")
    await client.admin.create_topic("events")
    async with client.producer() as producer:
        await producer.send_many("events", [b"1", b"2", b"3"])
    async with client.consumer("events", auto_offset_reset="earliest") as consumer:
        async for found in consumer:
            assert INBOX.is_new(connection, found)
            with pytest.raises(InboxPositionError, match="created again"):
                INBOX.save(connection, found)
            break
