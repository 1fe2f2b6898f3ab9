"""Outbox: messages that a transaction of a database sends if, and only if, it is committed.

Shell: inserts rows with the application's own connection, in the transaction of the moment. The
relay sends them.
"""

from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, LiteralString, cast, final

from tidelog.database.connections import AsyncConnection, SyncConnection, execute, execute_async
from tidelog.database.dialect import checked_dialect, checked_style, checked_table
from tidelog.database.seconds import seconds_of
from tidelog.outbox.errors import OutboxError
from tidelog.outbox.relay_options import RelayOptions, Report, log_line
from tidelog.outbox.rows import OutboxMessage, values_of
from tidelog.outbox.statements import ROWS_MAX, OutboxStatements
from tidelog.outbox.store import BatchLimits, OutboxStatus, OutboxStore
from tidelog.wire.errors import ConfigError

if TYPE_CHECKING:
    from tidelog import aio, blocking
    from tidelog.client.client import Client

_BATCH_BYTES: Final = 8 << 20
_BATCH_RECORDS_MAX: Final = 100_000


@final
class Outbox:
    """A table of messages: `Outbox("outbox", dialect="postgresql")`. Does no I/O by itself.

    `add` inserts into the table, so a message is sent if the transaction of the application is
    committed, and not if it is rolled back. A relay sends the rows to their topics, each exactly
    once; rows of one key stay in the order of their inserts.

        with connection.transaction():
            connection.execute("insert into orders ...")
            outbox.add(connection, "orders", value, key=b"user-1")
    """

    def __init__(
        self, table: str = "outbox", *, dialect: str = "postgresql", paramstyle: str | None = None
    ) -> None:
        """Describe an outbox.

        Args:
            table: Name of the table, perhaps `SCHEMA.NAME`; the position of the relay is in the
                table `NAME_relay`.
            dialect: `postgresql` or `sqlite`.
            paramstyle: Placeholders of the application's driver: `format` (`%s`), `qmark` (`?`) or
                `dollar` (`$1`); by default that of psycopg or sqlite3.

        Raises:
            ConfigError: A name is not valid.
        """
        known = checked_dialect(dialect)
        self.table = checked_table(table)
        if known == "sqlite" and "." in table:
            raise ConfigError(f"table {table!r} has a schema, and SQLite has none: give its name")
        self._statements = OutboxStatements(table, known, checked_style(paramstyle, known))
        self._own = OutboxStatements(table, known, checked_style(None, known))

    def ddl(self, *, notify: bool = True) -> LiteralString:
        """Return the statements that create the tables; executing them again changes nothing.

        Args:
            notify: In PostgreSQL, whether each insert wakes the relay (`NOTIFY`). Without it, the
                relay finds rows by polling alone.
        """
        return self._own.ddl(with_notify=notify)

    def add(
        self,
        connection: SyncConnection,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Insert one message, as a part of the connection's transaction.

        Args:
            connection: Connection of psycopg or sqlite3, or the `.connection` of SQLAlchemy's.
            topic: Topic, which need not exist yet.
            value: Value of the record.
            key: Key: records with the same key stay in order.
            partition: Partition, instead of the one that the key gives.
            headers: Pairs of name and value, such as the trace context.

        Raises:
            TypeError: A part has a wrong type; the message names the right one.
            ValueError: The topic is empty, or the partition is out of range.
            Exception: The error of the driver.
        """
        execute(
            connection,
            *self.insert(topic, value, key=key, partition=partition, headers=headers),
        )

    async def add_async(
        self,
        connection: AsyncConnection,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Insert one message with a connection whose `execute` is awaited; see `add`.

        Such are `psycopg.AsyncConnection` and aiosqlite's, under any event loop.
        """
        await execute_async(
            connection,
            *self.insert(topic, value, key=key, partition=partition, headers=headers),
        )

    def add_many(self, connection: SyncConnection, messages: Iterable[OutboxMessage]) -> None:
        """Insert messages, in their order; much faster than one by one. See `add`."""
        for statement, parameters in self._inserts(messages):
            execute(connection, statement, parameters)

    async def add_many_async(
        self, connection: AsyncConnection, messages: Iterable[OutboxMessage]
    ) -> None:
        """Insert messages, in their order; see `add_many` and `add_async`."""
        for statement, parameters in self._inserts(messages):
            await execute_async(connection, statement, parameters)

    def insert(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> tuple[LiteralString, list[object]]:
        """Return the statement that inserts one message, and its parameters, for any driver.

        `await connection.execute(statement, *parameters)` with asyncpg and `paramstyle="dollar"`.

        Raises:
            TypeError: As for `add`.
            ValueError: As for `add`.
        """
        message = OutboxMessage(topic, value, key, partition, tuple(headers))
        return self._statements.insert([values_of(message)])

    def relay(
        self,
        client: "Client",
        dsn: str,
        *,
        poll: float = 0.2,
        batch_records: int = 2_000,
        keep: str | float | None = "7d",
        dead_letter_topic: str | None = None,
        report: Report = log_line,
    ) -> Awaitable[None]:
        """Send the rows of the table to the log, until cancelled: `await outbox.relay(...)`.

        One relay works at a time; others wait until it has ended. It reconnects to the database and
        to the cluster as often as needed. A relay may be killed at any time: the next one goes on,
        and no row is lost or sent twice.

        Args:
            client: Client of the cluster.
            dsn: Database: a URL or keywords of libpq, or the path of a file of SQLite.
            poll: Seconds between two looks at the table, if no notification comes earlier.
            batch_records: Maximum rows of one transaction of the cluster: 1 to 100,000.
            keep: Age at which relayed rows are deleted, such as `7d`, or seconds; `None` keeps all.
            dead_letter_topic: Topic for rows that their topic refuses. Without it, the relay stops
                at such a row.
            report: Receives a line about what the relay waits for; by default, the logger
                `tidelog.outbox`.

        Raises:
            ConfigError: An argument is out of range.
            DatabaseUnavailableError: The database cannot be reached at the start.
            OutboxRowError: A row cannot be sent: its topic does not exist, or it is too large.
            RelayPositionError: The database was restored from a backup, the cluster is another
                one, or no relay ran for 7 days: rows might be sent twice or never.
            OutboxError: The tables do not exist, or the user has no right to them.
            TypeError: The client is one of `tidelog.aio` or `tidelog.blocking`.
        """
        if poll <= 0 or not 1 <= batch_records <= _BATCH_RECORDS_MAX:
            raise ConfigError(
                f"poll is {poll:g} s and batch_records is {batch_records}: they must be above 0 s,"
                f" and from 1 to {_BATCH_RECORDS_MAX:,}"
            )
        # Only a relay needs trio.
        from tidelog.client.client import Client  # noqa: PLC0415
        from tidelog.outbox.relay import Relay  # noqa: PLC0415

        if not isinstance(cast("object", client), Client):
            raise TypeError(
                "a relay needs a client of tidelog: with one of tidelog.aio, await relay_aio();"
                " with one of tidelog.blocking, call relay_blocking()"
            )
        limits = BatchLimits(batch_records, _BATCH_BYTES)
        keep_s = None if keep is None else seconds_of("keep", keep)
        options = RelayOptions(poll, limits, keep_s, dead_letter_topic, report)
        return Relay(client, self.store(dsn), options).run()

    def relay_blocking(
        self,
        client: "blocking.Client",
        dsn: str,
        *,
        poll: float = 0.2,
        batch_records: int = 2_000,
        keep: str | float | None = "7d",
        dead_letter_topic: str | None = None,
        report: Report = log_line,
    ) -> None:
        """Send the rows with a client of `tidelog.blocking`, until the client is closed or Ctrl-C.

        See `relay`.
        """
        client.run_async(
            partial(
                self.relay,
                dsn=dsn,
                poll=poll,
                batch_records=batch_records,
                keep=keep,
                dead_letter_topic=dead_letter_topic,
                report=report,
            )
        )

    async def relay_aio(
        self,
        client: "aio.Client",
        dsn: str,
        *,
        poll: float = 0.2,
        batch_records: int = 2_000,
        keep: str | float | None = "7d",
        dead_letter_topic: str | None = None,
        report: Report = log_line,
    ) -> None:
        """Send the rows with a client of `tidelog.aio`, until cancelled; see `relay`."""
        await client.run_async(
            partial(
                self.relay,
                dsn=dsn,
                poll=poll,
                batch_records=batch_records,
                keep=keep,
                dead_letter_topic=dead_letter_topic,
                report=report,
            )
        )

    def status(self, dsn: str) -> OutboxStatus:
        """Return the backlog, the position, and the writer that holds rows back. Blocks.

        Raises:
            OutboxError: The database cannot be reached, or has no such tables.
        """
        store = self.store(dsn)
        try:
            store.open()
            return store.status()
        finally:
            store.close()

    def reset(self, dsn: str, *, next_id: int) -> None:
        """Set the next row: send the rows from `next_id` on, under a new name. Blocks.

        For databases that were restored from a backup and for other clusters. Rows below `next_id`
        count as sent. Rows that are sent again have new message ids.

        Raises:
            ConfigError: `next_id` is below 1.
            OutboxError: The database cannot be reached, has no such tables, or a relay runs.
        """
        if next_id < 1:
            raise ConfigError(f"next_id is {next_id}: it must be 1 or more")
        store = self.store(dsn)
        try:
            store.open()
            if not store.try_lock():
                raise OutboxError(
                    f"the outbox {self.table!r} cannot be reset: a relay runs; stop it first"
                )
            store.reset(next_id)
        finally:
            store.close()

    def store(self, dsn: str) -> OutboxStore:
        """Return a connection to a database that is not open yet.

        Raises:
            OutboxError: The driver is missing.
        """
        # Only programs that relay need the driver.
        if self._own.dialect == "sqlite":
            from tidelog.outbox.sqlite import SqliteStore  # noqa: PLC0415

            return SqliteStore(dsn, self._own)
        try:
            from tidelog.outbox.postgresql import PostgresqlStore  # noqa: PLC0415
        except ImportError as error:
            raise OutboxError(str(error)) from error
        return PostgresqlStore(dsn, self._own)

    def _inserts(
        self, messages: Iterable[OutboxMessage]
    ) -> Iterator[tuple[LiteralString, list[object]]]:
        rows = map(values_of, messages)
        while chunk := list(islice(rows, ROWS_MAX)):
            yield self._statements.insert(chunk)
