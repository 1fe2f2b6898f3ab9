"""Position of a relay: which rows are in the log, and which batch is under way.

Pure: no clock, no I/O. The position is one row of the database. A batch is a number with a range
of row ids. The relay writes it down before it sends the rows as the transaction of that number. So
each attempt at the batch, by any relay, sends the same rows, and the cluster commits one of them.
The cluster remembers the last number as well, for 7 days. If both contradict each other, the
database or the cluster is not the one that it was, and the relay refuses to guess.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

from tidelog.outbox.errors import RelayPositionError

_REMEDY: Final = "check the DSN and the broker; then choose with: tidelog outbox reset"


@dataclass(frozen=True, slots=True)
class Position:
    """The row of the position table."""

    uuid: str
    """Identity of the table: drawn when it was created, or reset."""
    batch: int = 0
    """Number of the last batch; 0 before the first."""
    relayed_id: int = 0
    """All rows up to this id are in the log, or will never be visible."""
    relayed_at: int | None = None
    """Time of the insert of the row `relayed_id`, in microseconds, as a fingerprint."""
    pending_id: int | None = None
    """Last row of the batch; `None` if it is committed."""
    pending_at: int | None = None
    """Fingerprint of that row."""

    @property
    def name(self) -> str:
        """Name of the transactions in the cluster, and prefix of the message ids."""
        return f"outbox:{self.uuid}"

    @property
    def end_id(self) -> int:
        """The last row of all batches so far."""
        return self.relayed_id if self.pending_id is None else self.pending_id

    def committed(self) -> Self:
        """Return the position when the batch is committed."""
        if self.pending_id is None:
            return self
        return replace(
            self,
            relayed_id=self.pending_id,
            relayed_at=self.pending_at,
            pending_id=None,
            pending_at=None,
        )

    def planned(self, last_id: int, last_at: int | None) -> Self:
        """Return the position with the next batch: the rows up to `last_id`."""
        assert self.pending_id is None, "one batch is under way at a time"
        return replace(self, batch=self.batch + 1, pending_id=last_id, pending_at=last_at)


def is_committed(position: Position, last_committed: int | None) -> bool:
    """Return whether the last batch is committed in the cluster.

    Args:
        position: The position in the database.
        last_committed: The last committed transaction of the name; `None` if the cluster does not
            know the name.

    Raises:
        RelayPositionError: Both contradict each other.
    """
    batch = position.batch
    if last_committed == batch or (last_committed is None and batch == 0):
        return True
    before = batch - 1 or None
    if position.pending_id is not None and last_committed == before:
        return False
    raise RelayPositionError(
        f"the outbox cannot be relayed: {_contradiction(batch, last_committed)}; {_REMEDY}"
    )


def _contradiction(batch: int, last_committed: int | None) -> str:
    if last_committed is None:
        return (
            f"the database is at batch {batch}, and the cluster knows none: no relay ran for 7"
            " days, or this is another cluster"
        )
    if last_committed > batch:
        return (
            f"the cluster has committed batch {last_committed}, and the database is at batch"
            f" {batch}: it was restored from an older state"
        )
    return (
        f"the database is at batch {batch}, and the cluster has committed only batch"
        f" {last_committed}: it lost its metadata"
    )


def check_table(position: Position, *, last_id: int, found_at: int | None) -> None:
    """Check that the rows of the table are those that the position is about.

    Args:
        position: The position in the database.
        last_id: The last id that was given to any row.
        found_at: Fingerprint of the row `relayed_id`; `None` if it is deleted.

    Raises:
        RelayPositionError: The ids began again.
    """
    what = None
    if last_id < position.end_id:
        what = f"the last row id is {last_id}, and rows up to {position.end_id} were sent"
    elif found_at is not None and position.relayed_at not in (None, found_at):
        what = f"row {position.relayed_id} is another one than the row that was sent"
    if what is not None:
        raise RelayPositionError(
            f"the outbox cannot be relayed: its row ids began again: {what}; {_REMEDY}"
        )
