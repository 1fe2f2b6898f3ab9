"""Transactions that the commit of the one before has begun, and names without a next one."""

import pytest

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.metadata import transaction_commands
from tidelog.coordinator.metadata.commands import (
    AbortTransaction,
    BeginTransaction,
    Command,
    CommitTransaction,
    ExpireTransactions,
    FinishedPart,
    FinishParts,
    SetFeatureLevel,
    TransactionAnswer,
)
from tidelog.coordinator.metadata.records import Record
from tidelog.coordinator.metadata.transaction_commands import NEXT_MS, RETIRED_MS
from tidelog.coordinator.metadata.transactions import (
    AppendedPart,
    PartsAppended,
    TransactionBegun,
    TransactionCommitted,
)
from tidelog.wire.errors import StaleTransactionError, TransactionGoneError
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.messages.transactions import StagedPart, StagedPiece, TransactionStatus

HOUR_MS = 3_600_000


def make_cluster(level: int = TransactionCommitted.NEW_LEVEL) -> Cluster:
    cluster = Cluster()
    cluster.supported_levels = OWN_LEVELS
    cluster.start(1)
    cluster.do(SetFeatureLevel(level, []))
    return cluster


def at(cluster: Cluster, command: Command, now_ms: int) -> tuple[list[Record], object]:
    """Carry out a command at another time; return its records and its answer."""
    outcome = cluster.machine.handle(command, now_ms=now_ms)
    for record in outcome.records:
        for machine in (cluster.machine, cluster.image, cluster.follower):
            machine.apply(record)
    return outcome.records, outcome.reply


def begin(
    cluster: Cluster, transaction_id: int, *, number: int = 0, now_ms: int = NOW_MS
) -> tuple[list[Record], TransactionAnswer]:
    command = BeginTransaction("q1", transaction_id, HOUR_MS, [], [], number)
    records, answer = at(cluster, command, now_ms)
    assert isinstance(answer, TransactionAnswer)
    return records, answer


def commit(
    cluster: Cluster,
    transaction_id: int,
    number: int,
    *,
    begins_next: bool = True,
    is_last: bool = False,
    finished: FinishParts | None = None,
) -> TransactionAnswer:
    command = CommitTransaction("q1", transaction_id, number, [], begins_next, is_last, finished)
    return cluster.answer(TransactionAnswer, command)


def committed(cluster: Cluster, transaction_id: int = 17) -> int:
    """Commit a transaction; return the number of the next one."""
    answer = commit(cluster, transaction_id, begin(cluster, transaction_id)[1].number)
    assert answer.next_number
    assert answer.expires_in_ms == NEXT_MS
    return answer.next_number


def test_a_commit_begins_the_next_transaction_for_any_higher_id() -> None:
    cluster = make_cluster()
    number = committed(cluster)

    assert number in cluster.state.transactions.open_numbers
    assert cluster.state.transactions.begun_count == 0, "no client has begun it"
    after = commit(cluster, 40, number)

    known = cluster.state.transactions.names["q1"]
    assert known.last_transaction_id == 40
    assert number not in cluster.state.transactions.open_numbers
    assert after.next_number > number


def test_a_second_commit_under_the_same_number_is_refused() -> None:
    cluster = make_cluster()
    number = committed(cluster)
    commit(cluster, 18, number, begins_next=False)

    with pytest.raises(TransactionGoneError):
        commit(cluster, 19, number)
    with pytest.raises(StaleTransactionError):
        commit(cluster, 16, number)
    assert commit(cluster, 18, number).number == 0, "the same commit again"


def test_a_begin_of_the_next_id_needs_no_record() -> None:
    cluster = make_cluster()
    number = committed(cluster)

    records, answer = begin(cluster, 18)

    assert records == []
    assert answer == TransactionAnswer(number, TransactionStatus.OPEN, NEXT_MS)


def test_a_begin_of_a_later_id_fences_the_client_that_has_committed() -> None:
    """Lower ids could come between: the cluster must know the open one to reject them."""
    cluster = make_cluster()
    number = committed(cluster)

    records, answer = begin(cluster, 19)

    assert [type(record) for record in records] == [TransactionBegun]
    assert answer.number > number
    with pytest.raises(StaleTransactionError):
        commit(cluster, 18, number)
    with pytest.raises(TransactionGoneError):
        commit(cluster, 19, number)


@pytest.mark.parametrize("transaction_id", [18, 30])
def test_a_late_keep_alive_names_the_transaction(transaction_id: int) -> None:
    cluster = make_cluster()
    number = committed(cluster)
    late_ms = NOW_MS + NEXT_MS // 2 + 1

    records, answer = begin(cluster, transaction_id, number=number)
    assert (records, answer.expires_in_ms) == ([], NEXT_MS)
    _, answer = begin(cluster, transaction_id, number=number, now_ms=late_ms)

    assert answer == TransactionAnswer(number, TransactionStatus.OPEN)
    opened = cluster.state.transactions.names["q1"].open
    assert opened is not None
    assert (opened.transaction_id, opened.deadline_ms) == (transaction_id, late_ms + HOUR_MS)
    assert cluster.state.transactions.next_number > number
    assert cluster.state.transactions.begun_count == 1
    if transaction_id > 18:
        with pytest.raises(StaleTransactionError):
            begin(cluster, transaction_id - 1)
    with pytest.raises(TransactionGoneError):
        commit(cluster, transaction_id + 1, number)
    commit(cluster, transaction_id, number)


def test_an_unused_next_transaction_expires_soon() -> None:
    cluster = make_cluster()
    number = committed(cluster)

    assert at(cluster, ExpireTransactions(), NOW_MS + NEXT_MS - 1)[0] == []
    at(cluster, ExpireTransactions(), NOW_MS + NEXT_MS)

    assert number not in cluster.state.transactions.open_numbers
    with pytest.raises(TransactionGoneError):
        commit(cluster, 18, number)
    _, answer = begin(cluster, 18, now_ms=NOW_MS + NEXT_MS)
    assert answer.expires_in_ms == 0, "a transaction of its own"


def test_a_begin_prolongs_a_next_transaction_that_expires_soon() -> None:
    cluster = make_cluster()
    number = committed(cluster)

    _, answer = begin(cluster, 18, now_ms=NOW_MS + NEXT_MS - 1)

    assert answer == TransactionAnswer(number, TransactionStatus.OPEN)
    assert at(cluster, ExpireTransactions(), NOW_MS + 2 * NEXT_MS)[0] == []


def test_an_abort_ends_the_next_transaction_but_not_for_a_lower_id() -> None:
    cluster = make_cluster()
    number = committed(cluster)

    cluster.do(AbortTransaction("q1", 16, 0))
    assert number in cluster.state.transactions.open_numbers
    cluster.do(AbortTransaction("q1", 18, 0))

    assert number not in cluster.state.transactions.open_numbers
    assert cluster.state.transactions.names["q1"].last_transaction_id == 17


def test_below_the_feature_level_a_commit_begins_nothing() -> None:
    cluster = make_cluster(TransactionCommitted.NEW_LEVEL - 1)
    number = begin(cluster, 17)[1].number

    answer = commit(cluster, 17, number, is_last=True)

    assert answer == TransactionAnswer(number, TransactionStatus.COMPLETE)
    known = cluster.state.transactions.names["q1"]
    assert known.open is None
    assert not known.is_retired


def test_the_number_of_next_transactions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_commands, "NEXT_MAX", 0)
    cluster = make_cluster()

    assert commit(cluster, 17, begin(cluster, 17)[1].number).next_number == 0


def test_a_name_without_a_next_transaction_is_soon_forgotten() -> None:
    cluster = make_cluster()
    number = begin(cluster, 0)[1].number
    commit(cluster, 0, number, begins_next=False, is_last=True)

    assert commit(cluster, 0, number).number == 0, "a repeated commit within that time"
    assert begin(cluster, 0)[1].number == 0, "a late task"
    assert at(cluster, ExpireTransactions(), NOW_MS + RETIRED_MS - 1)[0] == []
    at(cluster, ExpireTransactions(), NOW_MS + RETIRED_MS)

    assert cluster.state.transactions.names == {}
    with pytest.raises(TransactionGoneError):
        commit(cluster, 0, number)


def test_a_retired_name_is_remembered_while_its_records_are_appended() -> None:
    cluster = make_cluster()
    orders = cluster.create("orders", [1])
    ids = [cluster.draw().to_bytes(16, "big")]
    opened = cluster.answer(TransactionAnswer, BeginTransaction("q1", 0, HOUR_MS, ["orders"], ids))
    parts = [StagedPart(orders, 0, [StagedPiece(1, 0, 10, 10)])]
    cluster.do(CommitTransaction("q1", 0, opened.number, parts, is_last=True))

    assert at(cluster, ExpireTransactions(), NOW_MS + RETIRED_MS)[0] == []


def test_parts_of_earlier_commits_are_recorded_with_a_commit() -> None:
    cluster = make_cluster()
    orders = cluster.create("orders", [1])
    ids = [cluster.draw().to_bytes(16, "big")]
    opened = cluster.answer(TransactionAnswer, BeginTransaction("q1", 0, HOUR_MS, ["orders"], ids))
    parts = [StagedPart(orders, 0, [StagedPiece(1, 0, 10, 10)])]
    cluster.do(CommitTransaction("q1", 0, opened.number, parts, begins_next=True))
    number = cluster.state.transactions.names["q1"].open
    assert number is not None
    partition = cluster.state.partition(orders, 0)
    assert partition is not None
    appended = AppendedPart(1, orders, 0)
    finished = FinishParts(1, [FinishedPart(appended, partition.leader_epoch)])

    records, _ = at(
        cluster, CommitTransaction("q1", 1, number.number, [], finished=finished), NOW_MS
    )

    assert records[0] == PartsAppended([appended])
    assert cluster.state.transactions.pending_count == 0
