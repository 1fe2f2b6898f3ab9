"""Snapshots: the state in parts, valid when complete."""

from dataclasses import replace

import pytest

from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.state.message_state import SKIPPED, MessageStatus, SnapshotState
from tidelog.queue_layer.state.pending_dead_letters import PendingDeadLetters
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.queue_layer.state.snapshots import (
    RUNS_PER_PART,
    STATE_BYTES_PER_PART,
    TEXT_BYTES_PER_PART,
    SnapshotReader,
    bytes_between_snapshots,
    runs_in_parts,
    started_in_parts,
)
from tidelog.wire.messages.queue_journal import (
    Attempt,
    JournalFrame,
    Purged,
    Seeked,
    SnapshotEnded,
    SnapshotMoves,
    SnapshotStarted,
    decode,
    encode,
)
from tidelog.wire.messages.queues import Run
from tidelog.wire.messages.redrives import RedriveStatus

NOW_MS = 1_700_000_000_000
MIB = 1024 * 1024


def test_runs_survive_a_snapshot_round_trip() -> None:
    runs = [
        (
            3,
            10,
            MessageStatus(
                SnapshotState.IN_FLIGHT, NOW_MS + 5, 2, NOW_MS - 9, NOW_MS - 3, 4, "me", "oh"
            ),
        ),
        (10, 11, SKIPPED),
        (15, 17, MessageStatus(SnapshotState.AVAILABLE, NOW_MS * 2)),
        (
            17,
            18,
            MessageStatus(SnapshotState.DEAD, 0, 9, NOW_MS - 9, NOW_MS - 3, 3, "me", "too often"),
        ),
        (18, 19, MessageStatus(SnapshotState.AVAILABLE, NOW_MS - 50, 0, 0, 0, 3, "me")),
    ]
    reader = SnapshotReader(SnapshotStarted(20, 5, 1, []), NOW_MS)

    for part in runs_in_parts(runs, now_ms=NOW_MS, next_lease_id=5):
        reader.add(part)

    assert reader.runs == runs
    assert reader.is_complete(SnapshotEnded(5))
    assert not reader.is_complete(SnapshotEnded(6))


def test_a_snapshot_has_as_many_parts_as_it_needs() -> None:
    status = MessageStatus(
        SnapshotState.IN_FLIGHT, NOW_MS + 30_000, 3, NOW_MS - 70_000, NOW_MS - 10, 9, "me"
    )
    runs = [(2 * place, 2 * place + 1, status) for place in range(2 * RUNS_PER_PART + 1)]

    found = list(runs_in_parts(runs, now_ms=NOW_MS, next_lease_id=10))

    assert [len(part.runs) for part in found] == [RUNS_PER_PART, RUNS_PER_PART, 1]
    assert len(encode(JournalFrame(NOW_MS, [found[0]]))) < 40 * RUNS_PER_PART


def test_a_snapshot_has_as_many_parts_as_its_texts_need() -> None:
    runs = [
        (
            place,
            place + 1,
            MessageStatus(receive_count=1, holder="me", reason=f"{place} ".ljust(2000)),
        )
        for place in range(100)
    ]
    reader = SnapshotReader(SnapshotStarted(20, 5, 1, []), NOW_MS)

    found = list(runs_in_parts(runs, now_ms=NOW_MS, next_lease_id=10))

    for part in found:
        reader.add(part)
        size = len(encode(JournalFrame(NOW_MS, [part])))
        assert size < TEXT_BYTES_PER_PART + 10_000
    assert len(found) == 4
    assert [status.reason for _, _, status in reader.runs] == [run[2].reason for run in runs]


def test_texts_of_exactly_the_limit_are_one_part_and_one_byte_more_begins_another() -> None:
    bytes_of_one_pair = 11

    def parts(reason: str) -> int:
        status = MessageStatus(receive_count=1, reason=reason)
        runs = [(0, 1, status), (1, 2, status)]
        return len(list(runs_in_parts(runs, now_ms=NOW_MS, next_lease_id=10)))

    longest = "x" * (TEXT_BYTES_PER_PART - bytes_of_one_pair)
    assert parts(longest) == 1
    assert parts(longest + "x") == 2


def started_with(batches: int, attempts: int) -> SnapshotStarted:
    """Return a snapshot start with messages to be moved to two targets, and receive attempts."""
    runs: list[Run] = [(1 << 40, 1)]
    return SnapshotStarted(
        20,
        5,
        1,
        [
            SnapshotMoves((b"one", 0), 3, 4, [runs] * batches, list(range(batches))),
            SnapshotMoves((b"two", 1), 5, 6, [runs] * batches),
        ],
        attempts=[
            Attempt(number.to_bytes(16, "big"), number, ((1 << 40, 1),), NOW_MS, NOW_MS)
            for number in range(attempts)
        ],
    )


def test_a_small_snapshot_start_is_one_entry() -> None:
    assert len(list(started_in_parts(started_with(100, 100)))) == 1


def test_a_large_snapshot_start_survives_a_round_trip_in_parts() -> None:
    whole = started_with(4000, 4000)

    started, *more = started_in_parts(whole)

    assert isinstance(started, SnapshotStarted)
    reader = SnapshotReader(started, NOW_MS)
    for part in more:
        assert not isinstance(part, SnapshotStarted)
        reader.add(part)
    sizes = [len(encode(JournalFrame(NOW_MS, [part]))) for part in (started, *more)]
    assert max(sizes) < 2 * STATE_BYTES_PER_PART + 10_000
    assert len(sizes) > 6
    assert reader.attempts == whole.attempts
    assert PendingDeadLetters(reader.moves).snapshot() == PendingDeadLetters(whole.moves).snapshot()


def test_a_snapshot_start_in_one_entry_of_any_size_is_read() -> None:
    whole = started_with(4000, 4000)
    state = QueueState(StandardOrder)

    state.apply(decode(encode(JournalFrame(NOW_MS, [whole]))))
    state.apply(JournalFrame(NOW_MS, [SnapshotEnded(0)]))

    assert list(state.attempts) == whole.attempts
    assert state.moves.snapshot() == PendingDeadLetters(whole.moves).snapshot()


def test_an_incomplete_snapshot_is_ignored() -> None:
    started, *more = started_in_parts(started_with(4000, 4000))
    state = QueueState(StandardOrder)
    for entry in (Seeked(7), started, *more[:2], Purged(9), *more[2:], SnapshotEnded(0)):
        state.apply(JournalFrame(NOW_MS, [entry]))

    assert state.cursor == 9
    assert len(state.attempts) == 0
    assert state.moves.snapshot() == []


@pytest.mark.parametrize(
    ("size", "between"), [(0, MIB // 2), (MIB, MIB // 2), (MIB + 2, MIB // 2 + 1), (2 * MIB, MIB)]
)
def test_the_journal_grows_by_half_a_snapshot_before_the_next_one(size: int, between: int) -> None:
    assert bytes_between_snapshots(size) == between


def test_a_snapshot_keeps_a_redrive() -> None:
    redrive = Redrive(
        end=100,
        next_offset=50,
        to_move=40,
        started_ms=NOW_MS,
        number=3,
        taken=30,
        moved=20,
        failed=1,
        skipped=2,
        status=RedriveStatus.CANCELLED,
        ended_ms=NOW_MS + 5,
        destination=b"topic",
        messages_per_s=5,
        origin_queue="orders",
        reason="enough",
        redrive_id=b"third",
        note="for the auditors",
        only_sources=True,
    )
    earlier = tuple(replace(redrive, number=number, note="") for number in (1, 2))
    started = SnapshotStarted(
        20,
        5,
        1,
        [],
        redrive.snapshot(),
        earlier_redrives=[each.snapshot() for each in earlier],
    )

    redrives = SnapshotReader(started, NOW_MS).redrives()

    assert (redrives.latest, redrives.earlier) == (redrive, earlier)
    nothing = SnapshotReader(SnapshotStarted(20, 5, 1, []), NOW_MS).redrives()
    assert (nothing.latest, nothing.earlier) == (None, ())
