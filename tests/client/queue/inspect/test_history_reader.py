"""History reader: fetches from the leaders of the journals."""

import pytest
from trio.testing import MockClock

from tests.client.queue_fixture import fill, queue_of, work_queue
from tidelog.client.queue.inspect.history import EventKind, HistoryEvent
from tidelog.queue_layer.state import snapshots
from tidelog.wire.errors import UnknownQueueError
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetched
from tidelog.wire.protocol import api


def shown(events: list[HistoryEvent]) -> list[tuple[str, int | None, int, str]]:
    return [(each.kind, each.offset, each.receive_count, each.holder) for each in events]


async def test_a_message_is_followed_from_its_first_receive_to_its_end(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await fill(queue, 3)
        worker = client.queue("work", holder="worker 7")
        first, *others = await worker.receive(3)
        await first.release()
        (again,) = await client.queue("work", holder="worker 8").receive(1)
        await again.delete()
        for message in others:
            await message.delete()

        events = await queue.history(message_id=first.message_id)

        assert shown(events) == [
            ("receive", 0, 1, "worker 7"),
            ("release", 0, 1, "worker 7"),
            ("receive", 0, 2, "worker 8"),
            ("delete", 0, 2, "worker 8"),
        ]
        assert (await queue.history())[0].kind is EventKind.SEEK
        assert [each.kind for each in await queue.history(2)] == [EventKind.DELETE] * 2


async def test_the_history_of_a_message_has_the_purge_that_removed_it_and_no_other(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock, partitions=2) as (client, queue):
        early = await queue.send(b"early", key=b"k")
        await client.queue("work", holder="worker 7").receive(1)
        await queue.purge()
        late = await queue.send(b"late", key=b"k")
        deleted = await queue.send(b"deleted", key=b"k")
        messages = await queue.receive(2)
        await messages[1].delete()
        await queue.purge()
        await queue.purge()

        found = [await queue.history(message_id=each.message_id) for each in (early, late, deleted)]

        assert [[each.kind for each in events] for events in found] == [
            [EventKind.RECEIVE, EventKind.PURGE],
            [EventKind.RECEIVE, EventKind.PURGE],
            [EventKind.RECEIVE, EventKind.DELETE],
        ]
        (_, purge), *_ = found
        assert shown([purge]) == [("purge", early.offset, 1, "worker 7")]
        assert purge.below_offset == 1


async def test_events_of_all_partitions_are_sorted_by_time(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, partitions=3) as (_, queue):
        await fill(queue, 30)
        while messages := await queue.receive(4):
            for message in messages:
                await message.delete()

        events = await queue.history()

        deleted = {
            (each.partition, each.offset) for each in events if each.kind is EventKind.DELETE
        }
        assert len(deleted) == 30
        times = [each.time_ms for each in events]
        assert times == sorted(times)
        assert {each.partition for each in events} == {0, 1, 2}


async def test_a_history_from_the_middle_knows_earlier_receives(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BYTES_SINCE_MIN", 500)
    async with work_queue(autojump_clock) as (_, queue):
        await fill(queue, 40)
        for _ in range(2):
            for message in await queue.receive(40):
                await message.release()
        whole = await queue.history(10_000)

        for event in whole[::10]:
            found = await queue.history(10_000, since_ms=event.time_ms)
            assert found == whole[-len(found) :]
        assert await queue.history(since_ms=whole[-1].time_ms + 60_000) == []


async def test_a_new_leader_without_high_watermark_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        await fill(queue, 3)
        await queue.delete_batch(await queue.receive(3))
        whole = await queue.history()
        asked = 0

        async def know_little(node_id: int, request: object) -> object:
            nonlocal asked
            del node_id
            assert isinstance(request, FetchRequest)
            asked += 1
            if asked == 2:
                del cluster.answers[api.FETCH]  # type: ignore[arg-type]
            return FetchReply([PartitionFetched(0, 0, 0)])

        cluster.answers[api.FETCH] = know_little  # type: ignore[index]

        assert await queue.history() == whole
        assert asked == 2


async def test_bad_input_is_refused(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        with pytest.raises(ValueError, match="no message id"):
            await queue.history(message_id="seven")
        with pytest.raises(UnknownQueueError):
            await client.queue("nope").history()
        assert await queue.history(message_id="9-0") == []


async def test_the_history_of_a_trace_has_its_messages_also_the_deleted_ones(
    autojump_clock: MockClock,
) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    parent = ("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01".encode())
    async with work_queue(autojump_clock, partitions=2) as (_, queue):
        await fill(queue, 10)
        ours = [await queue.send(b"%d" % n, headers=[parent]) for n in range(3)]
        await queue.send(b"other", headers=[("traceparent", b"malformed")])
        while messages := await queue.receive(4):
            await queue.delete_batch(messages)

        events = await queue.history(trace_id=trace_id.upper())

        kinds = {"receive", "delete"}
        assert {(f"{each.partition}-{each.offset}", str(each.kind)) for each in events} == {
            (receipt.message_id, kind) for receipt in ours for kind in kinds
        }
        assert [each.time_ms for each in events] == sorted(each.time_ms for each in events)
        assert await queue.history(2, trace_id=trace_id) == events[-2:]
        assert await queue.history(trace_id="f" * 32) == []
        with pytest.raises(ValueError, match="32 hexadecimal digits"):
            await queue.history(trace_id="x")
        with pytest.raises(ValueError, match="exclude each other"):
            await queue.history(trace_id=trace_id, message_id="0-0")
