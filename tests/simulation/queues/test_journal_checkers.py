"""Tests of the journal model, which rejects impossible entries, and of the journal's checker."""

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec
import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.queues.journal_checkers import JournalIsKept
from tests.simulation.queues.journal_model import JournalModel, State
from tests.simulation.queues.plans import QueueSetup
from tests.simulation.queues.run_history import (
    Delivered,
    FinalMessage,
    JournalAppended,
    JournalLoaded,
    Moving,
    Outcome,
    QueueRunHistory,
    Settlement,
)
from tidelog.queue_layer.state.message_state import SnapshotState
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    DeadLettered,
    Delayed,
    Deleted,
    Extended,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    RedriveEnded,
    RedriveStarted,
    Released,
    Returned,
    Seeked,
    encode,
)
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.messages.redrives import RedriveStatus

TARGET = (b"dead", 0)
PLACE = (b"queue", 0)
JOBS = QueueSetup("jobs", "jobs", 1, settings={"receive_acks": "all"})


def fail(checker: str, what: str) -> NoReturn:
    raise ViolationError(checker, what)


def model_of(*steps: tuple[int, AnyEntry]) -> JournalModel:
    model = JournalModel(fail, max_deliveries=2)
    for now_ms, entry in steps:
        model.apply(JournalFrame(now_ms, [entry]))
    return model


def received(
    lease_id: int, *offsets: int, until: int = 100, attempt: bytes | None = None
) -> Received:
    return Received(lease_id, [(offset, 1) for offset in offsets], until, "", attempt)


def test_a_model_tracks_the_state_of_each_message() -> None:
    model = model_of(
        (0, Seeked(0)),
        (1, received(1, 0, 2, 3)),
        (2, Deleted([(0, 1)])),
        (3, Extended(1, [(2, 1)], 300)),
        (4, Released([(3, 1)], 50)),
        (5, Delayed([(5, 1, 70)])),
        (6, received(2, 6)),
        (7, Returned([(6, 1)], 7)),
    )

    assert model.cursor == 7
    assert model.open == {
        1: State(),
        2: State(SnapshotState.IN_FLIGHT, 300, 1, 1),
        3: State(SnapshotState.AVAILABLE, 50, 1, 1),
        4: State(),
        5: State(visible_at_ms=70),
        6: State(SnapshotState.AVAILABLE, 7, 0, 2),
    }


def test_dead_letters_leave_in_their_order() -> None:
    model = model_of(
        (0, Seeked(0)),
        (1, received(1, 0, 1, 2)),
        (2, DeadLettered([(1, 1)], TARGET)),
        (2, DeadLettered([(0, 1), (2, 1)], TARGET)),
        (3, Moved(TARGET, 0, 0, 1)),
    )

    assert model.pending == {TARGET: [0, 2]}
    model.apply(JournalFrame(4, [Moved(TARGET, 0, 0, 1)]))  # Repeated.
    model.apply(JournalFrame(4, [MoveFailed(TARGET, 0, 1, 1, "gone")]))
    assert model.pending == {TARGET: [2]}
    assert model.open[0].stored is SnapshotState.AVAILABLE
    model.apply(JournalFrame(5, [Moved(TARGET, 1, 0, 1)]))
    assert 2 not in model.open


def test_purged_trimmed_or_sought_messages_are_gone() -> None:
    model = model_of(
        (0, Seeked(0)), (1, received(1, 0, 1, 2)), (2, Purged(2)), (3, LogStartAdvanced(1))
    )

    assert list(model.open) == [2]
    model.apply(JournalFrame(4, [Seeked(1)]))
    assert (model.open, model.cursor) == ({}, 1)


ENDED = RedriveEnded(RedriveStatus.COMPLETED)


def test_the_id_of_a_redrive_is_free_again_after_ten_others() -> None:
    ids = [b"x", *[b""] * 10, b"x"]
    model_of(
        *((1, entry) for each in ids for entry in (RedriveStarted(9, 3, redrive_id=each), ENDED))
    )


WRONG: dict[str, tuple[str, list[tuple[int, AnyEntry]]]] = {
    "delivered while in flight": (
        "OneHolder",
        [(1, received(1, 0)), (99, received(2, 0))],
    ),
    "delivered before its delay is over": (
        "OneHolder",
        [(1, Delayed([(0, 1, 50)])), (49, received(1, 0))],
    ),
    "delivered after its delete": (
        "DeletedIsGone",
        [(1, received(1, 0)), (2, Deleted([(0, 1)])), (200, received(2, 0))],
    ),
    "delivered as a dead letter": (
        "DeadOnce",
        [(1, received(1, 0)), (2, DeadLettered([(0, 1)], TARGET)), (200, received(2, 0))],
    ),
    "dead twice": (
        "DeadOnce",
        [
            (1, received(1, 0)),
            (2, DeadLettered([(0, 1)], TARGET)),
            (3, DeadLettered([(0, 1)], TARGET)),
        ],
    ),
    "delivered too often": (
        "CountsAreExact",
        [(1, received(1, 0)), (101, received(2, 0)), (201, received(3, 0, until=300))],
    ),
    "dead long after the last delivery": (
        "DeadInTime",
        [
            (1, received(1, 0)),
            (101, received(2, 0, until=200)),
            (3_000, received(3, 1)),
            (9_000, Deleted([(1, 1)])),
        ],
    ),
    "extended with another lease": (
        "OneHolder",
        [(1, received(1, 0)), (101, received(2, 0, until=200)), (102, Extended(1, [(0, 1)], 300))],
    ),
    "redriven beside another redrive": (
        "JournalIsKept",
        [(1, RedriveStarted(9, 3)), (2, RedriveStarted(9, 3))],
    ),
    "redriven again under one id": (
        "JournalIsKept",
        [(at, entry) for at in (1, 2) for entry in (RedriveStarted(9, 3, redrive_id=b"x"), ENDED)],
    ),
    "time runs back": ("JournalIsKept", [(5, received(1, 0)), (4, received(2, 1))]),
}


@pytest.mark.parametrize(("checker", "steps"), WRONG.values(), ids=WRONG)
def test_a_model_rejects_an_impossible_entry(
    checker: str, steps: list[tuple[int, AnyEntry]]
) -> None:
    steps = [(0, Seeked(0)), *steps]

    with pytest.raises(ViolationError) as objection:
        model_of(*steps)

    assert objection.value.checker == checker


def written(entry: AnyEntry, offset: int, *, epoch: int) -> JournalAppended:
    return JournalAppended(
        PLACE, epoch, offset, [encode(JournalFrame(1, [entry]))], at=float(offset)
    )


def run_history_of(*entries: AnyEntry, epoch: int = 1) -> QueueRunHistory:
    run_history = QueueRunHistory([JournalIsKept()], [JOBS], lead_s=0.0)
    run_history.created("jobs", b"queue")
    for offset, entry in enumerate(entries):
        run_history.journal_appended(written(entry, offset, epoch=epoch))
    return run_history


def loaded(end: int, known: Mapping[int, State], **fields: Any) -> JournalLoaded:  # noqa: ANN401
    base = JournalLoaded(PLACE, end, end, 1, known, {})
    return msgspec.structs.replace(base, **fields)


IN_FLIGHT = State(SnapshotState.IN_FLIGHT, 100, 1, 1)


def test_a_state_that_matches_the_journal_is_accepted() -> None:
    run_history = run_history_of(Seeked(0), received(1, 0))

    run_history.journal_loaded(loaded(1, {}, cursor=0))
    run_history.journal_loaded(loaded(2, {0: IN_FLIGHT}))


@pytest.mark.parametrize(
    "wrong",
    [
        loaded(2, {}),
        loaded(2, {0: IN_FLIGHT._replace(receive_count=0)}),
        loaded(2, {0: IN_FLIGHT}, cursor=2),
        loaded(2, {0: IN_FLIGHT}, pending={TARGET: [0]}),
    ],
)
def test_a_state_that_differs_from_the_journal_is_rejected(wrong: JournalLoaded) -> None:
    run_history = run_history_of(Seeked(0), received(1, 0))

    with pytest.raises(ViolationError, match="JournalIsKept"):
        run_history.journal_loaded(wrong)


def test_uncommitted_entries_of_a_deposed_leader_do_not_count() -> None:
    run_history = run_history_of(Seeked(0), received(1, 0), epoch=2)
    run_history.journal_appended(written(received(1, 7), 1, epoch=1))

    run_history.journal_loaded(loaded(2, {0: IN_FLIGHT}))


def test_uncommitted_entries_of_a_dead_later_leader_do_not_count() -> None:
    """Seed 9010."""
    run_history = run_history_of(Seeked(0), received(1, 0))
    run_history.journal_appended(written(received(1, 7), 1, epoch=2))

    run_history.journal_loaded(loaded(2, {0: IN_FLIGHT}, epochs=((1, 0), (3, 2))))


def test_uncommitted_entries_are_not_compared() -> None:
    run_history = run_history_of(Seeked(0), received(1, 0))

    run_history.journal_loaded(loaded(2, {}, committed_end=1))


def delivery(lease_id: int, count: int) -> Delivered:
    receipt = msgspec.msgpack.encode((1, b"queue", 0, lease_id, [(0, 1)])) + bytes(16)
    return Delivered("jobs", (0, 0), b"0", None, count, receipt, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(("lease_id", "count"), [(2, 1), (1, 2)])
def test_a_delivered_message_is_in_the_journal(lease_id: int, count: int) -> None:
    run_history = run_history_of(Seeked(0), received(1, 0))
    run_history.delivered(delivery(1, 1))
    run_history.journal_loaded(loaded(2, {0: IN_FLIGHT}))
    topics = {"jobs": {(0, 0): FinalMessage(b"0", None, {})}}
    run_history.ended(topics)

    run_history.delivered(delivery(lease_id, count))
    with pytest.raises(ViolationError, match="JournalIsKept"):
        run_history.ended(topics)


def deleted_at(told_at: float) -> QueueRunHistory:
    """Return a history with a message that the third entry deletes, acknowledged at `told_at`."""
    run_history = run_history_of(Seeked(0), received(1, 0), Deleted([(0, 1)]))
    run_history.journal_loaded(loaded(3, {}))
    run_history.delivered(delivery(1, 1))
    settlement = Settlement(delivery(1, 1), SettleAction.DELETE, 1.0)
    run_history.told(settlement, Outcome.DONE, told_at)
    return run_history


TOPICS = {"jobs": {(0, 0): FinalMessage(b"0", None, {})}}


def test_a_delete_is_in_the_journal_before_its_acknowledgement() -> None:
    deleted_at(2.0).ended(TOPICS)

    with pytest.raises(ViolationError, match=r"gone at 2\.000"):
        deleted_at(1.9).ended(TOPICS)


def test_a_message_is_moved_only_after_its_entry_is_committed() -> None:
    run_history = run_history_of(Seeked(0), received(1, 0), DeadLettered([(0, 1)], TARGET))
    moving = Moving(PLACE, TARGET, [0], committed_end=3, epochs=((1, 0),))
    run_history.moving(moving)

    with pytest.raises(ViolationError, match="JournalIsKept"):
        run_history.moving(msgspec.structs.replace(moving, offsets=[0, 1]))
    too_early = run_history_of(Seeked(0), received(1, 0), DeadLettered([(0, 1)], TARGET))
    with pytest.raises(ViolationError, match="JournalIsKept"):
        too_early.moving(msgspec.structs.replace(moving, committed_end=2))


def test_a_delayed_message_is_not_delivered_early() -> None:
    run_history = run_history_of(Seeked(0), received(1, 0))
    run_history.journal_loaded(loaded(2, {0: IN_FLIGHT}))

    with pytest.raises(ViolationError, match="its delay"):
        run_history.ended(
            {"jobs": {(0, 0): FinalMessage(b"0", None, {"tidelog.deliver_at_ms": b"2"})}}
        )
