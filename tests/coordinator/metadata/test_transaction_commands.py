"""Transaction commands: begin, commit, abort, expiry."""

import re
from contextlib import nullcontext

import pytest

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tests.coordinator.metadata.queues import creation, make
from tests.paths import ROOT
from tidelog.coordinator.metadata import transaction_commands
from tidelog.coordinator.metadata.catalog import AlterTopic, DeleteTopic, Topic
from tidelog.coordinator.metadata.commands import (
    AbortTransaction,
    AddPartitions,
    BeginTransaction,
    CommitTransaction,
    DeleteQueue,
    ExpireTransactions,
    FinishedPart,
    FinishParts,
    PartitionAnswers,
    Reassignment,
    ReassignReplicas,
    TransactionAnswer,
)
from tidelog.coordinator.metadata.records import Record
from tidelog.coordinator.metadata.transaction_commands import (
    COMMIT_NUMBER_END,
    OPEN_MAX,
    PIECES_MAX,
    REMEMBERED_MS,
)
from tidelog.coordinator.metadata.transactions import (
    AppendedPart,
    OpenTransaction,
    TransactionBegun,
    TransactionCommitted,
)
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    InvalidTopicError,
    OverloadedError,
    StaleTransactionError,
    TransactionGoneError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tidelog.wire.messages.transactions import NAMES_MAX, StagedPart, StagedPiece, TransactionStatus

HOUR_MS = 3_600_000
DONE = TransactionAnswer(0, TransactionStatus.COMPLETE)


def begin(
    cluster: Cluster, transaction_id: int, *topics: str, name: str = "q1", timeout_ms: int = HOUR_MS
) -> TransactionAnswer:
    ids = [cluster.draw().to_bytes(16, "big") for _ in topics]
    command = BeginTransaction(name, transaction_id, timeout_ms, list(topics), ids)
    return cluster.answer(TransactionAnswer, command)


def part(topic_id: bytes, partition: int = 0, *producers: int) -> StagedPart:
    pieces = [StagedPiece(producer, 0, 10, 10) for producer in producers or (1,)]
    return StagedPart(topic_id, partition, pieces)


def commit(
    cluster: Cluster, transaction_id: int, number: int, *parts: StagedPart, name: str = "q1"
) -> TransactionAnswer:
    return cluster.answer(
        TransactionAnswer, CommitTransaction(name, transaction_id, number, list(parts))
    )


def finish(
    cluster: Cluster, commit_number: int, topic_id: bytes, *, partition: int, is_lost: bool = False
) -> None:
    known = cluster.state.partition(topic_id, partition)
    assert known is not None
    assert known.leader is not None
    done = AppendedPart(commit_number, topic_id, partition, is_lost)
    cluster.do(FinishParts(known.leader, [FinishedPart(done, known.leader_epoch)]))


def staging(cluster: Cluster, topic: str = "orders") -> Topic:
    found = cluster.state.catalog.staging_of(cluster.state.catalog.topic(topic).topic_id)
    assert found is not None
    return found


def test_the_first_transaction_of_a_topic_creates_its_staging_log() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3], [3, 1, 2], overrides={"max_message_bytes": "64KiB"})

    answer = begin(cluster, 0, "orders")
    log = staging(cluster)

    assert answer == TransactionAnswer(1, TransactionStatus.OPEN)
    assert (log.name, log.partition_count) == ("staged@orders", 2)
    assert log.config.log.retention_ms is None
    assert log.config.log.max_message_bytes == 64 << 10
    assert [each.leader for each in cluster.state.partitions(log.topic_id)] == [1, 3]
    assert [topic.name for topic in cluster.state.catalog.record_topics] == ["orders"]
    with pytest.raises(InvalidTopicError, match="only brokers"):
        cluster.state.catalog.topic("staged@orders")


def test_a_staging_log_is_colocated_with_its_topic() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2])
    begin(cluster, 0, "orders")

    cluster.do(AlterTopic("orders", {"durability": "replicated", "max_message_bytes": "1MiB"}, []))
    cluster.do(AddPartitions("orders", 3))
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [2, 3])]))
    alone = ReassignReplicas([Reassignment(staging(cluster).topic_id, 0, [1, 3])])
    (answer,) = cluster.answer(PartitionAnswers, alone).answers

    assert answer.error is not None
    assert "a staging log moves with its topic 'orders'" in answer.error.message
    assert staging(cluster).partition_count == 3
    assert staging(cluster).overrides["max_message_bytes"] == "1MiB"
    staging_id = staging(cluster).topic_id
    cluster.do(DeleteTopic("orders"))
    assert cluster.state.catalog.was_deleted(staging_id)


def test_a_topic_deleted_with_its_queue_deletes_its_staging_log() -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "orders", partitions=1))
    begin(cluster, 0, "orders")

    cluster.do(DeleteQueue("orders", with_topic=True))

    assert cluster.state.catalog.topics == []


def test_a_repeated_begin_continues_the_open_transaction() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])

    first, again = begin(cluster, 4, "orders"), begin(cluster, 4, "orders")

    assert first == again
    assert begin(cluster, 4, name="q2").number == first.number + 1


def test_a_keep_alive_prolongs_a_transaction_with_few_writes() -> None:
    cluster = Cluster(1)
    begin(cluster, 4, timeout_ms=HOUR_MS)
    again = BeginTransaction("q1", 4, HOUR_MS, [], [])

    assert cluster.machine.handle(again, now_ms=NOW_MS + HOUR_MS // 9).records == []
    later = cluster.machine.handle(again, now_ms=NOW_MS + HOUR_MS // 8).records

    assert len(later) == 1


def test_a_repeated_commit_is_one_commit() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1], [1])
    number = begin(cluster, 7, "orders").number

    first = commit(cluster, 7, number, part(orders, 0), part(orders, 1))
    again = commit(cluster, 7, number, part(orders, 1, 9))

    assert first == TransactionAnswer(number, TransactionStatus.COMMITTED)
    assert again == TransactionAnswer(0, TransactionStatus.COMMITTED)
    assert list(cluster.state.transactions.parts_of((orders, 1))) == [1]
    finish(cluster, 1, orders, partition=0)
    finish(cluster, 1, orders, partition=0)
    assert begin(cluster, 7, "orders").status == TransactionStatus.COMMITTED
    finish(cluster, 1, orders, partition=1)
    assert begin(cluster, 7, "orders") == commit(cluster, 7, number) == DONE
    assert cluster.state.transactions.needed_numbers() == set()


def test_an_empty_commit_is_remembered() -> None:
    cluster = Cluster(1)

    answer = commit(cluster, 7, begin(cluster, 7).number)

    assert answer.status == TransactionStatus.COMPLETE
    assert commit(cluster, 7, 99) == DONE


@pytest.mark.statement("s31")
def test_a_stale_transaction_id_is_refused() -> None:
    cluster = Cluster(1)
    commit(cluster, 7, begin(cluster, 7).number)

    with pytest.raises(StaleTransactionError, match="below 7"):
        begin(cluster, 6)
    with pytest.raises(StaleTransactionError, match="below 7"):
        commit(cluster, 6, 1)


def test_a_later_transaction_fences_an_open_one() -> None:
    cluster = Cluster(1)
    first = begin(cluster, 7).number
    second = begin(cluster, 8).number

    with pytest.raises(StaleTransactionError, match="is open, which is above"):
        begin(cluster, 7)
    with pytest.raises(StaleTransactionError):
        commit(cluster, 7, first)
    assert cluster.state.transactions.needed_numbers() == {second}


def test_a_commit_under_the_number_of_another_transaction_is_refused() -> None:
    cluster = Cluster(1)
    first = begin(cluster, 7).number
    cluster.do(AbortTransaction("q1", 7, first))
    second = begin(cluster, 7).number

    with pytest.raises(TransactionGoneError, match="begin and stage again"):
        commit(cluster, 7, first)
    with pytest.raises(TransactionGoneError):
        commit(cluster, 7, 99, name="never begun")
    assert commit(cluster, 7, second).status == TransactionStatus.COMPLETE


@pytest.mark.statement("s29")
def test_an_abort_never_undoes_a_commit() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1])
    number = begin(cluster, 7, "orders").number
    commit(cluster, 7, number, part(orders))

    answer = cluster.answer(TransactionAnswer, AbortTransaction("q1", 7, number))

    assert answer.status == TransactionStatus.COMMITTED
    assert cluster.state.transactions.is_pending(1, (orders, 0))


def test_an_abort_ends_only_its_own_transaction() -> None:
    cluster = Cluster(1)
    number = begin(cluster, 7).number

    for other in (
        AbortTransaction("q1", 6, 0),
        AbortTransaction("q1", 7, number + 1),
        AbortTransaction("q2", 7, 0),
    ):
        assert cluster.handle(other).records == []
    cluster.do(AbortTransaction("q1", 7, 0))

    assert cluster.state.transactions.open_numbers == {}.keys()
    assert cluster.state.transactions.names == {}


def test_an_expired_transaction_is_never_committed() -> None:
    cluster = Cluster(1)
    number = begin(cluster, 7, timeout_ms=1000).number

    assert cluster.machine.handle(ExpireTransactions(), now_ms=NOW_MS + 999).records == []
    for record in cluster.machine.handle(ExpireTransactions(), now_ms=NOW_MS + 1000).records:
        cluster.machine.apply(record)
        cluster.image.apply(record)
        cluster.follower.apply(record)

    with pytest.raises(TransactionGoneError):
        commit(cluster, 7, number)


def test_a_name_is_remembered_for_seven_days_after_its_last_use() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1])
    commit(cluster, 7, begin(cluster, 7, "orders").number, part(orders))
    late = NOW_MS + REMEMBERED_MS

    assert cluster.machine.handle(ExpireTransactions(), now_ms=late).records == [], "not done"
    finish(cluster, 1, orders, partition=0)
    assert cluster.machine.handle(ExpireTransactions(), now_ms=late - 1).records == []
    for record in cluster.machine.handle(ExpireTransactions(), now_ms=late).records:
        cluster.machine.apply(record)

    assert cluster.state.transactions.names == {}


def test_a_commit_with_an_invalid_part_is_refused_as_a_whole() -> None:
    cluster = Cluster(1)
    orders, other = cluster.create("orders", [1]), cluster.create("other", [1])
    number = begin(cluster, 7, "orders").number
    good = part(orders)
    refused: list[tuple[StagedPart, type[BrokerError]]] = [
        (good, InvalidRequestError),
        (part(orders, 1), UnknownPartitionError),
        (part(bytes(16)), UnknownTopicError),
        (part(staging(cluster).topic_id), UnknownTopicError),
        (part(other), InvalidRequestError),
        (part(orders, 0, 3, 3), InvalidRequestError),
        (StagedPart(orders, 0, [StagedPiece(1, 5, 5, 1)]), InvalidRequestError),
        (StagedPart(orders, 0, [StagedPiece(1, 5, 9, 5)]), InvalidRequestError),
        (StagedPart(orders, 0, [StagedPiece(1, 5, 9, 0)]), InvalidRequestError),
    ]
    for bad, error in refused:
        parts = [good, bad] if bad.topic_id != orders or bad is good else [bad]
        with pytest.raises(error):
            cluster.handle(CommitTransaction("q1", 7, number, parts))

    assert commit(cluster, 7, number, good).status == TransactionStatus.COMMITTED


def test_parts_for_a_deleted_topic_are_dropped() -> None:
    cluster = Cluster(1)
    orders, other = cluster.create("orders", [1]), cluster.create("other", [1])
    number = begin(cluster, 7, "orders", "other").number
    commit(cluster, 7, number, part(orders), part(other))

    cluster.do(DeleteTopic("other"))
    finish(cluster, 1, orders, partition=0)

    assert commit(cluster, 7, number) == DONE


def test_only_the_leader_of_a_partition_reports_a_lost_part() -> None:
    cluster = Cluster(1, 2)
    orders = cluster.create("orders", [1, 2])
    number = begin(cluster, 7, "orders").number
    commit(cluster, 7, number, part(orders))
    lost = AppendedPart(1, orders, 0, is_lost=True)
    epoch = cluster.partition().leader_epoch

    assert cluster.handle(FinishParts(2, [FinishedPart(lost, epoch)])).records == []
    assert cluster.handle(FinishParts(1, [FinishedPart(lost, epoch + 1)])).records == []
    finish(cluster, 1, orders, partition=0, is_lost=True)

    assert commit(cluster, 7, number) == TransactionAnswer(0, TransactionStatus.LOST)


def test_the_number_of_open_transactions_is_limited() -> None:
    cluster = Cluster(1)
    for number in range(OPEN_MAX):
        for record in cluster.machine.handle(
            BeginTransaction(f"q{number}", 0, HOUR_MS, [], []), now_ms=NOW_MS
        ).records:
            cluster.machine.apply(record)

    with pytest.raises(OverloadedError, match="1000 transactions"):
        cluster.machine.handle(BeginTransaction("one more", 0, HOUR_MS, [], []), now_ms=NOW_MS)
    # A name with an open transaction may continue it, and begin the next.
    begun = cluster.machine.handle(BeginTransaction("q0", 0, HOUR_MS, [], []), now_ms=NOW_MS)
    assert isinstance(begun.reply, TransactionAnswer)
    # As the error says: "commit or abort some".
    for record in cluster.machine.handle(
        AbortTransaction("q0", 0, begun.reply.number), now_ms=NOW_MS
    ).records:
        cluster.machine.apply(record)
    cluster.machine.handle(BeginTransaction("one more", 0, HOUR_MS, [], []), now_ms=NOW_MS)


def test_a_remembered_name_is_used_again_when_there_is_no_room_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_commands, "NAMES_MAX", 2)
    cluster = Cluster(1)
    for name in ("q1", "q2"):
        commit(cluster, 0, begin(cluster, 0, name=name).number, name=name)

    with pytest.raises(OverloadedError, match=r"2 names of .*; use names again, or"):
        begin(cluster, 0, name="q3")

    assert begin(cluster, 1, name="q2").status == TransactionStatus.OPEN


@pytest.mark.parametrize(
    "command",
    [
        BeginTransaction("", 0, HOUR_MS, [], []),
        BeginTransaction("q" * 201, 0, HOUR_MS, [], []),
        BeginTransaction("q1", -1, HOUR_MS, [], []),
        BeginTransaction("q1", 1 << 63, HOUR_MS, [], []),
        BeginTransaction("q1", 0, 999, [], []),
        BeginTransaction("q1", 0, 25 * HOUR_MS, [], []),
        BeginTransaction("q1", 0, HOUR_MS, ["orders"], []),
        BeginTransaction("q1", 0, HOUR_MS, ["orders"], [b"short"]),
    ],
)
def test_an_invalid_begin_is_refused(command: BeginTransaction) -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])

    with pytest.raises(InvalidRequestError):
        cluster.handle(command)


def test_a_transaction_is_kept_for_a_second_to_a_day() -> None:
    cluster = Cluster(1)
    day_ms = 24 * HOUR_MS

    begin(cluster, 1, timeout_ms=1000)
    begin(cluster, 2, timeout_ms=day_ms)

    for timeout_ms in (999, day_ms + 1):
        with pytest.raises(InvalidRequestError, match=f"1 s to 24 h, not for {timeout_ms} ms"):
            begin(cluster, 3, timeout_ms=timeout_ms)


@pytest.mark.parametrize(
    ("name", "transaction_id"), [("q", 0), ("q" * 200, 0), ("q", (1 << 63) - 1)]
)
def test_the_longest_name_and_the_highest_id_of_a_transaction_are_accepted(
    name: str, transaction_id: int
) -> None:
    answer = begin(Cluster(1), transaction_id, name=name)

    assert answer == TransactionAnswer(1, TransactionStatus.OPEN)


def numbers_of_limits() -> list[int]:
    """Return the numbers in the table of limits of the page about transactions."""
    page = (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| ([\d,]+) \|$", page, re.MULTILINE)
    return [int(number.replace(",", "")) for number in rows]


def test_the_documented_limits_of_transactions_are_those_of_the_code() -> None:
    assert numbers_of_limits() == [OPEN_MAX, NAMES_MAX, PIECES_MAX]
    assert REMEMBERED_MS == 7 * 24 * HOUR_MS, "the page says 7 days"


def test_a_commit_has_a_limited_number_of_pieces_over_all_partitions() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1], [1])
    number = begin(cluster, 7, "orders").number
    most = [part(orders, 0, *range(1, PIECES_MAX)), part(orders, 1, 1)]
    more = [part(orders, 0, *range(1, PIECES_MAX)), part(orders, 1, 1, 2)]

    assert cluster.machine.handle(CommitTransaction("q1", 7, number, most), now_ms=NOW_MS).records
    with pytest.raises(InvalidRequestError, match="more than 50000 pieces"):
        cluster.machine.handle(CommitTransaction("q1", 7, number, more), now_ms=NOW_MS)


def test_the_records_of_a_commit_in_a_partition_are_counted_in_32_bits() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1], [1])
    number = begin(cluster, 7, "orders").number

    def of(*counts: int) -> CommitTransaction:
        pieces = [StagedPiece(each, 0, count, count) for each, count in enumerate(counts, 1)]
        return CommitTransaction("q1", 7, number, [StagedPart(orders, 0, pieces), part(orders, 1)])

    assert cluster.handle(of(1 << 31, (1 << 31) - 1)).records
    with pytest.raises(InvalidRequestError, match=r"2\^32 records in one partition or more"):
        cluster.handle(of(1 << 31, 1 << 31))


@pytest.mark.parametrize(
    ("piece", "is_legal"),
    [
        (StagedPiece(1, 0, 1, 1), True),
        (StagedPiece(1, 5, 9, 4), True),
        (StagedPiece(1, 5, 9, 1), True),
        (StagedPiece(1, -1, 9, 4), False),
        (StagedPiece(0, 5, 9, 4), False),
        (StagedPiece(1, 9, 5, 1), False),
        (StagedPiece(1, 5, 9, -1), False),
    ],
)
def test_a_piece_has_a_producer_and_no_more_records_than_offsets(
    piece: StagedPiece, *, is_legal: bool
) -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1])
    number = begin(cluster, 7, "orders").number
    command = CommitTransaction("q1", 7, number, [StagedPart(orders, 0, [piece])])

    with nullcontext() if is_legal else pytest.raises(InvalidRequestError):
        assert cluster.handle(command).records


def test_a_part_of_a_partition_below_0_is_refused() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1])
    number = begin(cluster, 7, "orders").number

    with pytest.raises(UnknownPartitionError, match="has no partition -1"):
        cluster.handle(CommitTransaction("q1", 7, number, [part(orders, -1)]))


def test_the_number_of_remembered_names_is_limited() -> None:
    cluster = Cluster(1)
    for number in range(1, NAMES_MAX):
        name = f"q{number}"
        opened = OpenTransaction(0, number, NOW_MS, NOW_MS + HOUR_MS)
        cluster.machine.apply(TransactionBegun(name, opened))
        cluster.machine.apply(TransactionCommitted(name, number, [], NOW_MS))

    def begun(name: str) -> list[Record]:
        command = BeginTransaction(name, 1, HOUR_MS, [], [])
        return cluster.machine.handle(command, now_ms=NOW_MS).records

    (last,) = begun("the last one")
    cluster.machine.apply(last)
    with pytest.raises(OverloadedError, match="100000 names of transactions are remembered"):
        begun("one more")
    assert begun("q1"), "a remembered name goes on"


def test_commits_end_with_the_last_commit_number() -> None:
    cluster = Cluster(1)
    for name in ("q1", "q2", "q3"):
        begin(cluster, 7, name=name)
    cluster.machine.apply(TransactionCommitted("q1", COMMIT_NUMBER_END - 2, [], NOW_MS))

    def committed(name: str, number: int) -> list[Record]:
        command = CommitTransaction(name, 7, number, [])
        return cluster.machine.handle(command, now_ms=NOW_MS).records

    (last,) = committed("q2", 2)
    cluster.machine.apply(last)
    with pytest.raises(OverloadedError, match="no commit numbers left"):
        committed("q3", 3)


def test_a_transaction_that_is_committed_and_not_complete_counts_as_open() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1])
    number = begin(cluster, 7, "orders", name="pending").number
    commit(cluster, 7, number, part(orders), name="pending")
    for place in range(OPEN_MAX - 1):
        opened = OpenTransaction(0, number + 1 + place, NOW_MS, NOW_MS + HOUR_MS)
        cluster.machine.apply(TransactionBegun(f"q{place}", opened))

    with pytest.raises(OverloadedError, match="1000 transactions are open or not done"):
        cluster.machine.handle(BeginTransaction("q", 0, HOUR_MS, [], []), now_ms=NOW_MS)
