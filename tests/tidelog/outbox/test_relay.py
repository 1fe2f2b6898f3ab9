"""The relay from SQLite to a real broker, and its end at any step."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

import tidelog
from tests.tidelog.brokers import broker_in_a_thread
from tests.tidelog.outbox.relays import (
    assert_exactly_once,
    records_of,
    relaying,
    sqlite_outbox,
    wait_sent,
    wait_until,
)
from tidelog import aio, blocking
from tidelog.outbox import (
    DatabaseUnavailableError,
    Outbox,
    OutboxError,
    OutboxMessage,
    OutboxRowError,
    RelayPositionError,
)
from tidelog.outbox import relay as relay_module
from tidelog.outbox.position import Position
from tidelog.outbox.relay import Relay
from tidelog.outbox.relay_options import RelayOptions
from tidelog.outbox.sqlite import SqliteStore
from tidelog.outbox.statements import OutboxStatements
from tidelog.outbox.store import BatchLimits

KEYS: Final = ("a", "b", "c")


class Shop:
    """A database with an outbox, and a client of a broker with the topic `orders`."""

    def __init__(self, path: Path, client: tidelog.Client) -> None:
        self.path = path
        self.client = client
        self.outbox, self.connection = sqlite_outbox(path)
        self.sent: list[tuple[str, bytes]] = []

    def add(self, count: int, topic: str = "orders") -> None:
        """Commit rows, and remember them."""
        for _ in range(count):
            key, value = KEYS[len(self.sent) % 3], b"%d" % len(self.sent)
            self.outbox.add(self.connection, topic, value, key=key.encode())
            self.sent.append((key, value))
        self.connection.commit()

    async def relay_all(self, **options: object) -> list[str]:
        """Relay all rows; return what the relay reported."""
        async with relaying(self.outbox, self.client, self.path, **options) as lines:
            await wait_sent(self.outbox, self.path)
        return lines

    async def fails(self, error: type[Exception], match: str, **options: object) -> None:
        """Run a relay that must end with an error."""
        with pytest.raises(error, match=match):
            await self.outbox.relay(self.client, str(self.path), **options)  # type: ignore[arg-type]


@asynccontextmanager
async def open_shop(directory: Path) -> AsyncGenerator[Shop, None]:
    async with (
        tidelog.open_broker(directory / "broker") as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders", partitions=2)
        shop = Shop(directory / "shop.db", client)
        yield shop
        shop.connection.close()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop, None]:
    async with open_shop(tmp_path) as opened:
        yield opened


async def test_committed_rows_are_sent_once_and_in_order(shop: Shop) -> None:
    shop.add(5)
    shop.outbox.add(shop.connection, "orders", b"never")
    shop.connection.rollback()
    async with relaying(shop.outbox, shop.client, shop.path):
        await wait_sent(shop.outbox, shop.path)
        shop.add(20)
        await wait_sent(shop.outbox, shop.path)
    shop.add(1)
    await shop.relay_all(batch_records=1)

    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_a_record_has_all_parts_of_its_message(shop: Shop) -> None:
    headers = [("traceparent", b"00-1"), ("raw", b"\xff")]
    shop.outbox.add_many(
        shop.connection,
        [OutboxMessage("orders", None, b"k", 1, headers), OutboxMessage("orders", b"")],
    )
    shop.connection.commit()
    await shop.relay_all()

    name = shop.outbox.status(str(shop.path)).name
    by_value = {record.value: record for record in await records_of(shop.client, "orders")}
    first, second = by_value[None], by_value[b""]
    assert (first.key, first.partition) == (b"k", 1)
    assert first.headers == (*headers, ("tidelog-message-id", f"{name}:1".encode()))
    assert second.headers == (("tidelog-message-id", f"{name}:2".encode()),)


class CrashError(Exception):
    """The end of a relay at one of its steps."""


class CrashingStore(SqliteStore):
    """Raises at the n-th of the steps that change something outside of the relay."""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__(str(path), OutboxStatements("outbox", "sqlite", "qmark"))
        self.steps_left = step

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise CrashError

    def save(self, old: Position, new: Position) -> None:
        self.step()
        super().save(old, new)
        self.step()


@pytest.mark.parametrize("is_cut", [False, True], ids=["same-limit", "other-limit"])
async def test_a_relay_may_end_at_any_step(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    """The steps: save, stage, commit; each relay ends one step later than the one before."""
    store = CrashingStore(shop.path, 0)
    begin, commit = tidelog.TransactionTask.__aexit__, tidelog.Transaction.commit

    async def staged(task: tidelog.TransactionTask, *args: object) -> None:
        await begin(task, *args)  # type: ignore[arg-type]
        store.step()

    async def committed(transaction: tidelog.Transaction, tasks: list[tidelog.TaskResult]) -> None:
        await commit(transaction, tasks)
        store.step()

    monkeypatch.setattr(tidelog.TransactionTask, "__aexit__", staged)
    monkeypatch.setattr(tidelog.Transaction, "commit", committed)
    for step in range(1, 17):
        shop.add(12)
        store = CrashingStore(shop.path, step)
        limits = BatchLimits(3 if is_cut and step % 2 else 2, 1 << 20)
        options = RelayOptions(0.01, limits, None, None, lambda _: None)
        with pytest.raises(CrashError):
            await Relay(shop.client, store, options).run()
        store.close()
    monkeypatch.undo()
    await shop.relay_all()

    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_a_second_relay_waits_for_the_end_of_the_first(shop: Shop) -> None:
    async with relaying(shop.outbox, shop.client, shop.path):
        shop.add(1)
        await wait_sent(shop.outbox, shop.path)
        async with relaying(shop.outbox, shop.client, shop.path) as second:
            await wait_until(lambda: bool(second))
            assert second == ["waiting: another relay has the outbox 'outbox'"]
            with pytest.raises(OutboxError, match="cannot be reset: a relay runs; stop it first"):
                shop.outbox.reset(str(shop.path), next_id=1)


async def test_a_relay_that_lost_its_lock_sends_no_row_again(shop: Shop) -> None:
    """Two relays at once: what the lock prevents, and the position survives."""

    class UnlockedStore(SqliteStore):
        def try_lock(self) -> bool:
            return True

    statements = OutboxStatements("outbox", "sqlite", "qmark")
    options = RelayOptions(0.01, BatchLimits(2, 1 << 20), None, None, lambda _: None)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            store = UnlockedStore(str(shop.path), statements)
            nursery.start_soon(Relay(shop.client, store, options).run)
        for _ in range(10):
            shop.add(7)
            await trio.sleep(0.02)
        await wait_sent(shop.outbox, shop.path)
        nursery.cancel_scope.cancel()

    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_the_relay_stops_at_a_row_whose_topic_does_not_exist(shop: Shop) -> None:
    shop.add(3)
    shop.add(1, "payments")
    payment = shop.sent.pop()
    shop.add(3)

    await shop.fails(OutboxRowError, "row 4 cannot be sent: there is no topic 'payments'; create")
    assert len(await records_of(shop.client, "orders")) == 3
    await shop.client.admin.create_topic("payments")
    await shop.relay_all()

    assert_exactly_once([payment], await records_of(shop.client, "payments"))
    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_refused_rows_go_to_the_topic_of_dead_letters(shop: Shop) -> None:
    await shop.client.admin.create_topic("refused", config={"max_message_bytes": "4MiB"})
    shop.outbox.add(shop.connection, "orders", bytes(2 << 20), key=b"large")
    shop.outbox.add(shop.connection, "payments", b"1")
    shop.add(2)

    lines = await shop.relay_all(dead_letter_topic="refused")

    large, lost = await records_of(shop.client, "refused")
    assert (large.key, len(large.value or b"")) == (b"large", 2 << 20)
    assert dict(lost.headers)["tidelog-outbox-topic"] == b"payments"
    assert [line.partition(":")[0] for line in lines] == [
        "row 1 cannot be sent",
        "row 2 cannot be sent",
    ]
    assert lines[1].endswith("sent to 'refused'")
    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_a_topic_that_was_altered_meanwhile_takes_what_it_refused_before(shop: Shop) -> None:
    admin = shop.client.admin
    await admin.create_topic("refused")
    async with relaying(shop.outbox, shop.client, shop.path, dead_letter_topic="refused") as lines:
        shop.add(1)
        await wait_sent(shop.outbox, shop.path)
        await admin.add_partitions("orders", 3)
        await admin.alter_topic("orders", set={"max_message_bytes": "4MiB"})
        shop.outbox.add(shop.connection, "orders", bytes(2 << 20), partition=2)
        shop.connection.commit()
        await wait_sent(shop.outbox, shop.path)

    assert lines == []
    large = (await records_of(shop.client, "orders"))[-1]
    assert (large.partition, len(large.value or b"")) == (2, 2 << 20)


async def test_rows_of_triggers_may_have_text_in_columns_of_bytes(shop: Shop) -> None:
    shop.connection.execute(
        "insert into outbox (topic, key, value) values ('orders', 'é', json_object('id', 1))"
    )
    shop.connection.commit()
    await shop.relay_all()

    (record,) = await records_of(shop.client, "orders")
    assert (record.key, record.value) == ("é".encode(), b'{"id":1}')


async def test_a_name_of_a_table_may_be_written_in_any_case(shop: Shop) -> None:
    shop.add(1)
    shop.outbox = Outbox("OUTBOX", dialect="sqlite")
    shop.connection.executescript(shop.outbox.ddl())
    await shop.relay_all()

    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_a_topic_that_is_deleted_meanwhile_stops_the_relay(shop: Shop) -> None:
    await shop.client.admin.create_topic("payments")
    with pytest.RaisesGroup(
        pytest.RaisesExc(OutboxRowError, match="row 3 cannot be sent: there is no topic 'payments'")
    ):
        async with relaying(shop.outbox, shop.client, shop.path):
            shop.add(2, "payments")
            await wait_sent(shop.outbox, shop.path)
            await shop.client.admin.delete_topic("payments")
            shop.add(1, "payments")
            await trio.sleep_forever()
    await shop.client.admin.create_topic("payments")
    await shop.relay_all()

    assert [each.value for each in await records_of(shop.client, "payments")] == [b"2"]


async def test_old_rows_are_deleted_and_the_relay_goes_on(shop: Shop) -> None:
    shop.add(5)
    await shop.relay_all(keep="1h")

    def row_count() -> int:
        ((count,),) = shop.connection.execute("select count(*) from outbox").fetchall()
        return int(count)

    assert row_count() == 5
    async with relaying(shop.outbox, shop.client, shop.path, keep=0):
        await wait_until(lambda: row_count() == 0)
    shop.add(2)
    await shop.relay_all()
    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_a_restored_database_is_refused_until_it_is_reset(shop: Shop, tmp_path: Path) -> None:
    shop.add(2)
    await shop.relay_all()
    backup = sqlite3.connect(tmp_path / "backup.db")
    shop.connection.backup(backup)
    shop.add(2)
    await shop.relay_all()
    backup.backup(shop.connection)
    backup.close()
    del shop.sent[2:]
    shop.add(2)  # They get the ids 3 and 4 again.

    await shop.fails(RelayPositionError, "batch 2, and the database is at batch 1: it was restored")
    shop.outbox.reset(str(shop.path), next_id=3)
    await shop.relay_all()

    found = await records_of(shop.client, "orders")
    ids = [dict(record.headers)["tidelog-message-id"] for record in found]
    assert len(found) == 6
    assert len(set(ids)) == 6, "the restored rows are new messages"


async def test_another_cluster_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.add(1)
    await shop.relay_all()
    (tmp_path / "other").mkdir()
    async with open_shop(tmp_path / "other") as other:
        with pytest.raises(RelayPositionError, match="the cluster knows none: no relay ran for 7"):
            await shop.outbox.relay(other.client, str(shop.path))


async def test_a_table_that_is_created_again_goes_on_with_its_ids(shop: Shop) -> None:
    shop.add(3)
    await shop.relay_all()
    shop.connection.execute("drop table outbox")
    shop.connection.executescript(shop.outbox.ddl())
    shop.add(2)
    await shop.relay_all()
    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))

    shop.connection.executescript("delete from outbox; update sqlite_sequence set seq = 1")
    await shop.fails(RelayPositionError, "its row ids began again: the last row id is 1")


async def test_an_idle_relay_keeps_its_name_known(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_RENEWED_S", 0.02)

    def batch() -> int:
        ((number,),) = shop.connection.execute("select batch from outbox_relay").fetchall()
        return int(number)

    async with relaying(shop.outbox, shop.client, shop.path):
        await wait_until(lambda: batch() >= 3)
    monkeypatch.undo()
    shop.add(2)
    await shop.relay_all()

    assert_exactly_once(shop.sent, await records_of(shop.client, "orders"))


async def test_bad_arguments_and_missing_tables_are_named(shop: Shop, tmp_path: Path) -> None:
    await shop.fails(tidelog.ConfigError, "poll is 0 s and batch_records is 2000", poll=0)
    await shop.fails(tidelog.ConfigError, "keep is 'soon': it must be a duration", keep="soon")
    shop.connection.execute("delete from outbox_relay")
    shop.connection.commit()
    await shop.fails(OutboxError, "has no position: the table 'outbox_relay' is empty; create it")
    shop.connection.executescript("drop table outbox; drop table outbox_relay")
    await shop.fails(
        OutboxError,
        "does not exist in .*shop.db; create it with the output of: tidelog outbox ddl --dialect"
        " sqlite --table outbox",
    )
    with pytest.raises(DatabaseUnavailableError, match=r"no\.db cannot be used: unable to open"):
        await shop.outbox.relay(shop.client, str(tmp_path / "no.db"))
    (tmp_path / "text").write_text("this is no database " * 100)
    with pytest.raises(OutboxError, match="cannot be used: file is not a database; is it a file"):
        await shop.outbox.relay(shop.client, str(tmp_path / "text"))
    with pytest.raises(tidelog.ConfigError, match="has a schema, and SQLite has none"):
        Outbox("shop.outbox", dialect="sqlite")
    with pytest.raises(tidelog.ConfigError, match="next_id is 0: it must be 1 or more"):
        shop.outbox.reset(str(shop.path), next_id=0)


@pytest.fixture
def blocking_client(tmp_path: Path) -> Iterator[blocking.Client]:
    with broker_in_a_thread(tmp_path / "b") as address, blocking.connect(address) as client:
        client.admin.create_topic("orders")
        yield client


async def test_a_blocking_client_relays_until_it_is_closed(
    tmp_path: Path, blocking_client: blocking.Client
) -> None:
    outbox, connection = sqlite_outbox(tmp_path / "shop.db")
    outbox.add(connection, "orders", b"paid")
    connection.commit()
    connection.close()

    def relay() -> None:
        with pytest.raises(trio.ClosedResourceError):
            outbox.relay_blocking(blocking_client, str(tmp_path / "shop.db"), poll=0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, relay)
        await wait_sent(outbox, tmp_path / "shop.db")
        await trio.to_thread.run_sync(blocking_client.close)


def test_a_client_on_asyncio_relays_until_it_is_cancelled(tmp_path: Path) -> None:
    outbox, connection = sqlite_outbox(tmp_path / "shop.db")
    outbox.add(connection, "orders", b"paid")
    connection.commit()
    connection.close()

    async def main(address: str) -> bytes | None:
        async with aio.connect(address) as client:
            await client.admin.create_topic("orders")
            with pytest.raises(TypeError, match=r"with one of tidelog\.aio, await relay_aio"):
                await outbox.relay(client, str(tmp_path / "shop.db"))  # type: ignore[arg-type]
            relaying = asyncio.create_task(
                outbox.relay_aio(client, str(tmp_path / "shop.db"), poll=0.01)
            )
            async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
                record = await anext(aiter(consumer))
            relaying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await relaying
        return record.value

    with broker_in_a_thread(tmp_path / "b") as address:
        assert asyncio.run(main(address)) == b"paid"
