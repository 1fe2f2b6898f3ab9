"""Benchmark of the outbox: rows a second of a relay, and the time from a commit to the consumer.

PostgreSQL and the broker share the core of servers, with their syncs; the relay has the other one,
which it shares with the program that measures.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from statistics import quantiles
from subprocess import DEVNULL, Popen
from time import perf_counter
from typing import Any, Final

import psycopg
import trio

import tidelog
from bench.figures import Row, Settings, Spread
from bench.machine import LOAD_CORE, ROOT, SERVER_CORE, broker_process, cpu_seconds
from bench.postgresql_server import find_program, postgresql_server
from tidelog.outbox import Outbox, OutboxMessage

_TOPIC: Final = "orders"
_PARTITIONS: Final = 4
_VALUE: Final = bytes(100)
_KEYS: Final = [b"key-%d" % number for number in range(1_000)]
_ROWS_GOAL: Final = 20_000
_POLL_GOAL_MS: Final = 300.0
_NOTIFY_GOAL_MS: Final = 30.0
_PAUSE_S: Final = 0.05

_Connection = psycopg.Connection[Any]
_Relay = Popen[bytes]


def run(settings: Settings) -> list[Row]:
    """Relay many rows at once, then one row at a time."""
    if find_program("initdb") is None:
        return [Row("outbox: left out, PostgreSQL is not installed", "")]
    os.sched_setaffinity(0, {SERVER_CORE})
    with (
        postgresql_server() as server,
        broker_process(settings.directory / "data") as broker,
        psycopg.connect(server.dsn) as connection,
    ):
        # From here on this program and the relays, which it starts, have the other core.
        os.sched_setaffinity(0, {LOAD_CORE})
        address = "{}:{}".format(*broker.address)
        trio.run(_create_topic, address)
        count = settings.choose(100_000, 20_000)
        waits = settings.choose(200, 30)
        rounds: list[tuple[float, float]] = []
        for _ in range(settings.choose(5, 2)):
            _fill(connection, count)
            with _relay(address, server.dsn) as relay:
                rounds.append(_throughput(connection, relay, count))
        with _relay(address, server.dsn):
            notified = trio.run(_latencies, address, connection, waits)
            connection.execute("drop trigger tidelog_outbox_notify on outbox")
            polled = trio.run(_latencies, address, connection, waits)
    rates = Spread.of(rate for rate, _ in rounds)
    return [
        Row(
            f"outbox: rows a second from PostgreSQL, {len(_VALUE)} B each",
            rates.text(),
            f">= {_ROWS_GOAL:,}",
            rates.median >= _ROWS_GOAL,
        ),
        Row("outbox: CPU of the relay, µs a row", Spread.of(cpu for _, cpu in rounds).text(".1f")),
        _latency_row("with NOTIFY", notified, _NOTIFY_GOAL_MS),
        _latency_row("with a poll of 200 ms", polled, _POLL_GOAL_MS),
    ]


def _latency_row(what: str, measured: list[float], goal_ms: float) -> Row:
    percentiles = quantiles(measured, n=100)
    median, tail = percentiles[49], percentiles[98]
    return Row(
        f"outbox: ms from a commit to the consumer, {what}, median and 99 %",
        f"{median:.1f} and {tail:.1f}",
        f"99 % < {goal_ms:.0f}",
        tail < goal_ms,
    )


async def _create_topic(address: str) -> None:
    async with tidelog.connect(address) as client:
        await client.admin.create_topic(_TOPIC, partitions=_PARTITIONS)


@contextmanager
def _relay(address: str, dsn: str) -> Generator[_Relay]:
    """Run a relay while the block runs, as users run it."""
    arguments = ["outbox", "relay", "--broker", address, "--dsn", dsn]
    command = [sys.executable, "-m", "tidelog", *arguments]
    with Popen(command, cwd=ROOT, stdin=DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def _fill(connection: _Connection, count: int) -> None:
    """Create a table with rows."""
    outbox = Outbox()
    connection.execute("drop table if exists outbox, outbox_relay")
    connection.execute(outbox.ddl())
    messages = (OutboxMessage(_TOPIC, _VALUE, _KEYS[row % len(_KEYS)]) for row in range(count))
    outbox.add_many(connection, messages)
    connection.commit()
    connection.autocommit = True
    connection.execute("vacuum analyze outbox")
    connection.autocommit = False


def _throughput(connection: _Connection, relay: _Relay, count: int) -> tuple[float, float]:
    """Return the rows a second, and the microseconds of the relay's CPU a row."""
    first_id, began, cpu_began = _wait_relayed(connection, relay, 1)
    last_id, ended, cpu_ended = _wait_relayed(connection, relay, count)
    done = last_id - first_id
    return done / (ended - began), (cpu_ended - cpu_began) / done * 1e6


def _wait_relayed(connection: _Connection, relay: _Relay, row_id: int) -> tuple[int, float, float]:
    """Wait until a row is in the log; return the last such row, the time, and the relay's CPU."""
    while True:
        found = connection.execute("select relayed_id, pg_sleep(0.01) from outbox_relay").fetchone()
        connection.commit()
        if found is not None and found[0] >= row_id:
            return found[0], perf_counter(), cpu_seconds(relay.pid)
        assert relay.poll() is None, "the relay has ended"


async def _latencies(address: str, connection: _Connection, count: int) -> list[float]:
    """Return the milliseconds from each of some commits until the consumer has the record."""
    outbox, measured = Outbox(), list[float]()
    async with (
        tidelog.connect(address) as client,
        client.consumer(_TOPIC, auto_offset_reset="latest") as consumer,
    ):
        records = consumer.records()
        for number in range(-3, count):
            outbox.add(connection, _TOPIC, _VALUE, key=_KEYS[number])
            connection.commit()
            began = perf_counter()
            await anext(records)
            if number >= 0:  # The first ones wait for the start of the relay.
                measured.append((perf_counter() - began) * 1e3)
            await trio.sleep(_PAUSE_S)
    return measured
