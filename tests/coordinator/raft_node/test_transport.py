"""The transport of Raft messages, under partitions and restarts."""

from collections.abc import Awaitable, Callable
from typing import Any, cast, final

import trio

from tests.cluster_secret import dialer_of
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Answer, Answerer, listen
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.broker.handlers.raft import RaftHandler
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import (
    AppendReply,
    Message,
    SnapshotMeta,
    SnapshotRequest,
)
from tidelog.coordinator.raft_node.transport import RaftTransport, in_requests
from tidelog.wire.messages.cluster import RaftReply, RaftRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

ME, OTHER = Identity(1, b"mine"), Identity(2, b"other")


def message(number: int) -> Message:
    return AppendReply(ME, OTHER, 1, number, number, 0, 0)


def offer(index: int) -> SnapshotRequest:
    return SnapshotRequest(ME, OTHER, 1, SnapshotMeta(index, 1, Membership.of_voters([ME])))


@final
class Far:
    """The node at the other end, which only listens."""

    cluster_id = CLUSTER_ID

    def __init__(self, world: World, identity: Identity = OTHER) -> None:
        self.identity = identity
        self.numbers: list[int] = []
        self.snapshots: list[bytes] = []
        self.answered_count = 0
        self.machine = world.add_node("node2")

    def start(self) -> None:
        """Start to listen."""
        self.machine.start(self._run)

    def check(self, message: Message, data: bytes | None = None) -> None:
        """Accept all messages."""

    def received(self, message: Message, data: bytes | None = None) -> None:
        if isinstance(message, AppendReply):
            self.numbers.append(message.received_index)
        elif data is not None:
            self.snapshots.append(data)

    async def _run(self, process: Process) -> None:
        handler = RaftHandler(cast("Any", self))

        def answer(request: RaftRequest, attachment: memoryview, node_id: int) -> RaftReply | None:
            reply = handler.handle(request, attachment, node_id)
            self.answered_count += reply is not None
            return reply

        answers: dict[Api[Any, Any], Answer] = {
            api.RAFT: answer,
            api.RAFT_SNAPSHOT: handler.handle_snapshot,
        }
        async with trio.open_nursery() as nursery:
            answerer = Answerer(self.identity.node_id, answers)
            await listen(process.env, self.machine.name, answerer, nursery=nursery)


def play(story: Callable[[World, RaftTransport, Far], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        far = Far(world)

        async def near(process: Process) -> None:
            async with trio.open_nursery() as nursery:
                links = RaftTransport(
                    process.env,
                    nursery,
                    dialer_of(process.env, 1),
                    name="node1",
                    cluster_id=CLUSTER_ID,
                    address_of=lambda _: ("node2", PORT),
                )
                with trio.fail_after(300):
                    await story(world, links, far)
                nursery.cancel_scope.cancel()

        await world.add_node("node1").start(near).ended.wait()

    Simulation(1).run(main)


def test_raft_messages_arrive_in_order() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        far.start()

        links.send(message(number) for number in range(5))
        links.send([message(5)])

        await until(lambda: far.numbers == [0, 1, 2, 3, 4, 5])

    play(story)


def test_unsendable_messages_are_dropped_and_later_ones_arrive() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        links.send([message(1)])
        await trio.sleep(5)
        far.start()
        await trio.sleep(1)

        links.send([message(2)])

        await until(lambda: bool(far.numbers))
        assert far.numbers == [2]

    play(story)


def test_a_silent_connection_is_replaced() -> None:
    async def story(world: World, links: RaftTransport, far: Far) -> None:
        far.start()
        links.send([message(1)])
        await until(lambda: far.numbers == [1])
        heal = world.network.partition(["node1"], ["node2"])
        for number in range(100):
            links.send([message(10 + number)])
            await trio.sleep(0.3)
        heal()
        healed_at = trio.current_time()

        while 1000 not in far.numbers:
            links.send([message(1000)])
            await trio.sleep(0.1)

        assert trio.current_time() - healed_at < 3

    play(story)


def test_only_some_messages_request_an_answer() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        far.start()
        for number in range(30):
            links.send([message(number)])
            await trio.sleep(0.1)

        assert far.numbers == list(range(30))
        assert 5 <= far.answered_count <= 7

    play(story)


def test_the_time_of_refused_connections_is_known() -> None:
    async def story(world: World, links: RaftTransport, far: Far) -> None:
        async def send_for(seconds: float) -> None:
            for _ in range(int(seconds * 10)):
                links.send([message(1)])
                await trio.sleep(0.1)

        assert links.refused_since(2) is None
        far.start()
        await send_for(2)
        assert links.refused_since(2) is None

        far.machine.kill()
        killed_at = trio.current_time()
        await send_for(2)
        since = links.refused_since(2)
        assert since is not None
        assert since - killed_at < 0.5

        far.start()
        await send_for(2)
        assert links.refused_since(2) is None

        # A silent machine may be alive behind a partition.
        world.network.partition(["node1"], ["node2"])
        await send_for(5)
        assert links.refused_since(2) is None

    play(story)


def test_a_snapshot_arrives_whole_beside_messages() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        far.start()
        data = bytes(range(256)) * 5000

        links.send_snapshot(offer(7), data, on_failed=lambda: None)
        for number in range(20):
            links.send([message(number)])
            await trio.sleep(0.001)

        await until(lambda: far.snapshots == [data])
        assert far.numbers == list(range(20))

    play(story)


def test_a_lost_snapshot_is_reported_to_its_sender() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        failures: list[int] = []
        links.send_snapshot(offer(7), b"state", on_failed=lambda: failures.append(7))
        await until(lambda: failures == [7])
        far.start()
        links.send_snapshot(offer(8), b"x" * (8 << 20), on_failed=lambda: failures.append(8))
        links.send([message(1)])
        await until(lambda: bool(far.numbers))

        far.machine.cut_power()

        await until(lambda: failures == [7, 8])

    play(story)


def test_a_received_snapshot_is_reported_lost_with_its_process() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        failures: list[int] = []
        far.start()
        links.send_snapshot(offer(7), b"state", on_failed=lambda: failures.append(7))
        await until(lambda: far.snapshots == [b"state"])
        await trio.sleep(1)
        assert not failures

        far.machine.kill()

        for number in range(100):
            links.send([message(number)])
            await trio.sleep(0.1)
        assert failures == [7]

    play(story)


def test_raft_messages_reach_only_their_target() -> None:
    async def story(_: World, links: RaftTransport, far: Far) -> None:
        far.identity = Identity(3, b"a third")
        far.start()

        for number in range(20):
            links.send([message(number)])
            await trio.sleep(0.2)

        assert not far.numbers

    play(story)


def test_messages_are_grouped_up_to_the_frame_size_limit() -> None:
    messages = [b"a" * 5, b"b" * 5, b"c", b"d" * 20, b"e"]

    assert list(in_requests(messages, 10)) == [messages[:2], messages[2:3], messages[3:4], [b"e"]]
    assert list(in_requests([], 10)) == []
    assert list(in_requests(messages)) == [messages]
