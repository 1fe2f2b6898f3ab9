"""The relay from PostgreSQL: late commits, notifications, long transactions, a lost server."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import trio

import tidelog
from bench.postgresql_server import PostgresqlServer
from tests.tidelog.outbox.relays import (
    assert_exactly_once,
    records_of,
    relaying,
    wait_sent,
    wait_until,
)
from tidelog.outbox import (
    DatabaseUnavailableError,
    Outbox,
    OutboxError,
    OutboxMessage,
    RelayPositionError,
)
from tidelog.outbox import relay as relay_module
from tidelog.outbox.horizon import Horizon

Connection = psycopg.Connection[Any]
OUTBOX = Outbox()
FOREVER = 3600.0
"""A poll that no test waits for: notifications alone wake the relay."""


def add(connection: Connection, value: bytes, key: str = "k") -> tuple[str, bytes]:
    OUTBOX.add(connection, "orders", value, key=key.encode())
    return key, value


@contextmanager
def another(server: PostgresqlServer) -> Generator[Connection]:
    with psycopg.connect(server.dsn) as connection:
        yield connection
        connection.rollback()


async def test_a_row_with_a_lower_id_that_is_committed_late_is_not_lost(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    with another(server) as late:
        async with relaying(OUTBOX, client, server.dsn):
            first = add(connection, b"1")
            connection.commit()
            await wait_sent(OUTBOX, server.dsn)
            lower = add(late, b"2")
            higher = add(connection, b"3", "other")
            connection.commit()
            await trio.sleep(0.1)  # It has to stay away, however long that takes.
            assert len(await records_of(client, "orders")) == 1
            late.commit()
            await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once([first, lower, higher], await records_of(client, "orders"))


async def test_rows_of_a_key_follow_the_lock_of_its_row_and_not_the_transaction_ids(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    """The older transaction gets the lock of the order later: its event is the later one."""
    connection.execute("create table orders (id int primary key, state text)")
    connection.execute("insert into orders values (1, 'new')")
    connection.commit()
    with another(server) as younger:
        connection.execute("select pg_current_xact_id()")
        younger.execute("update orders set state = 'paid' where id = 1")
        paid = add(younger, b"paid")
        younger.commit()
        connection.execute("update orders set state = 'sent' where id = 1")
        sent = add(connection, b"sent")
        connection.commit()
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once([paid, sent], await records_of(client, "orders"))


async def test_transactions_that_do_not_write_to_the_outbox_do_not_hold_it_back(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    connection.execute("create table report (id int)")
    connection.commit()
    with another(server) as long, another(server) as reader:
        long.execute("insert into report values (1)")  # It has a transaction id, and stays open.
        reader.execute("select count(*) from outbox")
        row = add(connection, b"1")
        connection.commit()
        async with relaying(OUTBOX, client, server.dsn):
            await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once([row], await records_of(client, "orders"))


async def test_a_rolled_back_writer_and_a_savepoint_leave_gaps_that_are_passed(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    with connection.transaction():
        kept = add(connection, b"1")
        with connection.transaction(force_rollback=True):
            add(connection, b"never")
        also = add(connection, b"2")
    add(connection, b"never")
    connection.rollback()
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once([kept, also], await records_of(client, "orders"))


async def test_a_notification_wakes_the_relay(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    rows = [add(connection, b"0")]
    connection.commit()
    async with relaying(OUTBOX, client, server.dsn, poll=FOREVER):
        for number in range(1, 20):
            await wait_sent(OUTBOX, server.dsn)
            rows.append(add(connection, b"%d" % number))
            connection.commit()
        await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once(rows, await records_of(client, "orders"))


async def test_a_transaction_that_holds_the_relay_back_is_named(
    connection: Connection,
    server: PostgresqlServer,
    client: tidelog.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "_HELD_BACK_S", 0.05)
    with another(server) as held:
        rows = [add(held, b"1"), add(connection, b"2", "other")]
        connection.commit()
        async with relaying(OUTBOX, client, server.dsn) as lines:
            await wait_until(lambda: bool(lines))
            status = OUTBOX.status(server.dsn)
            held.commit()
            await wait_sent(OUTBOX, server.dsn)
        pid = held.info.backend_pid

    (line,) = lines
    assert line == (
        f"rows above 0 wait for the transaction of process {pid}, which has written to the outbox"
        " and is open for 0.05 s or longer"
    )
    assert (status.backlog, status.writer_pid) == (1, pid)
    assert status.writer_age_s is not None
    assert status.relay_pid is not None
    assert_exactly_once(rows, await records_of(client, "orders"))


async def test_a_prepared_transaction_is_waited_for(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    connection.execute("drop trigger tidelog_outbox_notify on outbox")  # as ddl(notify=False)
    connection.commit()
    rows = [add(connection, b"1")]
    connection.execute("prepare transaction 'later'")
    connection.rollback()
    with psycopg.connect(server.dsn, autocommit=True) as other:
        rows.append(add(other, b"2"))
        async with relaying(OUTBOX, client, server.dsn):
            await trio.sleep(0.1)
            assert await records_of(client, "orders") == []
            other.execute("commit prepared 'later'")
            await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once(rows, await records_of(client, "orders"))


async def test_a_transaction_that_is_prepared_between_two_looks_is_waited_for(
    connection: Connection, server: PostgresqlServer
) -> None:
    """Its lock goes to a transaction with another name in `pg_locks`, and its row has an id."""
    connection.execute("drop trigger tidelog_outbox_notify on outbox")
    rows = [add(connection, b"1")]
    connection.commit()
    store = OUTBOX.store(server.dsn)
    store.open()
    horizon = Horizon(0)
    with psycopg.connect(server.dsn, autocommit=True) as other:
        assert horizon.observe(store.observe(), 0.0) == 1
        rows.append(add(connection, b"2"))
        assert horizon.observe(store.observe(), 0.0) == 1
        connection.execute("prepare transaction 'later'")
        rows.append(add(other, b"3"))
        assert horizon.observe(store.observe(), 0.0) == 1
        other.execute("commit prepared 'later'")
        assert horizon.observe(store.observe(), 0.0) == 3
    connection.rollback()
    store.close()


async def test_a_second_relay_waits_and_names_the_first(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    row = add(connection, b"1")
    connection.commit()
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)
        pid = OUTBOX.status(server.dsn).relay_pid
        async with relaying(OUTBOX, client, server.dsn) as second:
            await wait_until(lambda: bool(second))

    assert second == [f"waiting: another relay (server process {pid}) has the outbox 'outbox'"]
    assert_exactly_once([row], await records_of(client, "orders"))


async def test_a_relay_ends_at_once_while_the_database_does_not_answer(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    add(connection, b"1")
    connection.commit()
    with another(server) as holder, another(server) as observer:
        observer.autocommit = True
        holder.execute("set idle_in_transaction_session_timeout = '10s'")
        holder.execute("lock table outbox in access exclusive mode")
        waiting = "select from pg_locks where not granted and relation = 'outbox'::regclass"
        async with relaying(OUTBOX, client, server.dsn) as lines:
            await wait_until(lambda: observer.execute(waiting).rowcount == 1)
        holder.execute("select 1")  # It has waited for less than its timeout.

    assert lines == []


async def test_the_relay_reconnects_to_a_server_that_was_killed(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    rows = [add(connection, b"1")]
    connection.commit()
    async with relaying(OUTBOX, client, server.dsn) as lines:
        await wait_sent(OUTBOX, server.dsn)
        connection.close()
        server.kill()
        await wait_until(lambda: bool(lines))
        server.start()
        with another(server) as again:
            rows.append(add(again, b"2"))
            again.commit()
            await wait_sent(OUTBOX, server.dsn)

    assert lines[0].startswith("the database cannot be used: ")
    assert lines[0].endswith("check the DSN and the server; trying again")
    assert len(lines) == 1
    assert_exactly_once(rows, await records_of(client, "orders"))


async def test_many_rows_of_concurrent_writers_are_sent_once_and_in_order(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    del connection
    sent: dict[str, list[bytes]] = {}

    def write(key: str) -> None:
        """Commit small transactions, some of which stay open over those of others."""
        with psycopg.connect(server.dsn) as own:
            values = sent[key] = []
            for number in range(40):
                for part in range(3):
                    value = b"%d-%d" % (number, part)
                    add(own, value, key)
                    if part == 1 and number % 4 == 0:
                        time.sleep(0.005)  # noqa: TID251  (others commit meanwhile)
                    values.append(value)
                if number % 5 == 4:
                    own.rollback()
                    del values[-3:]
                else:
                    own.commit()

    async with relaying(OUTBOX, client, server.dsn, batch_records=50):
        async with trio.open_nursery() as nursery:
            for writer in range(6):
                nursery.start_soon(trio.to_thread.run_sync, write, f"key-{writer}")
        await wait_sent(OUTBOX, server.dsn)

    rows = [(key, value) for key, values in sent.items() for value in values]
    assert len(rows) == 6 * 32 * 3
    assert_exactly_once(rows, await records_of(client, "orders"))


async def test_a_batch_is_bounded_by_bytes(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    await client.admin.alter_topic("orders", set={"max_message_bytes": "12MiB"})
    values = [bytes([number]) * (3 << 20) for number in range(5)]
    values[2] *= 3
    OUTBOX.add_many(connection, [OutboxMessage("orders", value, b"k") for value in values])
    connection.commit()
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once([("k", value) for value in values], await records_of(client, "orders"))
    (found,) = await client.admin.list_transactions([OUTBOX.status(server.dsn).name])
    assert found.last_transaction_id == 2  # The third row exceeds the limit of 8 MiB.


async def test_old_rows_are_deleted(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    add(connection, b"1")
    connection.commit()

    def is_empty() -> bool:
        found = connection.execute("select count(*) from outbox").fetchone()
        connection.commit()
        return found == (0,)

    async with relaying(OUTBOX, client, server.dsn, keep="1d"):
        await wait_sent(OUTBOX, server.dsn)
    assert not is_empty()
    async with relaying(OUTBOX, client, server.dsn, keep=0):
        await wait_until(is_empty)


async def test_the_outbox_of_another_schema_is_relayed(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    outbox = Outbox('shop"s.Out box')
    connection.execute('create schema "shop""s"')
    connection.execute(outbox.ddl())
    connection.execute(outbox.ddl(notify=False))
    outbox.add(connection, "orders", b"1", key=b"k")
    connection.commit()
    async with relaying(outbox, client, server.dsn):
        await wait_sent(outbox, server.dsn)

    assert_exactly_once([("k", b"1")], await records_of(client, "orders"))


async def test_ids_never_begin_again_unseen(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    rows = [add(connection, b"1"), add(connection, b"2")]
    connection.commit()
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)
    with pytest.raises(psycopg.errors.RaiseException, match="table outbox is an outbox: delete"):
        connection.execute("truncate outbox restart identity")
    connection.rollback()
    connection.execute("drop table outbox")
    connection.execute(OUTBOX.ddl())
    rows.append(add(connection, b"3"))
    connection.commit()
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)
    assert_exactly_once(rows, await records_of(client, "orders"))

    connection.execute("delete from outbox")
    connection.execute("alter table outbox alter id restart with 1")
    for number in range(5):  # The ids pass the position.
        add(connection, b"%d" % number)
    connection.commit()
    with pytest.raises(RelayPositionError, match="row 3 is another one than the row that was sent"):
        await OUTBOX.relay(client, server.dsn)


async def test_a_sequence_that_gives_sessions_ids_in_advance_is_refused(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    """A session inserts its ids at any later time, below those of others that were sent."""
    connection.execute("alter sequence outbox_id_seq cache 10")
    connection.commit()
    with pytest.raises(OutboxError, match=r"alter sequence public\.outbox_id_seq cache 1"):
        await OUTBOX.relay(client, server.dsn)


async def test_errors_of_the_database_are_one_line(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    with pytest.raises(DatabaseUnavailableError, match='role "absent" does not exist; check the'):
        await OUTBOX.relay(client, server.dsn.replace("user=tidelog", "user=absent"))
    with pytest.raises(DatabaseUnavailableError, match=r"; check the DSN and the server$"):
        await OUTBOX.relay(client, "postgresql://127.0.0.1:1/shop")
    with pytest.raises(OutboxError, match="does not exist in this database; create it with the ou"):
        await Outbox("missing").relay(client, server.dsn)
    connection.execute("create table bare (id bigint)")
    connection.execute("create role guest login")
    connection.commit()
    with pytest.raises(OutboxError, match="table 'bare' is no outbox: its column id is no ident"):
        await Outbox("bare").relay(client, server.dsn)
    with pytest.raises(OutboxError, match=r"permission denied .* lists the rights that a relay ne"):
        await OUTBOX.relay(client, server.dsn.replace("user=tidelog", "user=guest"))


async def test_the_rights_of_the_how_to_are_enough(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    connection.execute(
        "create role shop login; grant insert on outbox to shop; create role relay login;"
        " grant select, delete on outbox to relay; grant select, update on outbox_relay to relay;"
        " grant select on sequence outbox_id_seq to relay"
    )
    connection.commit()
    with psycopg.connect(server.dsn.replace("user=tidelog", "user=shop")) as shop:
        row = add(shop, b"1")
    dsn = server.dsn.replace("user=tidelog", "user=relay")
    async with relaying(OUTBOX, client, dsn, keep=0):
        await wait_sent(OUTBOX, dsn)

    assert_exactly_once([row], await records_of(client, "orders"))
    connection.execute("revoke select on sequence outbox_id_seq from relay")
    connection.commit()
    store = OUTBOX.store(dsn)
    with pytest.raises(OutboxError, match=r"permission denied for sequence public\.outbox_id_seq;"):
        store.open()
    store.close()
    connection.execute("drop owned by shop, relay; drop role shop, relay")
    connection.commit()


async def test_an_asynchronous_connection_adds_rows(
    connection: Connection, server: PostgresqlServer, client: tidelog.Client
) -> None:
    del connection
    rows = [("k", b"%d" % number) for number in range(3)]

    def write() -> None:
        """Run another event loop, since psycopg does not run under trio."""
        import asyncio  # noqa: PLC0415

        async def add_all() -> None:
            async with await psycopg.AsyncConnection.connect(server.dsn) as own:
                await OUTBOX.add_async(own, "orders", b"0", key=b"k")
                messages = [OutboxMessage("orders", value, b"k") for _, value in rows[1:]]
                await OUTBOX.add_many_async(own, messages)

        asyncio.run(add_all())

    await trio.to_thread.run_sync(write)
    async with relaying(OUTBOX, client, server.dsn):
        await wait_sent(OUTBOX, server.dsn)

    assert_exactly_once(rows, await records_of(client, "orders"))
