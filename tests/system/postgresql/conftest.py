"""Tests with PostgreSQL, of the outbox and the inbox: `make test-postgresql`.

Without its server they are skipped; with REQUIRE_POSTGRESQL=1 they fail.
"""

import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tidelog
from bench.postgresql_server import PostgresqlServer, find_program, postgresql_server
from tidelog.outbox import Outbox

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    """Run a server for all tests here; skip or fail them if it is not installed."""
    if find_program("initdb") is None or find_program("pg_ctl") is None:
        reason = "initdb and pg_ctl not found: install the server of PostgreSQL"
        if os.environ.get("REQUIRE_POSTGRESQL"):
            pytest.fail(reason)
        pytest.skip(f"PostgreSQL tests are left out: {reason}")
    # A kill of the server keeps what the kernel has; nothing here cuts the power.
    with postgresql_server(fsync="off", full_page_writes="off") as running:
        yield running


@pytest.fixture
def connection(server: PostgresqlServer) -> Iterator[Connection]:
    """Return a connection of an application; the database is empty."""
    with psycopg.connect(server.dsn) as connection:
        connection.execute(
            "drop schema public cascade; create schema public;"
            " grant usage on schema public to public"
        )
        connection.execute(Outbox().ddl())
        connection.commit()
        yield connection
        if not connection.closed:
            connection.rollback()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[tidelog.Client, None]:
    """Return a client of a broker with the topic `orders`."""
    async with (
        tidelog.open_broker(tmp_path / "broker") as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders", partitions=2)
        yield client
