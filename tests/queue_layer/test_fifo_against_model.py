"""FIFO queue against a model that looks at every message, with random commands."""

from random import Random
from typing import final

import pytest

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver, offsets_of
from tests.queue_layer.fifo_model import FifoModel
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import encode
from tidelog.wire.messages.queues import PartitionReceived, SettleAction

CONFIG = QueueConfig(is_fifo=True, dead_letter_target=TARGET)
STEPS = 250


@final
class Pair:
    """Queue and its model, with the same random commands."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.orders: list[FifoOrder] = []
        self.driver = Driver(CONFIG, make_order=self.make_order)
        self.model = FifoModel(START_MS)
        self.receives: list[tuple[PartitionReceived, int]] = []
        """Received messages, with the number of their lease."""
        self.lease_id = 0

    def make_order(self, start: int) -> FifoOrder:
        self.orders.append(FifoOrder(start))
        return self.orders[-1]

    def send(self) -> None:
        groups = [self.random.choice("aaabcdef") for _ in range(self.random.randrange(1, 6))]
        delay_ms = self.random.choice([0, 0, 0, 5 * SECOND])
        deliver_at_ms = self.driver.now_ms + delay_ms if delay_ms else 0
        fields = [RecordFields(deliver_at_ms, group=group.encode()) for group in groups]
        self.driver.came(len(groups), fields=fields)
        for group in groups:
            self.model.add(group, deliver_at_ms)

    def receive(self) -> None:
        limit, timeout_ms = self.random.randrange(1, 8), self.random.choice([0, 5, 20]) * SECOND
        received = self.driver.take(limit, timeout_ms=timeout_ms)
        offsets = offsets_of([(run.first_offset, run.count) for run in received.runs])
        self.model.check_received(offsets, limit)
        if offsets:
            self.lease_id += 1
            self.receives.append((received, self.lease_id))
            self.model.received(offsets, self.lease_id, timeout_ms)

    def settle(self) -> None:
        if not self.receives:
            return
        received, lease_id = self.random.choice(self.receives[-6:])
        offsets = offsets_of([(run.first_offset, run.count) for run in received.runs])
        offsets = sorted(self.random.sample(offsets, self.random.randrange(len(offsets)) + 1))
        action = self.random.choice([SettleAction.DELETE] * 4 + list(SettleAction))
        delay_ms = None
        if action not in (SettleAction.DELETE, SettleAction.REJECT, SettleAction.RETURN):
            delay_ms = self.random.choice([0, 5, 20]) * SECOND
        settled = self.driver.settle(received, action, *offsets, delay_ms=delay_ms)
        refused = offsets_of([run for refused in settled.refused for run in refused.runs])
        assert sorted(refused) == self.model.settle(offsets, lease_id, action, delay_ms=delay_ms)

    def wait(self) -> None:
        self.driver.wait(self.random.randrange(8) * SECOND)
        self.model.now_ms = self.driver.now_ms

    def move(self) -> None:
        batch = self.driver.queue.state.moves.next_batch(TARGET)
        if batch is None:
            return
        offsets = offsets_of(batch.runs)
        count = self.random.randrange(1, len(offsets) + 1)
        is_done = self.random.random() < 0.5
        queue, now_ms = self.driver.queue, self.driver.now_ms
        if is_done:
            self.driver.do(queue.moved(batch, count, now_ms=now_ms))
        else:
            self.driver.do(queue.move_failed(batch, count, "gone", now_ms=now_ms))
        self.model.moved(offsets[:count], is_done=is_done)

    def fail_over(self) -> None:
        if self.random.random() < 0.5:
            frames = self.driver.queue.snapshot(now_ms=self.driver.now_ms)
            self.driver.journal = [encode(frame) for frame in frames]
        self.driver.fail_over()

    def purge(self) -> None:
        if self.random.random() < 0.3:
            self.driver.purge()
            self.model.purge()

    def compare(self) -> None:
        assert self.driver.counts() == self.model.counts()
        command = ReceiveCommand(max_messages=1000)
        plan = self.driver.queue.plan(command, now_ms=self.driver.now_ms)
        offered = offsets_of([(run.first_offset, run.count) for run in plan])
        deliverable = self.model.deliverable().values()
        assert sorted(offered) == sorted(offset for group in deliverable for offset in group)
        for run in plan:
            for offset in range(run.first_offset, run.first_offset + run.count):
                assert run.receive_count == self.model.messages[offset].receive_count + 1
        queue = self.driver.queue
        order = self.orders[-1]
        blocked = order.blocked(queue.state.low_water_mark, queue.state.records_from)
        assert [o for first, end in blocked for o in range(first, end)] == self.model.blocked()
        left = [o for o, message in enumerate(self.model.messages) if not message.is_done]
        assert queue.state.low_water_mark <= min(left, default=len(self.model.messages))
        assert order.group_count == len({self.model.messages[offset].group for offset in left})


@pytest.mark.statement("q4")
@pytest.mark.parametrize("seed", range(12))
def test_a_fifo_queue_matches_its_model(seed: int) -> None:
    pair = Pair(seed)
    steps = [pair.send] * 5 + [pair.receive] * 6 + [pair.settle] * 8 + [pair.wait] * 3
    steps += [pair.move, pair.fail_over, pair.purge]

    for _ in range(STEPS):
        pair.random.choice(steps)()
        pair.compare()

    assert len(pair.receives) > 20
