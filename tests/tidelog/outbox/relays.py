"""Relays in this process, and what they have sent."""

import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

import tidelog
from tidelog.outbox import Outbox

_LOOK_S = 0.01


def sqlite_outbox(path: Path) -> tuple[Outbox, sqlite3.Connection]:
    """Create an outbox; return it and a connection of an application."""
    outbox = Outbox(dialect="sqlite")
    connection = sqlite3.connect(path)
    connection.executescript(outbox.ddl())
    return outbox, connection


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a database fulfils a condition: nothing tells of its changes."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(_LOOK_S)


@asynccontextmanager
async def relaying(
    outbox: Outbox, client: tidelog.Client, dsn: object, **options: object
) -> AsyncGenerator[list[str], None]:
    """Run a relay while the block runs; give the lines that it reports."""
    lines: list[str] = []
    options = {"poll": 0.01, "report": lines.append, **options}

    async def run() -> None:
        await outbox.relay(client, str(dsn), **options)  # type: ignore[arg-type]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield lines
        nursery.cancel_scope.cancel()


async def wait_sent(outbox: Outbox, dsn: object) -> None:
    """Wait until all rows are in the log, and the position says so."""
    store = outbox.store(str(dsn))
    store.open()

    def is_sent() -> bool:
        status = store.status()
        return status.backlog == 0 and status.pending_id is None

    await wait_until(is_sent)
    store.close()


async def records_of(client: tidelog.Client, *topics: str) -> list[tidelog.Record]:
    """Return all records of topics."""
    async with client.consumer(topics, auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        return [record async for record in consumer.records(ends)]


def assert_exactly_once(sent: Iterable[tuple[str, bytes]], found: Iterable[tidelog.Record]) -> None:
    """Check that each pair of key and value is there once, and those of each key in order."""
    records = list(found)
    wanted = [(key.encode(), value) for key, value in sent]
    assert Counter((record.key, record.value) for record in records) == Counter(wanted)
    for key in {key for key, _ in wanted}:
        in_log = [record.value for record in records if record.key == key]
        assert in_log == [value for of, value in wanted if of == key]
