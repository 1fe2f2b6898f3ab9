"""Callers that receive their replies themselves, and the change to the connection's own task."""

import math
import random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.wire.brokers import METADATA_REPLY, FakeBroker
from tests.wire.streams import FakeStream
from tidelog.wire.errors import ConnectionLostError, RequestTimedOutError, TidelogError
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

METADATA = MetadataRequest(None)
LONG_S = 1.0
"""Seconds after which no call is expected to follow."""


class Steps(trio.abc.Instrument):
    """Counts the steps of one task."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += self.name in task.name


async def pass_time(clock: MockClock, seconds: float) -> None:
    await trio.sleep_until(clock.current_time() + seconds)


class Answering:
    """A connection to a broker that answers each request after a while."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.stream = FakeStream()
        self.rpc = RpcConnection(self.stream)
        self.broker = FakeBroker(self.stream)
        self.outcomes: list[object] = []

    async def start(self) -> None:
        self.nursery.start_soon(self.rpc.run)
        self.nursery.start_soon(self.rpc.introduce, "test", "1")
        await wait_all_tasks_blocked()
        self.broker.answer_hello()
        await wait_all_tasks_blocked()

    async def ask(self) -> MetadataReply:
        """Send a request that the broker answers at once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.answer)
            return await self.rpc.ask(api.METADATA, METADATA)
        raise AssertionError("the call has a reply")

    async def answer(self) -> None:
        while not (numbers := self.broker.read()):
            await trio.lowlevel.checkpoint()
        for number in numbers:
            self.broker.answer_metadata(number)

    async def become_a_receiver(self) -> None:
        """Let two calls follow each other: the caller of the next one receives its reply."""
        for _ in range(2):
            await self.ask()

    async def keep_outcome(self, patience: float = math.inf) -> None:
        try:
            reply = await self.rpc.call(
                api.METADATA, METADATA, take=lambda reply, _: reply, patience=patience
            )
        except TidelogError as error:
            self.outcomes.append(error)
        else:
            self.outcomes.append(reply)


@pytest.fixture
async def connected(nursery: trio.Nursery) -> Answering:
    connected = Answering(nursery)
    await connected.start()
    return connected


async def test_callers_that_follow_each_other_need_no_other_task(connected: Answering) -> None:
    await connected.become_a_receiver()
    steps = Steps("RpcConnection.run")
    trio.lowlevel.add_instrument(steps)

    for _ in range(10):
        assert await connected.ask() == METADATA_REPLY

    trio.lowlevel.remove_instrument(steps)
    # The first call takes the stream from `run`, which sees that once.
    assert steps.count <= 1


async def test_a_rare_call_leaves_the_stream_to_the_connection(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()
    await pass_time(autojump_clock, LONG_S)
    steps = Steps("RpcConnection.run")
    trio.lowlevel.add_instrument(steps)

    await connected.ask()

    trio.lowlevel.remove_instrument(steps)
    assert steps.count >= 1


async def test_a_reply_without_a_caller_is_received_at_once(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()
    began_at = autojump_clock.current_time()
    outcomes: list[Outcome] = []
    connected.rpc.submit(api.METADATA, METADATA, outcomes.append)

    await connected.answer()
    await wait_all_tasks_blocked()

    assert [outcome[0] for outcome in outcomes if isinstance(outcome, tuple)] == [METADATA_REPLY]
    assert autojump_clock.current_time() == began_at


async def test_a_cancelled_receiver_hands_the_other_replies_over(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()
    with trio.CancelScope() as scope:
        connected.nursery.start_soon(connected.keep_outcome)
        await wait_all_tasks_blocked()
        connected.nursery.start_soon(connected.keep_outcome)
        await wait_all_tasks_blocked()
        scope.cancel()
    began_at = autojump_clock.current_time()

    await connected.answer()
    await wait_all_tasks_blocked()

    assert connected.outcomes == [METADATA_REPLY, METADATA_REPLY]
    assert autojump_clock.current_time() == began_at


async def test_a_receiver_that_is_cancelled_leaves_its_reply_to_the_connection(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected.keep_outcome)
        await wait_all_tasks_blocked()
        connected.nursery.start_soon(connected.keep_outcome)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert connected.rpc.in_flight_count == 2
    began_at = autojump_clock.current_time()

    await connected.answer()
    await wait_all_tasks_blocked()

    assert connected.outcomes == [METADATA_REPLY]
    assert connected.rpc.in_flight_count == 0
    assert autojump_clock.current_time() == began_at


async def test_a_loss_between_two_calls_is_noticed_before_the_second(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()
    await connected.ask()
    connected.stream.feed_end()
    await pass_time(autojump_clock, 0.002)

    assert connected.rpc.is_lost


async def test_nothing_is_received_while_a_reply_is_handled(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()

    def take(_: MetadataReply, attachment: memoryview) -> bool:
        connected.stream.feed_end()
        autojump_clock.jump(0.002)
        receive_count = connected.stream.receive_count
        is_lost = connected.rpc.is_lost
        # Otherwise the attachment would be overwritten.
        assert connected.stream.receive_count == receive_count
        assert not attachment
        return is_lost

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected.answer)
        assert not await connected.rpc.call(api.METADATA, METADATA, take=take)
    await pass_time(autojump_clock, 0.002)
    assert connected.rpc.is_lost


async def test_a_loss_after_the_last_call_is_noticed(
    connected: Answering, autojump_clock: MockClock
) -> None:
    await connected.become_a_receiver()
    await connected.ask()
    connected.stream.feed_end()

    await pass_time(autojump_clock, LONG_S)

    assert connected.stream.is_closed
    assert connected.rpc.is_lost


async def test_a_receiver_notices_the_loss_for_all(connected: Answering) -> None:
    await connected.become_a_receiver()
    for _ in range(2):
        connected.nursery.start_soon(connected.keep_outcome)
        await wait_all_tasks_blocked()

    connected.stream.fail("Connection reset by peer")
    await wait_all_tasks_blocked()

    assert [type(each) for each in connected.outcomes] == [ConnectionLostError] * 2
    assert connected.rpc.is_lost


@pytest.mark.parametrize("receives", [True, False], ids=["its caller receives", "another task"])
async def test_a_call_without_a_reply_ends_the_connection(
    connected: Answering, autojump_clock: MockClock, receives: bool
) -> None:
    if receives:
        await connected.become_a_receiver()
    else:
        await pass_time(autojump_clock, LONG_S)
    began_at = autojump_clock.current_time()
    connected.nursery.start_soon(connected.keep_outcome, 3.0)
    await wait_all_tasks_blocked()
    connected.nursery.start_soon(connected.keep_outcome, 2.0)
    await wait_all_tasks_blocked()

    await pass_time(autojump_clock, 2.5)

    other, late = sorted(connected.outcomes, key=lambda each: type(each).__name__)
    assert isinstance(late, RequestTimedOutError)
    assert "METADATA in 2 s" in str(late)
    assert isinstance(other, ConnectionLostError)
    assert autojump_clock.current_time() == began_at + 2.5


async def test_patience_begins_with_each_request(
    connected: Answering, autojump_clock: MockClock
) -> None:
    for _ in range(4):
        await pass_time(autojump_clock, 1.5)
        connected.nursery.start_soon(connected.keep_outcome, 2.0)
        await wait_all_tasks_blocked()
        await connected.answer()
        await wait_all_tasks_blocked()

    assert connected.outcomes == [METADATA_REPLY] * 4
    connected.nursery.start_soon(connected.keep_outcome, 2.0)
    await pass_time(autojump_clock, 1.9)
    assert not connected.rpc.is_lost
    await pass_time(autojump_clock, 0.2)
    assert connected.rpc.is_lost


@pytest.mark.parametrize("seed", range(20))
async def test_each_call_has_one_outcome_in_any_order(
    connected: Answering, autojump_clock: MockClock, seed: int
) -> None:
    random_ = random.Random(seed)
    ended: list[str] = []

    async def call(number: int) -> None:
        for turn in range(20):
            if random_.random() < 0.3:
                await trio.sleep(random_.choice([0, 0.001, 0.02, 0.2]))
            with trio.move_on_after(random_.choice([math.inf, math.inf, 0.003])) as hurry:
                await connected.rpc.ask(api.METADATA, METADATA)
            ended.append(f"{number}/{turn} {hurry.cancelled_caught}")

    async def serve() -> None:
        waiting: list[int] = []
        while True:
            waiting += connected.broker.read()
            random_.shuffle(waiting)
            while waiting and random_.random() < 0.8:
                connected.broker.answer_metadata(waiting.pop())
            await trio.sleep(random_.choice([0, 0.001]))

    async with trio.open_nursery() as servers:
        servers.start_soon(serve)
        with trio.CancelScope(deadline=autojump_clock.current_time() + 60) as scope:
            async with trio.open_nursery() as callers:
                for number in range(random_.choice([1, 2, 5])):
                    callers.start_soon(call, number)
            await connected.rpc.ask(api.METADATA, METADATA)  # Behind those that were cancelled.
        servers.cancel_scope.cancel()

    assert not scope.cancelled_caught
    assert len(ended) == len(set(ended)) > 0
    assert not connected.rpc.is_lost
