"""Outbox in SQLite.

Shell: owns one connection, in autocommit mode, and a lock file beside the database. SQLite has one
writer at a time, which gets its ids and commits before the next one: no row appears late.
"""

import fcntl
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from tidelog.database.dialect import Row, quoted
from tidelog.outbox.errors import DatabaseUnavailableError, OutboxError
from tidelog.outbox.horizon import Observation
from tidelog.outbox.statements import OutboxStatements
from tidelog.outbox.store import OutboxStore

_PREFIX: Final = "sqlite:///"
_BUSY_S: Final = 10.0
"""Seconds for which a statement waits for the writer of the moment."""


class SqliteStore(OutboxStore):
    """A connection to a file of SQLite."""

    def __init__(self, dsn: str, statements: OutboxStatements) -> None:
        """Use a file: its path, perhaps after `sqlite:///`."""
        super().__init__(statements)
        self._path = dsn.removeprefix(_PREFIX)
        self._connection: sqlite3.Connection | None = None
        self._lock: IO[bytes] | None = None

    def open(self) -> None:
        """See `OutboxStore`. The file must exist."""
        with self._translated():
            self._connection = sqlite3.connect(
                f"file:{quote(self._path)}?mode=rw",
                uri=True,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,  # worker threads use it one after the other
            )
            # The default may be less: rows that the relay sends must be durable here.
            self._connection.execute("pragma synchronous = full")
        self.query(f"select id from {quoted(self.statements.table)} limit 1")

    def close(self) -> None:
        """See `OutboxStore`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def interrupt(self) -> None:
        """See `OutboxStore`."""
        if self._connection is not None:
            self._connection.interrupt()

    def query(self, query: str, parameters: Sequence[object] = ()) -> Sequence[Row]:
        """See `OutboxStore`."""
        with self._translated():
            return self._open_connection().execute(query, parameters).fetchall()

    def change(self, statement: str, parameters: Sequence[object]) -> int:
        """See `OutboxStore`."""
        with self._translated():
            return self._open_connection().execute(statement, parameters).rowcount

    def try_lock(self) -> bool:
        """See `OutboxStore`. The end of the process unlocks the file `DATABASE.TABLE.relay`."""
        path = Path(f"{self._path}.{self.statements.table}.relay")
        try:
            lock = path.open("ab")
        except OSError as error:
            raise OutboxError(
                f"the lock of the relay cannot be opened: {path}: {error.strerror}; let the relay"
                " write to this directory"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def relay_pid(self) -> int | None:
        """Return `None`: the lock does not name its process."""
        return None

    def last_id(self) -> int:
        """See `OutboxStore`."""
        found = self.query(
            "select seq from sqlite_sequence where name = ? collate nocase",
            [self.statements.table],
        )
        return found[0][0] if found else 0

    def observe(self) -> Observation:
        """See `OutboxStore`. The ids of an open transaction are not given yet."""
        return Observation(self.last_id(), frozenset())

    def oldest_writer(self) -> tuple[int, float] | None:
        """Return `None`: SQLite does not name the writer."""
        return None

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise DatabaseUnavailableError("the connection to the database is closed")
        return self._connection

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Translate the errors of the driver."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise OutboxError(
                    f"the outbox {self.statements.table!r} does not exist in {self._path};"
                    f" {self.statements.advice}"
                ) from error
            raise DatabaseUnavailableError(
                f"the database {self._path} cannot be used: {error}; check the path"
            ) from error
        except sqlite3.Error as error:
            raise OutboxError(
                f"the database {self._path} cannot be used: {error}; is it a file of SQLite?"
            ) from error
