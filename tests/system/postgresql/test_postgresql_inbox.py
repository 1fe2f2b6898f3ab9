"""The inbox in PostgreSQL: concurrent consumers, and asynchronous connections."""

import asyncio
import threading
from typing import Any

import psycopg
import pytest
import trio

import tidelog
from bench.postgresql_server import PostgresqlServer
from tidelog.idempotent import Inbox, InboxPositionError
from tidelog.outbox import Outbox

INBOX = Inbox("billing")
Connection = psycopg.Connection[Any]


def record(offset: int) -> tidelog.Record:
    return tidelog.Record("orders", 0, offset, 0, None, b"v", (), b"\x01" * 16)


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    connection.execute(INBOX.ddl())
    connection.execute(INBOX.ddl())
    connection.commit()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_second_consumer_waits_for_the_first(
    connection: Connection, server: PostgresqlServer, *, is_committed: bool
) -> None:
    assert INBOX.is_new(connection, record(7))
    found: list[bool] = []
    has_begun = threading.Event()

    def mark() -> None:
        with psycopg.connect(server.dsn) as other:
            has_begun.set()
            found.append(INBOX.is_new(other, record(7)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, mark)
        await trio.to_thread.run_sync(has_begun.wait)
        await trio.sleep(0.05)
        assert found == [], "it has to wait, however long that takes"
        if is_committed:
            connection.commit()
        else:
            connection.rollback()

    assert found == [not is_committed]


async def test_of_two_consumers_of_a_partition_one_commits(
    connection: Connection, server: PostgresqlServer
) -> None:
    INBOX.save(connection, record(6))
    connection.commit()
    INBOX.save(connection, record(7))

    def save() -> None:
        with (
            psycopg.connect(server.dsn) as other,
            pytest.raises(InboxPositionError, match="up to 8"),
        ):
            INBOX.save(other, record(7))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, save)
        await trio.sleep(0.05)
        connection.commit()

    assert INBOX.positions(connection) == {("orders", 0): 8}


async def test_old_marks_and_topics_are_forgotten(connection: Connection) -> None:
    INBOX.is_new(connection, record(7))
    connection.execute("update tidelog_inbox set seen_at = now() - interval '2 hours'")
    INBOX.is_new(connection, record(8))
    INBOX.save(connection, record(8))

    assert INBOX.forget(connection, older_than="1h") == 1
    assert INBOX.is_new(connection, record(7))
    assert not INBOX.is_new(connection, record(8))
    INBOX.forget_topic(connection, "orders")
    assert INBOX.positions(connection) == {}


async def test_asynchronous_connections_do_the_same(server: PostgresqlServer) -> None:
    async def use() -> None:
        async with await psycopg.AsyncConnection.connect(server.dsn) as own:
            assert await INBOX.is_new_async(own, record(7))
            assert not await INBOX.is_new_async(own, record(7))
            await INBOX.save_async(own, record(7))
            assert await INBOX.positions_async(own) == {("orders", 0): 8}
            with pytest.raises(InboxPositionError, match="processed before, up to 8"):
                await INBOX.save_async(own, record(7))
            await INBOX.forget_topic_async(own, "orders")
            assert await INBOX.positions_async(own) == {}
            assert await INBOX.forget_async(own, older_than="1h") == 0

    await trio.to_thread.run_sync(lambda: asyncio.run(use()))


async def test_a_call_of_the_wrong_kind_fails_before_a_mark_or_a_message_is_lost(
    connection: Connection, server: PostgresqlServer
) -> None:
    outbox = Outbox()

    async def use() -> None:
        async with await psycopg.AsyncConnection.connect(server.dsn) as own:
            for call in (
                lambda: INBOX.is_new(own, record(7)),  # type: ignore[arg-type]
                lambda: INBOX.positions(own),  # type: ignore[arg-type]
                lambda: outbox.add(own, "orders", b"30"),  # type: ignore[arg-type]
            ):
                with pytest.raises(TypeError, match=r"calls are awaited: await .* with `_async`"):
                    call()

    await trio.to_thread.run_sync(lambda: asyncio.run(use()))
    with pytest.raises(TypeError, match="calls are not awaited: call the method without `_async`"):
        await INBOX.is_new_async(connection, record(7))  # type: ignore[arg-type]
