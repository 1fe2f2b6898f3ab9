"""Tests of the records that compaction may remove in a topic with tombstones."""

from itertools import count

import pytest

from tests.simulation.broker.keys import Superseded, as_tombstone, is_tombstone, key_of, value_sent
from tests.simulation.checkers.compaction_checkers import OnlySupersededGoes
from tests.simulation.checkers.run_history import (
    Acknowledged,
    FinalLog,
    ProducerRules,
    RunHistory,
    SentRecord,
    ViolationError,
)
from tidelog.wire.messages.produce import AckLevel

RULES = {"p": ProducerRules(acks=2, is_idempotent=True)}


def record(*, deletes: bool) -> SentRecord:
    """Return the first record of key 0."""
    for number in count():
        value = b"p/0/%d/" % number
        if key_of(value) == b"key 0" and is_tombstone(value) is deletes:
            return SentRecord("p", 0, number, value)
    raise AssertionError("there is one")


PUT, DELETION = record(deletes=False), record(deletes=True)


def judged(
    left: dict[int, SentRecord],
    *,
    sent: tuple[SentRecord, ...] = (PUT, DELETION),
    loses_tombstones: bool = True,
    is_alone: bool = True,
) -> str:
    """Return the verdict on a log when the `sent` records were acknowledged in order."""
    superseded = Superseded(
        [0], has_tombstones=True, loses_tombstones=loses_tombstones, rules=RULES
    )
    run_history = RunHistory([OnlySupersededGoes(superseded, is_alone=is_alone)], lambda: 2.0)
    for offset, each in enumerate(sent):
        run_history.sent(each)
        run_history.acknowledged(Acknowledged(each, offset, AckLevel.DURABLE, 1.0))
    logs = {0: FinalLog(0, len(sent), {at: each.value for at, each in left.items()})}
    superseded.learn(logs)
    try:
        run_history.ended(logs)
    except ViolationError as violation:
        return str(violation)
    return ""


def test_a_tombstone_is_read_as_its_value() -> None:
    assert value_sent(None, as_tombstone(DELETION.value)) == DELETION.value
    assert value_sent(PUT.value, ()) == PUT.value
    assert value_sent(None, (("other", b"x"),)) is None


@pytest.mark.parametrize("loses_tombstones", [False, True])
def test_a_deleted_record_may_be_gone_while_its_tombstone_exists(*, loses_tombstones: bool) -> None:
    assert not judged({1: DELETION}, loses_tombstones=loses_tombstones)
    assert not judged({0: PUT, 1: DELETION}, loses_tombstones=loses_tombstones)


def test_a_tombstone_is_removed_only_with_a_short_retention() -> None:
    assert not judged({}, loses_tombstones=True)
    assert "no later one has its key" in judged({}, loses_tombstones=False)


def test_a_deleted_record_never_comes_back() -> None:
    assert "whose deletion at (0, 1) is gone" in judged({0: PUT})
    assert not judged({0: PUT}, is_alone=False), "a replica that was away may have it still"


def test_a_tombstone_deletes_only_earlier_records() -> None:
    assert "no later one has its key" in judged({}, sent=(DELETION, PUT))
    assert not judged({1: PUT}, sent=(DELETION, PUT))


def test_a_refused_tombstone_deletes_nothing() -> None:
    superseded = Superseded([0], has_tombstones=True, loses_tombstones=True, rules=RULES)
    superseded.sent(DELETION)
    assert superseded.covers((0, 0), PUT.value)

    superseded.refused(DELETION)

    assert not superseded.covers((0, 0), PUT.value)
