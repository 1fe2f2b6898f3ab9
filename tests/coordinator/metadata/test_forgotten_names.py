"""Names of transactions that an operator has the cluster forget."""

import pytest

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tests.coordinator.metadata.test_next_transactions import at, begin, commit, make_cluster
from tests.paths import ROOT
from tidelog.coordinator.metadata import transaction_commands
from tidelog.coordinator.metadata.commands import (
    BeginTransaction,
    CommitTransaction,
    ForgetTransactionNames,
    ForgottenNames,
    TransactionAnswer,
)
from tidelog.coordinator.metadata.records import Record
from tidelog.coordinator.metadata.transaction_commands import (
    REMEMBERED_MS,
    UNUSED_MS_MIN,
)
from tidelog.coordinator.metadata.transactions import TransactionNamesForgotten
from tidelog.wire.errors import InvalidRequestError, OverloadedError
from tidelog.wire.messages.transactions import (
    NAMES_MAX,
    NAMES_WARNED,
    StagedPart,
    StagedPiece,
    TransactionStatus,
)

HOUR_MS = 3_600_000


def forget(
    cluster: Cluster, *names: str, unused_for_ms: int = UNUSED_MS_MIN, now_ms: int = NOW_MS
) -> tuple[list[Record], list[str]]:
    """Return the records, and for each name why it is kept."""
    records, reply = at(cluster, ForgetTransactionNames(list(names), unused_for_ms), now_ms)
    assert isinstance(reply, ForgottenNames)
    return records, [each.error.message if each.error else "" for each in reply.results]


def test_a_forgotten_name_may_commit_an_id_again_and_others_are_as_before() -> None:
    cluster = make_cluster()
    for name in ("q1", "q2"):
        opened = cluster.answer(TransactionAnswer, BeginTransaction(name, 7, HOUR_MS, [], []))
        cluster.do(CommitTransaction(name, 7, opened.number, []))

    records, kept = forget(cluster, "q1", "unknown", "q1", now_ms=NOW_MS + HOUR_MS)

    assert records == [TransactionNamesForgotten(["q1"])]
    assert kept == ["", "", ""]
    assert list(cluster.state.transactions.names) == ["q2"]
    assert begin(cluster, 7)[1].status is TransactionStatus.OPEN
    assert forget(cluster, "unknown") == ([], [""])


def test_a_name_that_was_used_in_the_time_is_kept() -> None:
    cluster = make_cluster()
    commit(cluster, 7, begin(cluster, 7)[1].number, begins_next=False)

    records, (why,) = forget(cluster, "q1", unused_for_ms=HOUR_MS, now_ms=NOW_MS + HOUR_MS - 1)

    assert records == []
    assert "transaction name 'q1' is kept: it was used within the time" in why
    assert commit(cluster, 7, 1).number == 0, "a repeated commit does nothing"
    later_ms = NOW_MS + UNUSED_MS_MIN
    (why,) = forget(cluster, "q1", now_ms=later_ms - 1)[1]
    assert why
    records, _ = forget(cluster, "q1", now_ms=later_ms)
    assert records == [TransactionNamesForgotten(["q1"])]


def test_a_time_in_which_a_client_may_repeat_its_commit_is_refused() -> None:
    cluster = make_cluster()

    with pytest.raises(InvalidRequestError, match=r"10 min after its last use, not 599999 ms"):
        forget(cluster, "q1", unused_for_ms=UNUSED_MS_MIN - 1)


def test_a_name_with_an_open_transaction_is_always_kept() -> None:
    cluster = make_cluster()
    number = begin(cluster, 7)[1].number

    records, (why,) = forget(cluster, "q1", now_ms=NOW_MS + HOUR_MS - 1)

    assert records == []
    assert "its transaction 7 is open" in why
    commit(cluster, 7, number)


def test_a_name_is_kept_until_its_records_are_appended() -> None:
    cluster = make_cluster()
    orders = cluster.create("orders", [1])
    ids = [cluster.draw().to_bytes(16, "big")]
    opened = cluster.answer(TransactionAnswer, BeginTransaction("q1", 0, HOUR_MS, ["orders"], ids))
    parts = [StagedPart(orders, 0, [StagedPiece(1, 0, 10, 10)])]
    cluster.do(CommitTransaction("q1", 0, opened.number, parts))

    records, (why,) = forget(cluster, "q1", now_ms=NOW_MS + REMEMBERED_MS)

    assert records == []
    assert "not appended yet" in why


def test_a_name_is_kept_while_tasks_may_stage_for_its_next_transaction() -> None:
    cluster = make_cluster()
    number = commit(cluster, 7, begin(cluster, 7)[1].number).next_number
    assert begin(cluster, 8)[0] == [], "a task stages without a record"

    records, (why,) = forget(cluster, "q1", now_ms=NOW_MS + HOUR_MS)

    assert records == []
    assert "has begun its next transaction" in why
    assert commit(cluster, 8, number).number == number, "not expired before the controller says so"


def test_forgotten_names_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_commands, "NAMES_MAX", 1)
    cluster = make_cluster()
    commit(cluster, 7, begin(cluster, 7)[1].number, begins_next=False)
    other = BeginTransaction("q2", 0, HOUR_MS, [], [])
    with pytest.raises(OverloadedError, match="tidelog transaction forget"):
        cluster.do(other)

    forget(cluster, "q1", now_ms=NOW_MS + HOUR_MS)

    cluster.do(other)


def test_the_cluster_warns_from_four_fifths_of_the_names_on() -> None:
    assert NAMES_WARNED * 5 == NAMES_MAX * 4
    rules = (ROOT / "deploy/prometheus/tidelog.rules.yml").read_text(encoding="utf-8")
    assert f'tidelog_transactions{{state="known"}}) > {NAMES_WARNED}' in rules
    page = (ROOT / "docs/transactions.md").read_text(encoding="utf-8")
    assert f"From {NAMES_WARNED:,} names on" in page
