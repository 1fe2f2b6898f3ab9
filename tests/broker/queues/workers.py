"""Workers of a queue in a cluster, which receive and delete messages and record the replies."""

from typing import NamedTuple, final

import trio

from tests.broker.queues.queue_requests import Message, received, submit_receive, submit_settle
from tests.broker.replication.three_brokers import ThreeBrokers, connected
from tests.simulation.machine.process import Process
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.transport.rpc import RpcConnection

JOURNAL = "queue@orders"


class Delivery(NamedTuple):
    """A delivery to a worker, with times by the clocks of brokers."""

    offset: int
    receive_count: int
    at_ms: int
    deadline_ms: int


@final
class Workers:
    """Records of all workers together."""

    def __init__(self, brokers: ThreeBrokers, queue_id: bytes) -> None:
        self.deliveries: list[Delivery] = []
        """Deliveries in the order of their arrival."""
        self.deleted: dict[int, float] = {}
        """Time of the acknowledgement of a delete, by offset."""
        self.in_doubt: set[int] = set()
        """Messages whose delete has an unknown outcome."""
        self.should_stop = False
        self._brokers = brokers
        self._queue_id = queue_id

    @property
    def are_done(self) -> int:
        """Number of messages that are deleted, or may be."""
        return len(self.in_doubt | set(self.deleted))

    def offsets(self) -> set[int]:
        """Return the offsets of delivered messages."""
        return {delivery.offset for delivery in self.deliveries}

    async def work(self, process: Process, *, action: SettleAction = SettleAction.DELETE) -> None:
        """Receive and delete, or reject, until cancelled."""
        while not self.should_stop:
            leader = self._brokers.leader(JOURNAL)
            if leader is None:
                await trio.sleep(0.05)
                continue
            try:
                with trio.move_on_after(20):
                    async with connected(process, leader) as client:
                        await self._work(client, action)
            except (TidelogError, OSError):
                await trio.sleep(0.05)

    async def _work(self, client: RpcConnection, action: SettleAction) -> None:
        while not self.should_stop:
            messages = await self.receive(client)
            if messages:
                await self.settle(client, messages, action)

    async def receive(self, client: RpcConnection, count: int = 3) -> list[Message]:
        """Receive some messages, or none."""
        pending = submit_receive(client, self._queue_id, count, max_wait_ms=500)
        messages = await received(pending)
        reply = await pending.reply.reply()
        deadlines = {result.partition: result.deadline_ms for result in reply.results}
        self.deliveries += [
            Delivery(
                message.offset,
                message.receive_count,
                reply.now_ms,
                deadlines[message.partition],
            )
            for message in messages
        ]
        return messages

    async def settle(
        self, client: RpcConnection, messages: list[Message], action: SettleAction
    ) -> None:
        """Delete or reject messages, and record the outcome."""
        self.in_doubt |= {message.offset for message in messages}
        reply = await submit_settle(client, self._queue_id, messages, action=action).reply()
        for result, message in zip(reply.results, messages, strict=False):
            if result.error is None and not result.refused:
                now = trio.current_time()
                of_result = [each for each in messages if each.receipt == message.receipt]
                self.deleted |= {each.offset: now for each in of_result}

    def check(self) -> None:
        """Check the rules that hold for every history, under any failure of brokers."""
        last: dict[int, Delivery] = {}
        for delivery in self.deliveries:
            before = last.get(delivery.offset)
            if before is not None:
                # No delivery comes early, and the receive count never falls (b73, b74).
                assert delivery.at_ms >= before.deadline_ms, (before, delivery)
                assert delivery.receive_count > before.receive_count, (before, delivery)
            last[delivery.offset] = delivery
