"""Queue partition against a list model, with random commands.

The invariants q1 to q12 are those of docs/queue-statements.md.
"""

from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver, offsets_of
from tests.queue_layer.list_model import ListModel, Message
from tidelog.client.queue.inspect.history import QueueHistory
from tidelog.queue_layer.commands.receive import ReceiveCommand, ReceivePlan
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queue_journal import Target, decode
from tidelog.wire.messages.queues import MessageState, PartitionReceived, Run, SettleAction

OTHER: Final[Target] = (b"where it came from", 0)
HOUR: Final = 3600 * SECOND

configs = st.builds(
    QueueConfig,
    max_receive_count=st.sampled_from([None, 1, 2, 3]),
    dead_letter_target=st.sampled_from([None, TARGET]),
    require_latest_receipt=st.booleans(),
    is_fifo=st.booleans(),
    max_in_flight=st.sampled_from([4, 120_000]),
    retention_ms=st.just(60 * SECOND),
)
delays = st.sampled_from([0, 0, 0, 1, 5 * SECOND, 40 * SECOND])
times = st.sampled_from([0, 1, 2 * SECOND, 30 * SECOND, HOUR])


class QueueAgainstModel(RuleBasedStateMachine):
    """A driver and a model side by side. The model has no groups: FIFO here is about receipts."""

    groups = (b"a", b"b", b"a", None, b"c", b"a", b"b", b"a")

    @initialize(
        config=configs,
        order=st.sampled_from([{}, {"priority_weights": (3, 1)}, {"fair_delivery": True}]),
    )
    def begin(self, config: QueueConfig, order: dict[str, Any]) -> None:
        order_config = QueueConfig(**order)
        self.driver = Driver(config, make_order=order_for(order_config))
        self.model = ListModel(config, START_MS)
        self.sent: list[int | None] = []
        """Delivery time of each record; `None` for chunks."""
        self.receipts: list[PartitionReceived] = []
        self.plans: list[tuple[ReceivePlan, list[Run]]] = []
        self.largest_mark = 0

    def advance(self, now_ms: int) -> None:
        self.driver.now_ms = now_ms
        self.model.now_ms = max(self.model.now_ms, now_ms)
        self.driver.queue.state.advance(now_ms)
        self.driver.dead_letter_exhausted()
        self.model.die_exhausted()

    @rule(waits=st.lists(delays, min_size=1, max_size=8))
    def records_come(self, waits: list[int]) -> None:
        fields = [
            RecordFields(self.model.now_ms + wait if wait else 0, priority, self.groups[priority])
            for priority, wait in enumerate(waits)
        ]
        self.driver.came(len(waits), fields=fields if any(waits) else None)
        self.sent.extend(field.deliver_at_ms for field in fields)
        self.model.came([field.deliver_at_ms for field in fields])

    @rule(count=st.integers(1, 4))
    def chunks_come(self, count: int) -> None:
        self.driver.on_chunks(count)
        self.sent.extend([None] * count)
        self.model.on_chunks(count)

    @rule(count=st.integers(1, 4), wait=delays)
    def chunks_come_with_their_message(self, count: int, wait: int) -> None:
        deliver_at_ms = self.model.now_ms + wait if wait else 0
        fields = [RecordFields(is_chunk=True)] * count
        self.driver.came(count + 1, fields=[*fields, RecordFields(deliver_at_ms, 1, b"a")])
        self.sent.extend([*[None] * count, deliver_at_ms])
        self.model.on_chunks(count)
        self.model.came([deliver_at_ms])

    @rule(ms=times)
    def time_passes(self, ms: int) -> None:
        self.advance(self.driver.now_ms + ms)

    @rule(ms=st.integers(1, 60 * SECOND))
    def the_clock_is_set_back(self, ms: int) -> None:
        self.advance(self.driver.now_ms - ms)

    @pytest.mark.statement("q1", "q3", "q5", "q9", "q12")
    @rule(max_messages=st.integers(1, 9), timeout_ms=times, part=st.floats(0, 1))
    def receive(self, max_messages: int, timeout_ms: int, part: float) -> None:
        command = ReceiveCommand(max_messages=max_messages, visibility_timeout_ms=timeout_ms)
        plan = self.driver.queue.plan(command, now_ms=self.driver.now_ms)
        offered = [(run.first_offset, run.count) for run in plan]
        cut = int(sum(count for _, count in offered) * (1 if part > 0.4 else part))
        taken: list[Run] = []
        for first, count in offered:
            taken.append((first, min(cut, count)))
            cut -= min(cut, count)
        outcome = self.driver.queue.receive(
            plan, [run for run in taken if run[1]], now_ms=self.driver.now_ms
        )
        before = len(self.model.offsets(MessageState.VISIBLE))
        reply = self.driver.do(outcome)
        room = self.model.config.max_in_flight - len(self.model.offsets(MessageState.IN_FLIGHT))

        # I12: a receive gets a message if any is available.
        assert offered or not before or room <= 0
        self.model.received(reply, max_messages, timeout_ms)
        if reply.runs:
            self.receipts.append(reply)

    @rule(max_messages=st.integers(1, 9))
    def records_are_read_slowly(self, max_messages: int) -> None:
        command = ReceiveCommand(max_messages=max_messages)
        plan = self.driver.queue.plan(command, now_ms=self.driver.now_ms)
        self.plans.append((plan, [(run.first_offset, run.count) for run in plan]))

    @precondition(lambda self: self.plans)
    @rule()
    def records_were_read(self) -> None:
        plan, taken = self.plans.pop()
        reply = self.driver.do(self.driver.queue.receive(plan, taken, now_ms=self.driver.now_ms))
        timeout_ms = self.model.config.visibility_timeout_ms
        self.model.received(reply, plan.command.max_messages, timeout_ms)
        if reply.runs:
            self.receipts.append(reply)

    @precondition(lambda self: self.receipts)
    @rule(
        place=st.integers(0, 1000),
        action=st.sampled_from(SettleAction),
        delay_ms=st.sampled_from([0, 1, SECOND, 40 * SECOND, 12 * HOUR]),
        chosen=st.sets(st.integers(0, 20), max_size=4),
    )
    def settle(self, place: int, action: SettleAction, delay_ms: int, *, chosen: set[int]) -> None:
        place %= len(self.receipts)
        received = self.receipts[place]
        runs = [(run.first_offset, run.count) for run in received.runs]
        given = offsets_of(runs)
        wanted = sorted({given[number % len(given)] for number in chosen}) or given
        lease_id = place + 1

        settled = self.driver.settle(received, action, *wanted, delay_ms=delay_ms)

        expected = {
            offset: code
            for offset in wanted
            if (code := self.model.settle(offset, action, delay_ms, lease_id=lease_id)) is not None
        }
        self.model.die_exhausted()
        assert settled.error is None
        assert expected == {
            offset: ErrorCode(refused.error.code)
            for refused in settled.refused
            for offset in offsets_of(refused.runs)
        }

    @invariant()
    def leases_grow(self) -> None:
        checked = [self.driver.receipts.check(each.receipt) for each in self.receipts[-2:]]
        assert len(checked) < 2 or checked[0].lease_id < checked[1].lease_id

    @pytest.mark.statement("q7")
    @rule(fails=st.booleans(), part=st.integers(1, 5))
    def a_move_ends(self, fails: bool, part: int) -> None:
        for target in self.driver.queue.state.moves.targets():
            batch = self.driver.queue.state.moves.next_batch(target)
            assert batch is not None
            count = min(part, batch.count)
            moved = offsets_of(batch.runs)[:count]
            assert self.model.moving[target][:count] == moved, "moves are in order"
            del self.model.moving[target][:count]
            now_ms = self.driver.now_ms
            if fails:
                self.driver.do(self.driver.queue.move_failed(batch, count, "no", now_ms=now_ms))
                for offset in moved:
                    message = self.model.messages[offset]
                    message.is_dead = message.is_in_flight = False
                    message.visible_at_ms = self.model.now_ms
                self.model.die_exhausted()
            else:
                self.driver.do(self.driver.queue.moved(batch, count, now_ms=now_ms))
                self.model.finish(moved)
            return

    @rule(limit=st.integers(1, 5))
    def a_redrive_goes_on(self, limit: int) -> None:
        queue, now_ms = self.driver.queue, self.driver.now_ms
        if queue.state.redrive is None or queue.state.redrive.status:
            expected = len(self.model.offsets(MessageState.VISIBLE))
            assert self.driver.do(queue.start_redrive(RedriveCommand(), now_ms=now_ms)) == expected
            return
        runs, next_offset = queue.redrive_candidates(limit)
        self.driver.do(
            queue.redrive_progressed([(OTHER, runs)] if runs else [], next_offset, now_ms=now_ms)
        )
        for offset in offsets_of(runs):
            assert self.model.messages[offset].state(self.model.now_ms) is MessageState.VISIBLE
            self.model.messages[offset].is_dead = True
            self.model.moving.setdefault(OTHER, []).append(offset)

    @rule()
    def purge(self) -> None:
        count = self.driver.purge()

        assert count == sum(self.model.counts())
        self.model.purge(len(self.model.messages))

    @rule(part=st.floats(0, 1))
    def the_log_is_trimmed(self, part: float) -> None:
        offset = int(len(self.model.messages) * part)
        are_some_under_way = self.driver.queue.state.moves.has_below(offset)
        self.driver.do(self.driver.queue.trim(offset, now_ms=self.driver.now_ms))
        if are_some_under_way:
            below = enumerate(self.model.messages[:offset])
            self.model.finish(place for place, message in below if not message.is_dead)
        else:
            self.model.purge(offset)

    @rule(part=st.floats(0, 1))
    def old_messages_expire(self, part: float) -> None:
        before = int(len(self.model.messages) * part)
        self.driver.do(self.driver.queue.expire(before, now_ms=self.driver.now_ms))
        limit_ms = self.model.now_ms - (self.model.config.retention_ms or 0)
        self.model.finish(
            offset
            for offset, message in enumerate(self.model.messages[:before])
            if not message.is_dead and not self.has_time_of_its_own(message, limit_ms)
        )

    @staticmethod
    def has_time_of_its_own(message: Message, limit_ms: int) -> bool:
        return message.lease_id == 0 and message.visible_at_ms > limit_ms

    @rule(first=st.integers(0, 40), count=st.integers(1, 5))
    def cancel(self, first: int, count: int) -> None:
        refused = self.driver.cancel([(first, count)])
        wanted = range(first, min(first + count, len(self.model.messages)))
        delayed = {
            offset
            for offset in wanted
            if self.model.messages[offset].state(self.model.now_ms) is MessageState.DELAYED
        }
        assert set(range(first, first + count)) - delayed == {
            offset for one in refused for offset in offsets_of(one.runs)
        }
        self.model.finish(delayed)

    @rule(part=st.floats(0, 1))
    def seek(self, part: float) -> None:
        offset = int(len(self.model.messages) * part)
        self.plans.clear()
        self.driver.do(self.driver.queue.seek(offset, now_ms=self.driver.now_ms))
        self.driver.tell_again()
        self.model.seek(offset, self.sent)
        self.largest_mark = 0

    @pytest.mark.statement("b73", "b82")
    @rule()
    def another_broker_takes_over(self) -> None:
        before = self.snapshot()
        self.plans.clear()
        self.driver.fail_over()
        self.driver.queue.state.advance(self.model.now_ms)

        assert self.snapshot() == before

    @pytest.mark.statement("q11")
    @rule()
    def a_snapshot_replaces_the_journal(self) -> None:
        """I11."""
        size = len(self.driver.journal)
        for frame in self.driver.queue.snapshot(now_ms=self.driver.now_ms):
            self.driver.append(frame)
        self.driver.journal = self.driver.journal[size:]
        self.another_broker_takes_over()

    def snapshot(self) -> list[object]:
        return [frame.entries for frame in self.driver.queue.snapshot(now_ms=self.driver.now_ms)]

    @pytest.mark.statement("b72", "q10")
    @invariant()
    def counts_are_exact(self) -> None:
        """I10; the sum of messages is what was sent without what is done."""
        if hasattr(self, "model"):
            assert self.driver.queue.state.counts() == self.model.counts()
            assert self.driver.queue.state.next_deadline_ms == self.model.next_deadline_ms()

    @pytest.mark.statement("q6")
    @invariant()
    def the_low_water_mark_never_goes_back(self) -> None:
        """I6."""
        if hasattr(self, "model"):
            mark = self.driver.queue.state.low_water_mark
            assert mark <= self.model.low_water_mark()
            assert mark >= self.largest_mark
            self.largest_mark = mark

    @pytest.mark.statement("q2")
    @invariant()
    def a_peek_returns_all_messages(self) -> None:
        """I2: every message that is not done is somewhere."""
        if not hasattr(self, "model"):
            return
        seen, next_offset = self.driver.queue.peek([], 0, 10_000)
        found = {
            offset: (run.state, run.receive_count)
            for run in seen
            for offset in range(run.first_offset, run.first_offset + run.count)
        }
        assert next_offset is None
        assert found == {
            offset: (message.state(self.model.now_ms), message.receive_count)
            for offset, message in enumerate(self.model.messages)
            if not message.is_done
        }

    @invariant()
    def the_history_says_how_often_each_message_was_received(self) -> None:
        """The history of clients, read from a snapshot or from the start of the journal."""
        if not hasattr(self, "model"):
            return
        history = QueueHistory()
        for data in self.driver.journal:
            history.pass_over(decode(data))
        for offset, message in enumerate(self.model.messages):
            if not message.is_done:
                assert history.received(offset)[0] == message.receive_count


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
