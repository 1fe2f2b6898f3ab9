"""Commands about transactions: begin, commit, abort, expire, finish.

Pure: no clock, no I/O. Each function takes the state and a command, and returns the outcome. A
commit is one command, so it is refused as a whole or decided as a whole. Only `ExpireTransactions`
expires a transaction. It is a command like any other: either it comes first, or the commit.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.coordinator.metadata.catalog import (
    TOPIC_ID_SIZE,
    Topic,
    TopicCreated,
    check_not_audit,
    staging_name,
)
from tidelog.coordinator.metadata.commands import (
    AbortTransaction,
    BeginTransaction,
    CommandOutcome,
    CommitTransaction,
    Done,
    ExpireTransactions,
    FinishedPart,
    FinishParts,
    ForgetTransactionNames,
    ForgottenNames,
    TransactionAnswer,
    TransactionCommand,
)
from tidelog.coordinator.metadata.internal_topics import colocated_partitions, staging_overrides
from tidelog.coordinator.metadata.records import PartitionsAdded, Record
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.transactions import (
    UNBOUND,
    OpenTransaction,
    PartsAppended,
    TransactionBegun,
    TransactionCommitted,
    TransactionName,
    TransactionNamesForgotten,
    TransactionProlonged,
    Transactions,
    TransactionsDropped,
)
from tidelog.wire.errors import (
    InvalidRequestError,
    OverloadedError,
    StaleTransactionError,
    TransactionGoneError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tidelog.wire.messages.transactions import (
    NAMES_MAX,
    NameForgotten,
    StagedPart,
    TransactionStatus,
)

REMEMBERED_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long the last transaction of a name is remembered after its last use."""
RETIRED_MS: Final = 10 * 60 * 1000
"""The same for a name whose last transaction is known to be the last one: twice as long as any
client repeats its commit."""
UNUSED_MS_MIN: Final = RETIRED_MS
"""Shortest time without a use after which a command may forget a name, for the same reason."""
NEXT_MS: Final = 60 * 1000
"""How long a transaction stays open that a commit has begun, unless a request names it."""
NEXT_MAX: Final = 1000
"""Maximum number of these transactions."""
OPEN_MAX: Final = 1000
"""Maximum number of transactions that are open, or committed and not complete."""
PIECES_MAX: Final = 50_000
"""Maximum number of pieces in one commit, over all of its partitions."""
NAME_LENGTH_MAX: Final = 200
TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 24 * 60 * 60 * 1000
TRANSACTION_ID_END: Final = 1 << 63
COMMIT_RECORDS_END: Final = 1 << 32
"""Exclusive maximum of records of one commit in one partition: they are counted in 32 bits."""
COMMIT_NUMBER_END: Final = 1 << 31
_PROLONGED_BY: Final = 8
"""The least prolongation of a transaction is an 8th of its timeout, for each costs a write."""


def handle_transaction_command(
    state: ClusterState, command: TransactionCommand, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a command about transactions.

    Raises:
        BrokerError: The command is refused.
    """
    match command:
        case BeginTransaction():
            return _begin(state, command, now_ms)
        case CommitTransaction():
            return _commit(state, command, now_ms)
        case AbortTransaction():
            return _abort(state, command)
        case ExpireTransactions():
            return expire(state, now_ms=now_ms)
        case FinishParts():
            return _finish(state, command)
        case ForgetTransactionNames():
            return _forget(state, command, now_ms)


def _begin(state: ClusterState, command: BeginTransaction, now_ms: int) -> CommandOutcome:
    _check_begin(command)
    transactions = state.transactions
    known = transactions.names.get(command.name)
    if known is not None and known.last_transaction_id == command.transaction_id:
        return CommandOutcome([], TransactionAnswer(0, transactions.status_of_last(known)))
    _check_not_stale(command.name, command.transaction_id, known)
    records = _staging_logs(state, command)
    deadline_ms = now_ms + command.timeout_ms
    opened = None if known is None else known.open
    if known is not None and opened is not None and opened.is_unbound:
        if command.number == opened.number or _is_next(known, command.transaction_id):
            left_ms = opened.deadline_ms - now_ms
            if left_ms >= NEXT_MS // 2:
                answer = TransactionAnswer(opened.number, TransactionStatus.OPEN, left_ms)
                return CommandOutcome(records, answer)
            bound = OpenTransaction(command.transaction_id, opened.number, now_ms, deadline_ms)
            records.append(TransactionBegun(command.name, bound))
            answer = TransactionAnswer(opened.number, TransactionStatus.OPEN)
            return CommandOutcome(records, answer)
    elif opened is not None and opened.transaction_id == command.transaction_id:
        if deadline_ms - opened.deadline_ms >= command.timeout_ms // _PROLONGED_BY:
            records.append(TransactionProlonged(command.name, deadline_ms))
        return CommandOutcome(records, TransactionAnswer(opened.number, TransactionStatus.OPEN))
    _check_room(state, known)
    opened = OpenTransaction(command.transaction_id, transactions.next_number, now_ms, deadline_ms)
    records.append(TransactionBegun(command.name, opened))
    return CommandOutcome(records, TransactionAnswer(opened.number, TransactionStatus.OPEN))


def _is_next(known: TransactionName, transaction_id: int) -> bool:
    """Return whether no id lies between the last committed one and this one.

    Then a client may use an unbound transaction without a record: there is no lower id that the
    cluster would have to reject from then on.
    """
    last_id = known.last_transaction_id
    return last_id is not None and transaction_id == last_id + 1


def _check_begin(command: BeginTransaction) -> None:
    if not 1 <= len(command.name) <= NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"the name of a transaction has 1 to {NAME_LENGTH_MAX} characters, not"
            f" {len(command.name)}"
        )
    if not 0 <= command.transaction_id < TRANSACTION_ID_END:
        raise InvalidRequestError(
            f"transaction id {command.transaction_id} is not one of 0 to 2^63 - 1"
        )
    if not TIMEOUT_MS_MIN <= command.timeout_ms <= TIMEOUT_MS_MAX:
        raise InvalidRequestError(
            f"a transaction can be kept for 1 s to 24 h, not for {command.timeout_ms} ms"
        )
    if len(command.staging_ids) != len(command.topics):
        raise InvalidRequestError("a transaction must have one staging log id for each topic")


def _check_not_stale(name: str, transaction_id: int, known: TransactionName | None) -> None:
    if known is None:
        return
    if known.last_transaction_id is not None and transaction_id < known.last_transaction_id:
        raise StaleTransactionError(
            f"transaction {transaction_id} of {name!r} is below"
            f" {known.last_transaction_id}, which was committed"
            " last; transaction ids grow"
        )
    if known.open is not None and transaction_id < known.open.transaction_id:
        raise StaleTransactionError(
            f"transaction {known.open.transaction_id} of {name!r} is open, which is above"
            f" transaction {transaction_id}; transaction ids grow"
        )


def _check_room(state: ClusterState, known: TransactionName | None) -> None:
    transactions = state.transactions
    if transactions.begun_count + transactions.pending_count >= OPEN_MAX:
        raise OverloadedError(f"{OPEN_MAX} transactions are open or not done; commit or abort some")
    if known is None and len(transactions.names) >= NAMES_MAX:
        raise OverloadedError(
            f"{NAMES_MAX} names of transactions are remembered; use names again, or wait until"
            " some are forgotten, 7 days after their last use, or forget names that no program uses"
            " again: tidelog transaction forget"
        )


def _staging_logs(state: ClusterState, command: BeginTransaction) -> list[Record]:
    """Return the records that create the missing staging logs of topics."""
    records: list[Record] = []
    for name, staging_id in dict(zip(command.topics, command.staging_ids, strict=True)).items():
        check_not_audit(name, "takes no staged records")
        topic = state.catalog.topic(name)
        if state.catalog.staging_of(topic.topic_id) is not None:
            continue
        if len(staging_id) != TOPIC_ID_SIZE or state.catalog.knows(staging_id):
            raise InvalidRequestError("the id of a staging log must be new, and 16 bytes long")
        records += [
            TopicCreated(
                staging_name(name),
                staging_id,
                topic.partition_count,
                staging_overrides(topic.overrides),
                staging_of=topic.topic_id,
            ),
            PartitionsAdded(staging_id, colocated_partitions(state, topic)),
        ]
    return records


def _commit(state: ClusterState, command: CommitTransaction, now_ms: int) -> CommandOutcome:
    transactions = state.transactions
    known = transactions.names.get(command.name)
    if known is not None and known.last_transaction_id == command.transaction_id:
        return CommandOutcome([], TransactionAnswer(0, transactions.status_of_last(known)))
    _check_not_stale(command.name, command.transaction_id, known)
    opened = None if known is None else known.open
    if (
        opened is None
        or opened.number != command.number
        or not (opened.is_unbound or opened.transaction_id == command.transaction_id)
    ):
        raise TransactionGoneError(
            f"transaction {command.transaction_id} of {command.name!r} is not open under number"
            f" {command.number} (any more): it was aborted, or its timeout passed without a"
            " keep-alive; begin and stage again. Nothing of it was or will be committed"
        )
    _check_parts(state, command.parts)
    if transactions.next_commit >= COMMIT_NUMBER_END:
        raise OverloadedError("the cluster has no commit numbers left")
    return _committed(state, command, opened, now_ms=now_ms)


def _committed(
    state: ClusterState, command: CommitTransaction, opened: OpenTransaction, *, now_ms: int
) -> CommandOutcome:
    """Return the outcome of a commit that is accepted."""
    transactions = state.transactions
    following: OpenTransaction | None = None
    has_new_records = state.feature_level >= TransactionCommitted.NEW_LEVEL
    if command.begins_next and has_new_records and transactions.unbound_count < NEXT_MAX:
        number = transactions.next_number
        following = OpenTransaction(UNBOUND, number, now_ms, now_ms + NEXT_MS)
    records: list[Record] = []
    if command.finished is not None:
        records += _finish(state, command.finished).records
    records.append(
        TransactionCommitted(
            command.name,
            transactions.next_commit,
            command.parts,
            now_ms,
            transaction_id=command.transaction_id if opened.is_unbound else None,
            next=following,
            is_last=command.is_last and has_new_records,
        )
    )
    status = TransactionStatus.COMMITTED if command.parts else TransactionStatus.COMPLETE
    answer = TransactionAnswer(opened.number, status)
    if following is not None:
        answer = TransactionAnswer(opened.number, status, NEXT_MS, following.number)
    return CommandOutcome(records, answer)


def _check_parts(state: ClusterState, parts: Sequence[StagedPart]) -> None:
    """Check that all parts of a commit can be appended.

    Raises:
        BrokerError: A part cannot.
    """
    keys = [(part.topic_id, part.partition) for part in parts]
    if len(set(keys)) != len(keys):
        raise InvalidRequestError("a partition is named twice in one commit")
    if sum(len(part.pieces) for part in parts) > PIECES_MAX:
        raise InvalidRequestError(
            f"a commit of more than {PIECES_MAX} pieces; use fewer tasks, or fewer partitions"
        )
    for part in parts:
        topic = state.catalog.topic_by_id(part.topic_id)
        if topic is None or topic.is_internal:
            raise UnknownTopicError(
                f"no topic has the id {part.topic_id.hex()} (any more); nothing was committed"
            )
        _check_part(state, topic, part)


def _check_part(state: ClusterState, topic: Topic, part: StagedPart) -> None:
    if not 0 <= part.partition < topic.partition_count:
        raise UnknownPartitionError(f"topic {topic.name!r} has no partition {part.partition}")
    if state.catalog.staging_of(topic.topic_id) is None:
        raise InvalidRequestError(f"topic {topic.name!r} has no staging log")
    producers = {piece.producer_id for piece in part.pieces}
    if len(producers) != len(part.pieces) or 0 in producers:
        raise InvalidRequestError("each piece of a partition must have another producer")
    for piece in part.pieces:
        span = piece.end_offset - piece.first_offset
        if piece.first_offset < 0 or not 0 < piece.record_count <= span:
            raise InvalidRequestError(
                f"{piece.record_count} records cannot lie from offset {piece.first_offset} to"
                f" {piece.end_offset}"
            )
    if sum(piece.record_count for piece in part.pieces) >= COMMIT_RECORDS_END:
        raise InvalidRequestError("a commit of 2^32 records in one partition or more")


def _abort(state: ClusterState, command: AbortTransaction) -> CommandOutcome:
    transactions = state.transactions
    known = transactions.names.get(command.name)
    if known is None:
        return CommandOutcome([], TransactionAnswer(0, TransactionStatus.OPEN))
    if known.last_transaction_id == command.transaction_id:
        return CommandOutcome([], TransactionAnswer(0, transactions.status_of_last(known)))
    opened = known.open
    is_lower = (known.last_transaction_id or 0) > command.transaction_id
    is_meant = (
        opened is not None
        and (
            opened.transaction_id == command.transaction_id or (opened.is_unbound and not is_lower)
        )
        and command.number in {0, opened.number}
    )
    records: list[Record] = [TransactionsDropped([command.name])] if is_meant else []
    return CommandOutcome(records, TransactionAnswer(0, TransactionStatus.OPEN))


def expire(state: ClusterState, *, now_ms: int) -> CommandOutcome:
    """Return the outcome of passed timeouts."""
    expired, forgotten = state.transactions.due(
        now_ms=now_ms, remembered_ms=REMEMBERED_MS, retired_ms=RETIRED_MS
    )
    records: list[Record] = []
    if expired:
        records.append(TransactionsDropped(expired))
    if forgotten:
        records.append(TransactionNamesForgotten(forgotten))
    return CommandOutcome(records, Done())


def _forget(state: ClusterState, command: ForgetTransactionNames, now_ms: int) -> CommandOutcome:
    """Delete the state of names that are not in use."""
    if command.unused_for_ms < UNUSED_MS_MIN:
        raise InvalidRequestError(
            f"a name can be forgotten {UNUSED_MS_MIN // 60_000} min after its last use, not"
            f" {command.unused_for_ms} ms after: a client may still repeat its commit"
        )
    transactions = state.transactions
    results: list[NameForgotten] = []
    forgotten: dict[str, None] = {}
    for name in command.names:
        known = transactions.names.get(name)
        if known is None:
            results.append(NameForgotten())
            continue
        why = _why_in_use(transactions, known, used_since_ms=now_ms - command.unused_for_ms)
        if why:
            error = InvalidRequestError(f"transaction name {name!r} is kept: {why}")
            results.append(NameForgotten(error.to_wire()))
            continue
        results.append(NameForgotten())
        forgotten[name] = None
    records: list[Record] = [TransactionNamesForgotten(list(forgotten))] if forgotten else []
    return CommandOutcome(records, ForgottenNames(results))


def _why_in_use(transactions: Transactions, known: TransactionName, *, used_since_ms: int) -> str:
    """Return why a name may be in use; empty if it is not.

    Tasks may stage for an unbound transaction without a record that says so.
    """
    if known.open is not None and known.open.is_unbound:
        return "a commit of the last minute has begun its next transaction; try again later"
    if known.open is not None:
        return (
            f"its transaction {known.open.transaction_id} is open; end the program, and abort the"
            " transaction or wait until it expires"
        )
    if transactions.parts_left(known.last_commit):
        return "records of its last transaction are not appended yet; try again"
    if known.last_used_ms > used_since_ms:
        return (
            "it was used within the time that it must be unused; if no program uses it again,"
            " lower that time"
        )
    return ""


def _finish(state: ClusterState, command: FinishParts) -> CommandOutcome:
    """Finish parts that are readable; only the leader of a partition may report a part as lost."""
    parts = [
        finished.part
        for finished in command.parts
        if state.transactions.is_pending(
            finished.part.commit_number, (finished.part.topic_id, finished.part.partition)
        )
        and (not finished.part.is_lost or _is_led(state, command.node_id, finished))
    ]
    return CommandOutcome([PartsAppended(parts)] if parts else [], Done())


def _is_led(state: ClusterState, node_id: int, finished: FinishedPart) -> bool:
    partition = state.partition(finished.part.topic_id, finished.part.partition)
    return partition is not None and (partition.leader, partition.leader_epoch) == (
        node_id,
        finished.leader_epoch,
    )
