"""Kills of relays, of PostgreSQL and of the broker, while writers write."""

import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import trio

import tidelog
from bench.postgresql_server import PostgresqlServer
from tests.paths import ROOT
from tests.system.integration.dying_relay import STEPS
from tests.system.integration.nodes import free_ports
from tests.system.integration.outbox_kills import kill_relays
from tests.system.integration.processes import environment, serving
from tests.tidelog.outbox.relays import assert_exactly_once, records_of, wait_sent, wait_until
from tidelog.outbox import Outbox

OUTBOX = Outbox()
Connection = psycopg.Connection[Any]


async def test_relays_that_are_killed_at_any_step_send_each_row_once(
    connection: Connection, server: PostgresqlServer, tmp_path: Path
) -> None:
    def add(key: str, value: bytes) -> None:
        OUTBOX.add(connection, "orders", value, key=key.encode())
        connection.commit()

    await kill_relays(
        OUTBOX, server.dsn, tmp_path / "broker", dialect="postgresql", steps=STEPS, add=add
    )


class Writer:
    """Commits rows, and knows which of them are committed."""

    def __init__(self, server: PostgresqlServer, key: str) -> None:
        self._server = server
        self._key = key
        self._count = 0
        self.committed: list[tuple[str, bytes]] = []
        self.unknown: set[tuple[str, bytes]] = set()
        """Rows whose commit was not answered."""
        self.is_over = False

    def run(self) -> None:
        """Write until it is over; reconnect when the server has been killed."""
        while not self.is_over:
            try:
                with psycopg.connect(self._server.dsn) as connection:
                    while not self.is_over:
                        self._write(connection)
            except psycopg.OperationalError:
                time.sleep(0.05)  # noqa: TID251

    def _write(self, connection: Connection) -> None:
        row = (self._key, b"%d" % self._count)
        self._count += 1
        OUTBOX.add(connection, "orders", row[1], key=self._key.encode())
        time.sleep(0.002)  # noqa: TID251  (other transactions commit meanwhile)
        self.unknown.add(row)
        connection.commit()
        self.unknown.discard(row)
        self.committed.append(row)


@asynccontextmanager
async def relay_process(dsn: str, address: str) -> AsyncGenerator[trio.Process, None]:
    """Run `tidelog outbox relay` while the block runs, then kill it."""
    command = [sys.executable, "-m", "tidelog", "outbox", "relay", "--dsn", dsn, "--poll", "20ms"]
    process = await trio.lowlevel.open_process(
        [*command, "--broker", address, "--batch-records", "20"],
        cwd=ROOT,
        env=environment(),
        stderr=-3,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_kills_of_broker_database_and_relay_lose_and_repeat_nothing(
    connection: Connection, server: PostgresqlServer, tmp_path: Path
) -> None:
    connection.close()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    writers = [Writer(server, f"key-{number}") for number in range(3)]

    def written() -> int:
        return min(len(writer.committed) for writer in writers)

    async def go_on(count: int = 15) -> None:
        target = written() + count
        await wait_until(lambda: written() >= target)

    async with trio.open_nursery() as nursery:
        for writer in writers:
            nursery.start_soon(trio.to_thread.run_sync, writer.run)
        for round_number in range(2):
            async with serving(tmp_path / "broker", listen=address):
                if not round_number:
                    async with tidelog.connect(address) as client:
                        await client.admin.create_topic("orders", partitions=2)
                async with relay_process(server.dsn, address):
                    await go_on()
                    await trio.to_thread.run_sync(server.kill)
                    await trio.to_thread.run_sync(server.start)
                    await go_on()
                # The relay is killed here, and then the broker.
                async with relay_process(server.dsn, address):
                    await go_on()
        for writer in writers:
            writer.is_over = True
    async with serving(tmp_path / "broker", listen=address):
        async with relay_process(server.dsn, address) as last:
            await wait_sent(OUTBOX, server.dsn)
            last.send_signal(signal.SIGTERM)
            assert await last.wait() == 128 + signal.SIGTERM
        async with tidelog.connect(address) as client:
            found = await records_of(client, "orders")
    values = {(str(record.key, "ascii"), record.value) for record in found if record.key}
    for writer in writers:
        sent = sorted({*writer.committed, *(writer.unknown & values)}, key=lambda row: int(row[1]))
        own = [record for record in found if record.key == sent[0][0].encode()]
        assert_exactly_once(sent, own)
