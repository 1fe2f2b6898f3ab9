"""Tests of the shell of the audit: retries, refusals, lost records, and waiting for a write."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import final

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tidelog.broker.audit.audit_log import AuditLog
from tidelog.broker.audit.buffer import AuditBuffer, BufferedRecord
from tidelog.broker.audit.event import AuditEvent, AuditKind
from tidelog.broker.audit.record import AuditRecord
from tidelog.wire.errors import (
    AuditUnavailableError,
    BrokerError,
    ConnectionLostError,
    LeaderNotAvailableError,
    RecordTooLargeError,
)

CREATE = AuditEvent(AuditKind.ADMINISTRATION, "topic.create", resource="topic:orders")


@final
class ListedRecords:
    """A destination that keeps records, or fails as told."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.attempts: list[int] = []
        """Number of records of each attempt."""
        self.failure: BrokerError | ConnectionLostError | None = None
        self.records_max = 1_000

    async def write(self, records: Sequence[BufferedRecord]) -> None:
        await trio.lowlevel.checkpoint()
        self.attempts.append(len(records))
        if self.failure is not None:
            raise self.failure
        if len(records) > self.records_max:
            raise RecordTooLargeError("the batch is too large")
        self.records += [msgspec.json.decode(each.data, type=AuditRecord) for each in records]

    @property
    def actions(self) -> list[str]:
        return [each.action for each in self.records]


@asynccontextmanager
async def running(
    world: World, *, is_required: bool = False, buffer: AuditBuffer | None = None
) -> AsyncGenerator[tuple[AuditLog, ListedRecords]]:
    log = AuditLog(world.env, node_id=1, is_required=is_required, buffer=buffer)
    destination = ListedRecords()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run, destination)
        yield log, destination
        nursery.cancel_scope.cancel()


async def test_records_wait_for_the_topic_and_keep_their_order(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with running(world) as (log, destination):
        destination.failure = ConnectionLostError("gone")
        for number in range(5):
            log.note(with_action(CREATE, f"step{number}"))
        await trio.sleep(10)
        assert destination.records == []
        destination.failure = None
        await trio.sleep(10)

        assert destination.actions == ["audit.start", *(f"step{number}" for number in range(5))]
        assert log.buffer.written == 6
        assert log.buffer.used_bytes == 0
    assert len(world.told("audit_resumed")) == 1


async def test_the_same_records_are_written_again_after_an_unknown_outcome(
    autojump_clock: MockClock,
) -> None:
    async with running(World(autojump_clock)) as (log, destination):
        await trio.sleep(1)
        destination.failure = ConnectionLostError("gone")
        log.note(CREATE)
        await trio.sleep(1)
        log.note(CREATE)
        log.note(CREATE)
        await trio.sleep(5)

        # Otherwise the sequences of the producer would not recognize the repetition.
        assert set(destination.attempts[1:]) == {1}


async def test_a_batch_that_is_too_large_is_divided_and_a_single_record_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with running(World(autojump_clock)) as (log, destination):
        destination.records_max = 3
        for number in range(40):
            log.note(with_action(CREATE, f"step{number}"))
        await trio.sleep(5)
        assert destination.actions == ["audit.start", *(f"step{number}" for number in range(40))]

        destination.records_max = 0
        log.note(CREATE)
        await trio.sleep(5)
        assert log.buffer.lost >= 1


async def test_a_full_buffer_loses_records_says_so_and_records_it(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with running(world, buffer=AuditBuffer(20_000)) as (log, destination):
        destination.failure = LeaderNotAvailableError("no leader")
        for _ in range(1_000):
            log.note(CREATE)
        kept = len(log.buffer)
        await trio.sleep(120)
        destination.failure = None
        await trio.sleep(120)

    lost = [each for each in destination.records if each.action == "audit.lost"]
    assert len(destination.records) - len(lost) == kept
    assert sum(each.count for each in lost) == 1_000 + 1 - kept
    told = world.told("audit_lost")
    assert told
    assert told[0]["reason"] == "no leader"
    assert len(told) <= 3, "at most once a minute"


async def test_an_intent_is_refused_at_once_when_the_buffer_is_full(
    autojump_clock: MockClock,
) -> None:
    async with running(World(autojump_clock), is_required=True, buffer=AuditBuffer(5_000)) as (
        log,
        destination,
    ):
        destination.failure = LeaderNotAvailableError("no leader")
        for _ in range(100):
            log.note(CREATE)
        await trio.sleep(1)
        began_at = trio.current_time()

        with pytest.raises(AuditUnavailableError, match=r"topic.create .* \(no leader\)"):
            await log.begin(CREATE, may_pass=False)

        assert trio.current_time() == began_at


async def test_a_refused_intent_that_was_never_sent_is_withdrawn(
    autojump_clock: MockClock,
) -> None:
    async with running(World(autojump_clock), is_required=True) as (log, destination):
        await trio.sleep(1)
        destination.failure = LeaderNotAvailableError("no leader")
        log.note(CREATE)
        await trio.sleep(1)
        with pytest.raises(AuditUnavailableError):
            await log.begin(with_action(CREATE, "topic.delete"), may_pass=False)
        destination.failure = None
        await trio.sleep(10)

    of_delete = [each for each in destination.records if each.action == "topic.delete"]
    assert [(each.stage, each.result) for each in of_delete] == [("outcome", "AUDIT_UNAVAILABLE")]


async def test_ids_are_unique_over_restarts(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    ids: list[str] = []
    for _ in range(3):
        async with running(world) as (log, destination):
            log.note(CREATE)
            await trio.sleep(1)
        ids += [each.id for each in destination.records]

    assert len(set(ids)) == len(ids) == 6


def with_action(event: AuditEvent, action: str) -> AuditEvent:
    return AuditEvent(event.kind, action, event.result, event.origin, event.resource)
