"""The state of transactions: open ones, and committed ones with parts that are not appended yet.

Pure: no clock, no I/O. `apply` is the only change. The records are here as well. Staged records are
in staging logs, beside the partitions that they are for; this state has only their positions.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, final, get_args

import msgspec

from tidelog.wire.messages.transactions import StagedPart, StagedPiece, TransactionStatus

Key = tuple[bytes, int]
"""Topic id and number of a partition of records."""
UNBOUND: Final = -1
"""Id of an open transaction that a commit has begun, until its commit or a keep-alive names it."""


class OpenTransaction(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that accepts staged records."""

    transaction_id: int
    """`UNBOUND` for any id above the last committed one."""
    number: int
    begun_at_ms: int
    deadline_ms: int
    """Time at which it expires, unless it is aborted or replaced earlier."""

    @property
    def is_unbound(self) -> bool:
        """Whether no request has named its id."""
        return self.transaction_id == UNBOUND


class TransactionName(msgspec.Struct, frozen=True, array_like=True):
    """The state of one transaction name."""

    name: str
    last_used_ms: int
    open: OpenTransaction | None = None
    last_transaction_id: int | None = None
    """The highest committed transaction id."""
    last_commit: int = 0
    """Number of the last commit among all commits."""
    is_lost: bool = False
    """Whether some staged records of the last commit were missing when they were to be appended."""
    is_retired: bool = False
    """Whether the last commit said that no transaction of this name follows."""


class TransactionBegun(msgspec.Struct, frozen=True, array_like=True, tag="transaction-begun"):
    """A transaction is open; an earlier open transaction of this name is closed."""

    name: str
    opened: OpenTransaction


class TransactionProlonged(
    msgspec.Struct, frozen=True, array_like=True, tag="transaction-prolonged"
):
    """The open transaction of a name stays open for longer."""

    name: str
    deadline_ms: int


class TransactionCommitted(
    msgspec.Struct, frozen=True, array_like=True, tag="transaction-committed"
):
    """The open transaction of a name is committed, with these parts to append."""

    name: str
    commit_number: int
    parts: list[StagedPart]
    committed_at_ms: int
    transaction_id: int | None = None
    """Id of the transaction, if it was unbound."""
    next: OpenTransaction | None = None
    """The transaction of the name that is open from now on, unbound."""
    is_last: bool = False
    """Whether no transaction of this name follows, so that the name is soon forgotten."""

    NEW_LEVEL: ClassVar[int] = 5
    """Feature level of the fields behind the time."""

    @property
    def level(self) -> int:
        """Lowest feature level of a cluster that may write it."""
        is_new = self.transaction_id is not None or self.next is not None or self.is_last
        return self.NEW_LEVEL if is_new else 0


class TransactionsDropped(msgspec.Struct, frozen=True, array_like=True, tag="transactions-dropped"):
    """The open transactions of these names are aborted or expired."""

    names: list[str]


class AppendedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a commit that is readable, or lost."""

    commit_number: int
    topic_id: bytes
    partition: int
    is_lost: bool = False


class PartsAppended(msgspec.Struct, frozen=True, array_like=True, tag="parts-appended"):
    """Parts of commits are appended or lost."""

    parts: list[AppendedPart]


class TransactionNamesForgotten(
    msgspec.Struct, frozen=True, array_like=True, tag="transaction-names-forgotten"
):
    """The state of these names is deleted."""

    names: list[str]


TransactionRecord = (
    TransactionBegun
    | TransactionProlonged
    | TransactionCommitted
    | TransactionsDropped
    | PartsAppended
    | TransactionNamesForgotten
)
TRANSACTION_RECORDS: Final = frozenset(get_args(TransactionRecord))
"""Types of these records."""


class PendingCommit(msgspec.Struct, frozen=True, array_like=True):
    """A commit with parts that are not appended yet."""

    commit_number: int
    transaction_number: int
    name: str
    parts: list[StagedPart]
    """The parts that are not appended yet."""


class TransactionsSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of transactions."""

    next_number: int = 1
    next_commit: int = 1
    names: list[TransactionName] = []
    pending: list[PendingCommit] = []


class _Pending(msgspec.Struct):
    transaction_number: int
    name: str
    parts: dict[Key, StagedPart]


@final
class Transactions:
    """The state that the records of transactions add up to.

    Invariant: `_parts` has for each partition the parts of pending commits to append there, in the
    order of the commits; a pending commit has at least one part.
    """

    def __init__(self, snapshot: TransactionsSnapshot | None = None) -> None:
        """Start from a snapshot, or empty."""
        snapshot = snapshot or TransactionsSnapshot()
        self.next_number = snapshot.next_number
        """The number of the next transaction."""
        self.next_commit = snapshot.next_commit
        self._names = {each.name: each for each in snapshot.names}
        """By name; least recently used first."""
        self._open: dict[int, str] = {}
        self._unbound: set[int] = set()
        self._retired: dict[str, None] = {}
        """Retired names; least recently used first."""
        for each in snapshot.names:
            self._opened(each.name, each.open)
            if each.is_retired:
                self._retired[each.name] = None
        self._pending: dict[int, _Pending] = {}
        self._parts: dict[Key, dict[int, Sequence[StagedPiece]]] = {}
        for pending in snapshot.pending:
            self._add(
                pending.commit_number, pending.transaction_number, pending.name, parts=pending.parts
            )

    def snapshot(self) -> TransactionsSnapshot:
        """Return the whole state."""
        return TransactionsSnapshot(
            self.next_number,
            self.next_commit,
            list(self._names.values()),
            [
                PendingCommit(number, each.transaction_number, each.name, list(each.parts.values()))
                for number, each in self._pending.items()
            ],
        )

    @property
    def names(self) -> Mapping[str, TransactionName]:
        """The known names."""
        return MappingProxyType(self._names)

    @property
    def open_numbers(self) -> Collection[int]:
        """Numbers of the transactions that accept staged records."""
        return self._open.keys()

    @property
    def begun_count(self) -> int:
        """Number of open transactions that a client has begun."""
        return len(self._open) - len(self._unbound)

    @property
    def unbound_count(self) -> int:
        """Number of open transactions that a commit has begun, and that no request has named."""
        return len(self._unbound)

    def name_of(self, number: int) -> str | None:
        """Return the name of an open transaction; `None` if it is not open."""
        return self._open.get(number)

    def oldest_begun_ms(self) -> int | None:
        """Return the begin of the oldest open transaction in Unix milliseconds."""
        opened = (
            self._names[name].open
            for number, name in self._open.items()
            if number not in self._unbound
        )
        return min((each.begun_at_ms for each in opened if each is not None), default=None)

    @property
    def pending_count(self) -> int:
        """Number of commits with parts that are not appended yet."""
        return len(self._pending)

    def needed_numbers(self) -> set[int]:
        """Return the transactions that are open, or committed and not complete."""
        return {*self._open, *(each.transaction_number for each in self._pending.values())}

    def parts_of(self, key: Key) -> Mapping[int, Sequence[StagedPiece]]:
        """Return the parts to append to a partition, by commit number, in order."""
        return MappingProxyType(self._parts.get(key, {}))

    def parts_left(self, commit_number: int) -> Collection[Key]:
        """Return the partitions with records of a commit that are not known to be appended."""
        pending = self._pending.get(commit_number)
        return () if pending is None else pending.parts.keys()

    def keys_with_parts(self) -> list[Key]:
        """Return the partitions with parts to append."""
        return list(self._parts)

    def is_pending(self, commit_number: int, key: Key) -> bool:
        """Return whether a part of a commit is not appended yet."""
        return commit_number in self._parts.get(key, ())

    def status_of_last(self, known: TransactionName) -> TransactionStatus:
        """Return the status of the last committed transaction of a name."""
        if known.last_commit in self._pending:
            return TransactionStatus.COMMITTED
        return TransactionStatus.LOST if known.is_lost else TransactionStatus.COMPLETE

    def due(
        self, *, now_ms: int, remembered_ms: int, retired_ms: int
    ) -> tuple[list[str], list[str]]:
        """Return the names with an expired open transaction, and the names to forget.

        Args:
            now_ms: Time now.
            remembered_ms: How long a name is remembered after its last use.
            retired_ms: The same of a retired name.
        """
        expired = [
            name
            for name in self._open.values()
            if (opened := self._names[name].open) is not None and opened.deadline_ms <= now_ms
        ]
        forgotten: dict[str, None] = {}
        for names, kept_ms in ((self._retired, retired_ms), (self._names, remembered_ms)):
            for name in names:
                known = self._names[name]
                if known.last_used_ms + kept_ms > now_ms:
                    break
                if known.open is None and known.last_commit not in self._pending:
                    forgotten[name] = None
        return expired, list(forgotten)

    def apply(self, record: TransactionRecord) -> None:
        """Apply a record; with `topic_deleted` the only way in which the state changes."""
        match record:
            case TransactionBegun():
                self._begin(record)
            case TransactionProlonged():
                known = self._names[record.name]
                assert known.open is not None, "it was open when this was decided"
                longer = msgspec.structs.replace(known.open, deadline_ms=record.deadline_ms)
                self._names[record.name] = msgspec.structs.replace(known, open=longer)
            case TransactionCommitted():
                self._commit(record)
            case TransactionsDropped():
                for name in record.names:
                    self._drop(name)
            case PartsAppended():
                for part in record.parts:
                    self._done(part.commit_number, (part.topic_id, part.partition), part.is_lost)
            case TransactionNamesForgotten():
                for name in record.names:
                    del self._names[name]
                    self._retired.pop(name, None)

    def topic_deleted(self, topic_id: bytes, partition_count: int) -> None:
        """Drop the parts for a deleted topic: nothing can be appended to it."""
        for number in range(partition_count):
            key = (topic_id, number)
            for commit_number in list(self._parts.get(key, ())):
                self._done(commit_number, key, is_lost=False)

    def _begin(self, record: TransactionBegun) -> None:
        opened = record.opened
        known = self._names.pop(record.name, None)
        known = known or TransactionName(record.name, opened.begun_at_ms)
        self._closed(known.open)
        self._names[record.name] = msgspec.structs.replace(
            known, open=opened, last_used_ms=opened.begun_at_ms
        )
        if known.is_retired:
            self._retired[record.name] = self._retired.pop(record.name)
        self._opened(record.name, opened)

    def _commit(self, record: TransactionCommitted) -> None:
        known = self._names.pop(record.name)
        assert known.open is not None, "it was open when this was decided"
        self._closed(known.open)
        transaction_id = record.transaction_id
        self._names[record.name] = TransactionName(
            record.name,
            record.committed_at_ms,
            open=record.next,
            last_transaction_id=(
                known.open.transaction_id if transaction_id is None else transaction_id
            ),
            last_commit=record.commit_number,
            is_retired=record.is_last,
        )
        self._retired.pop(record.name, None)
        if record.is_last:
            self._retired[record.name] = None
        self._opened(record.name, record.next)
        self._add(record.commit_number, known.open.number, record.name, parts=record.parts)
        self.next_commit = record.commit_number + 1

    def _opened(self, name: str, opened: OpenTransaction | None) -> None:
        if opened is not None:
            self._open[opened.number] = name
            if opened.is_unbound:
                self._unbound.add(opened.number)
            self.next_number = max(self.next_number, opened.number + 1)

    def _closed(self, opened: OpenTransaction | None) -> None:
        if opened is not None:
            del self._open[opened.number]
            self._unbound.discard(opened.number)

    def _add(
        self, commit_number: int, number: int, name: str, *, parts: Sequence[StagedPart]
    ) -> None:
        if not parts:
            return
        by_key = {(part.topic_id, part.partition): part for part in parts}
        self._pending[commit_number] = _Pending(number, name, by_key)
        for key, part in by_key.items():
            self._parts.setdefault(key, {})[commit_number] = part.pieces

    def _drop(self, name: str) -> None:
        known = self._names[name]
        assert known.open is not None, "it was open when this was decided"
        self._closed(known.open)
        if known.last_transaction_id is None:
            del self._names[name]  # Without a commit there is nothing to remember.
        else:
            self._names[name] = msgspec.structs.replace(known, open=None)

    def _done(self, commit_number: int, key: Key, is_lost: bool) -> None:
        if not self.is_pending(commit_number, key):
            return
        pending = self._pending[commit_number]
        del pending.parts[key], self._parts[key][commit_number]
        if not self._parts[key]:
            del self._parts[key]
        known = self._names.get(pending.name)
        if is_lost and known is not None and known.last_commit == commit_number:
            self._names[pending.name] = msgspec.structs.replace(known, is_lost=True)
        if not pending.parts:
            del self._pending[commit_number]
