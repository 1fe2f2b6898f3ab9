"""Outbox in PostgreSQL, by psycopg; needs `pip install 'tidelog[outbox]'`.

Shell: owns one connection, in autocommit mode. Its session has the advisory lock of the relay, so
it must not go through a pooler that shares sessions.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket  # noqa: TID251  (that of the driver is shut down)
from typing import Any, Final, final

from tidelog.database.dialect import Row, quoted
from tidelog.outbox.errors import DatabaseUnavailableError, OutboxError
from tidelog.outbox.horizon import Observation, Writer
from tidelog.outbox.statements import CHANNEL_PREFIX, LOCK_CLASS, OutboxStatements
from tidelog.outbox.store import OutboxStore

try:
    import psycopg
except ImportError as error:
    raise ImportError(
        "an outbox in PostgreSQL cannot be relayed: psycopg is missing;"
        " run: pip install 'tidelog[outbox]'"
    ) from error

_CONNECT_TIMEOUT_S: Final = 10
_LAST_ID: Final = "select coalesce(pg_sequence_last_value(%s::oid::regclass), 0)"
_SEQUENCE: Final = (
    "select format('%%I.%%I', nspname, relname), seqcache,"
    " has_sequence_privilege(seqrelid, 'select, usage') from pg_sequence"
    " join pg_class on pg_class.oid = seqrelid join pg_namespace on pg_namespace.oid = relnamespace"
    " where seqrelid = %s"
)
_WRITERS: Final = (
    "select virtualtransaction, pid from pg_locks where locktype = 'relation' and relation = %s"
    " and database = (select oid from pg_database where datname = current_database())"
    " and mode = 'RowExclusiveLock' and granted and pid is distinct from pg_backend_pid()"
)
"""An insert locks the table in this mode before it evaluates the default of `id`, and the
transaction releases the lock after its rows are visible. Updates and deletes of the application
lock it as well, and only delay the relay."""
_OLDEST_WRITER: Final = (
    "select pid, extract(epoch from clock_timestamp() - xact_start)::float8 from pg_stat_activity"
    f" where pid in (select pid from ({_WRITERS}) as writers) order by xact_start limit 1"
)
_RELAY_PID: Final = (
    "select pid from pg_locks where locktype = 'advisory' and classid = %s and objid = %s"
    " and database = (select oid from pg_database where datname = current_database()) and granted"
)


@final
class PostgresqlStore(OutboxStore):
    """A connection to PostgreSQL."""

    def __init__(self, dsn: str, statements: OutboxStatements) -> None:
        """Use a database; `dsn` is a URL, or the keywords of libpq."""
        super().__init__(statements)
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self._table_oid = 0
        self._sequence_oid = 0
        self._has_notification = False

    def open(self) -> None:
        """See `OutboxStore`."""
        with self._translated():
            self._connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=_CONNECT_TIMEOUT_S,
                application_name="tidelog outbox",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
            )
            self._connection.add_notify_handler(self._on_notify)
            # The default may be less: rows that the relay sends must be durable here.
            self._connection.execute("set synchronous_commit = on")
            self._connection.execute("set default_transaction_isolation = 'read committed'")
        name = quoted(self.statements.table)
        ((self._table_oid, sequence_oid),) = self.query(
            "select %s::regclass::oid, pg_get_serial_sequence(%s, 'id')::regclass::oid",
            [name, name],
        )
        if sequence_oid is None:
            raise OutboxError(
                f"table {self.statements.table!r} is no outbox: its column id is no identity;"
                f" {self.statements.advice}"
            )
        self._sequence_oid = sequence_oid
        ((sequence, cached_count, is_readable),) = self.query(_SEQUENCE, [sequence_oid])
        if not is_readable:  # From PostgreSQL 17 on, its last value would be null.
            raise OutboxError(
                f"the outbox {self.statements.table!r} cannot be used: permission denied for"
                f" sequence {sequence}; docs/howto/outbox.md lists the rights that a relay needs"
            )
        if cached_count != 1:
            raise OutboxError(
                f"the outbox {self.statements.table!r} cannot be relayed: sessions cache"
                f" {cached_count} ids of {sequence}, and rows with lower ids appear at any time;"
                f" run: alter sequence {sequence} cache 1"
            )
        self.change(f'listen "{CHANNEL_PREFIX}{self._table_oid}"', [])

    def close(self) -> None:
        """See `OutboxStore`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """See `OutboxStore`. The server may not answer, so this ends the connection."""
        descriptor = self.fileno()
        if descriptor is not None:
            with suppress(OSError), socket(fileno=os.dup(descriptor)) as shared:
                shared.shutdown(SHUT_RDWR)

    def query(self, query: str, parameters: Sequence[object] = ()) -> Sequence[Row]:
        """See `OutboxStore`."""
        with self._translated():
            return (
                self._open_connection().execute(query.encode(), parameters, binary=True).fetchall()
            )

    def change(self, statement: str, parameters: Sequence[object]) -> int:
        """See `OutboxStore`. The commit makes all earlier commits durable as well."""
        with self._translated():
            return self._open_connection().execute(statement.encode(), parameters).rowcount

    def try_lock(self) -> bool:
        """See `OutboxStore`."""
        ((is_locked,),) = self.query(
            "select pg_try_advisory_lock(%s::int, (%s::int8 - (%s::int8 >> 31 << 32))::int)",
            [LOCK_CLASS, self._table_oid, self._table_oid],
        )
        return bool(is_locked)

    def relay_pid(self) -> int | None:
        """See `OutboxStore`."""
        found = self.query(_RELAY_PID, [LOCK_CLASS, self._table_oid])
        return found[0][0] if found else None

    def last_id(self) -> int:
        """See `OutboxStore`."""
        ((last_id,),) = self.query(_LAST_ID, [self._sequence_oid])
        return int(last_id)

    def observe(self) -> Observation:
        """See `OutboxStore`."""
        last_id = self.last_id()
        writers = self.query(_WRITERS, [self._table_oid])
        return Observation(last_id, frozenset(Writer(*found) for found in writers))

    def oldest_writer(self) -> tuple[int, float] | None:
        """See `OutboxStore`."""
        found = self.query(_OLDEST_WRITER, [self._table_oid])
        return (found[0][0], found[0][1]) if found else None

    def fileno(self) -> int | None:
        """See `OutboxStore`: the socket of the connection."""
        connection = self._connection
        return None if connection is None or connection.closed else connection.fileno()

    def take_wakeup(self) -> bool:
        """See `OutboxStore`."""
        found, self._has_notification = self._has_notification, False
        return found

    def _on_notify(self, notification: psycopg.Notify) -> None:
        del notification
        self._has_notification = True

    def _open_connection(self) -> "psycopg.Connection[Any]":
        if self._connection is None:
            raise DatabaseUnavailableError("the connection to the database is closed")
        return self._connection

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Translate the errors of the driver."""
        table = self.statements.table
        try:
            yield
        except psycopg.errors.UndefinedTable as error:
            raise OutboxError(
                f"the outbox {table!r} does not exist in this database; {self.statements.advice}"
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseUnavailableError(
                f"the database cannot be used: {_one_line(error)}; check the DSN and the server"
            ) from error
        except psycopg.Error as error:
            raise OutboxError(
                f"the outbox {table!r} cannot be used: {_one_line(error)}; docs/howto/outbox.md"
                " lists the rights that a relay needs"
            ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
