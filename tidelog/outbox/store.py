"""Store of an outbox: the table, the position of its relay, and the lock of the relay.

Shell: its calls block, in worker threads and one at a time. They raise `DatabaseUnavailableError`
if they may be repeated with a new connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.database.dialect import Row
from tidelog.outbox.errors import OutboxError, RelaySupersededError
from tidelog.outbox.horizon import Observation
from tidelog.outbox.position import Position
from tidelog.outbox.rows import OutboxRow
from tidelog.outbox.statements import OutboxStatements


class BatchLimits(NamedTuple):
    """How much one batch may have."""

    records: int
    size_bytes: int
    """Bytes of keys, values and headers after which a batch has no further row."""


class OutboxStatus(NamedTuple):
    """State of an outbox."""

    name: str
    """Name of its transactions in the cluster (`tidelog transaction list`)."""
    backlog: int
    """Visible rows that are not in the log, or not known to be."""
    oldest_age_s: float | None
    """Seconds since the insert of the first of them; `None` without a backlog."""
    last_id: int
    """The last id that was given to any row."""
    relayed_id: int
    """All rows up to this id are in the log."""
    pending_id: int | None
    """Last row of the batch under way; `None` without one."""
    relay_pid: int | None
    """Server process of the relay in PostgreSQL; `None` if no relay runs, or it is unknown."""
    writer_pid: int | None
    """Server process of the oldest open transaction that wrote to the table; `None` without."""
    writer_age_s: float | None
    """Seconds since that transaction began."""


class OutboxStore(ABC):
    """A connection to the database of an outbox."""

    def __init__(self, statements: OutboxStatements) -> None:
        """Use the tables of these statements."""
        self.statements = statements

    @abstractmethod
    def open(self) -> None:
        """Connect, and check that the tables exist.

        Raises:
            DatabaseUnavailableError: The database cannot be reached; the text says why.
            OutboxError: The tables do not exist, or the user has no right to them.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection, which ends the lock. Closing twice is allowed."""

    @abstractmethod
    def interrupt(self) -> None:
        """Let the call that another thread makes fail soon; the connection is of no further use."""

    @abstractmethod
    def query(self, query: str, parameters: Sequence[object] = ()) -> Sequence[Row]:
        """Return the rows of a query, which sees everything that was committed before it."""

    @abstractmethod
    def change(self, statement: str, parameters: Sequence[object]) -> int:
        """Execute a statement and commit it durably; return the number of changed rows."""

    @abstractmethod
    def try_lock(self) -> bool:
        """Lock the table against other relays; return whether it is locked."""

    @abstractmethod
    def relay_pid(self) -> int | None:
        """Return the server process of the relay that has the lock, `None` if unknown."""

    @abstractmethod
    def last_id(self) -> int:
        """Return the last id that was given to any row, 0 without one."""

    @abstractmethod
    def observe(self) -> Observation:
        """Return the last id, then the writers."""

    @abstractmethod
    def oldest_writer(self) -> tuple[int, float] | None:
        """Return the process of the oldest writer, and the seconds since its begin."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable after a commit; `None` if there is none."""
        return None

    def take_wakeup(self) -> bool:
        """Return whether a notification has arrived since the last call."""
        return False

    def position(self) -> Position:
        """Return the position.

        Raises:
            OutboxError: It has none.
        """
        found = self.query(self.statements.select_position())
        if not found:
            raise OutboxError(
                f"the outbox {self.statements.table!r} has no position: the table"
                f" {self.statements.table + '_relay'!r} is empty; {self.statements.advice}"
            )
        return Position(*found[0])

    def fingerprint(self, row_id: int) -> int | None:
        """Return the microseconds of the insert of a row, `None` if there is no such row."""
        found = self.query(self.statements.select_fingerprint(), [row_id])
        return found[0][0] if found else None

    def rows(self, after_id: int, end_id: int, limits: BatchLimits) -> list[OutboxRow]:
        """Return the first rows after an id and up to another one, in their order."""
        found = self.query(self.statements.select_rows(), [after_id, end_id, *limits])
        return list(map(OutboxRow._make, found))

    def save(self, old: Position, new: Position) -> None:
        """Replace the position durably. Rows that were read before are durable then as well.

        Raises:
            RelaySupersededError: It is not `old` any more.
        """
        count = self.change(
            self.statements.update_position(),
            [
                *(new.batch, new.relayed_id, new.relayed_at, new.pending_id, new.pending_at),
                *(old.uuid, old.batch, old.relayed_id),
                -1 if old.pending_id is None else old.pending_id,
            ],
        )
        if count != 1:
            raise RelaySupersededError(
                f"another relay has gone on with the outbox {self.statements.table!r}"
            )

    def reset(self, next_id: int) -> None:
        """Begin a new name; all rows below `next_id` count as relayed."""
        self.change(self.statements.reset_position(), [next_id - 1])

    def delete(self, end_id: int, *, older_than_s: float, limit: int) -> int:
        """Delete the first rows up to an id that are old enough; return their number."""
        return self.change(self.statements.delete_rows(), [end_id, limit, older_than_s])

    def status(self) -> OutboxStatus:
        """Return the state of the outbox."""
        position = self.position()
        after = position.relayed_id
        ((count, age_s),) = self.query(self.statements.select_backlog(), [after, after])
        writer = self.oldest_writer()
        return OutboxStatus(
            name=position.name,
            backlog=count,
            oldest_age_s=None if age_s is None else max(float(age_s), 0.0),
            last_id=self.last_id(),
            relayed_id=position.relayed_id,
            pending_id=position.pending_id,
            relay_pid=self.relay_pid(),
            writer_pid=None if writer is None else writer[0],
            writer_age_s=None if writer is None else writer[1],
        )
