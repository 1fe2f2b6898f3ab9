"""Which records of a compacted topic may be gone, where some delete their keys."""

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
    """Return a record of key 0, the first that there is."""
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
    """Return what is said of a log when `sent` was acknowledged, one after the other."""
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


def test_what_is_sent_without_its_value_is_read_as_what_it_stands_for() -> None:
    assert value_sent(None, as_tombstone(DELETION.value)) == DELETION.value
    assert value_sent(PUT.value, ()) == PUT.value
    assert value_sent(None, (("other", b"x"),)) is None


@pytest.mark.parametrize("loses_tombstones", [False, True])
def test_what_was_deleted_may_be_gone_while_its_deletion_is_there(
    *, loses_tombstones: bool
) -> None:
    assert not judged({1: DELETION}, loses_tombstones=loses_tombstones)
    assert not judged({0: PUT, 1: DELETION}, loses_tombstones=loses_tombstones)


def test_a_deletion_goes_only_where_that_is_short() -> None:
    assert not judged({}, loses_tombstones=True)
    assert "no later one has its key" in judged({}, loses_tombstones=False)


def test_what_was_deleted_never_comes_back() -> None:
    assert "whose deletion at (0, 1) is gone" in judged({0: PUT})
    assert not judged({0: PUT}, is_alone=False), "a replica that was away may have it still"


def test_a_deletion_is_of_what_stands_before_it() -> None:
    assert "no later one has its key" in judged({}, sent=(DELETION, PUT))
    assert not judged({1: PUT}, sent=(DELETION, PUT))


def test_a_deletion_that_was_refused_deletes_nothing() -> None:
    superseded = Superseded([0], has_tombstones=True, loses_tombstones=True, rules=RULES)
    superseded.sent(DELETION)
    assert superseded.covers((0, 0), PUT.value)

    superseded.refused(DELETION)

    assert not superseded.covers((0, 0), PUT.value)
