"""Model of a queue as a list of messages, each with its own fields: slow, and obviously right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queue_journal import NO_TARGET, Target
from tidelog.wire.messages.queues import (
    VISIBILITY_TIMEOUT_MS_MAX,
    MessageState,
    PartitionReceived,
    SettleAction,
)


@dataclass
class Message:
    """One message."""

    visible_at_ms: int = 0
    is_done: bool = False
    is_dead: bool = False
    is_in_flight: bool = False
    receive_count: int = 0
    first_received_ms: int = 0
    last_received_ms: int = 0
    lease_id: int = 0
    reason: str = ""

    def state(self, now_ms: int) -> MessageState | None:
        """Return the state, `None` if it is done."""
        if self.is_done:
            return None
        if self.is_dead:
            return MessageState.DEAD
        if self.visible_at_ms <= now_ms:
            return MessageState.VISIBLE
        return MessageState.IN_FLIGHT if self.is_in_flight else MessageState.DELAYED


class ListModel:
    """All messages of a partition, past ones included, and their changes."""

    def __init__(self, config: QueueConfig, now_ms: int) -> None:
        self.config = config
        self.now_ms = now_ms
        self.messages: list[Message] = []
        self.void_below = 1
        self.leases = 0
        self.moving: dict[Target, list[int]] = {}

    def came(self, deliver_at_ms: Sequence[int]) -> None:
        self.messages.extend(Message(visible_at_ms=time_ms) for time_ms in deliver_at_ms)

    def on_chunks(self, count: int) -> None:
        self.messages.extend(Message(is_done=True) for _ in range(count))

    def offsets(self, state: MessageState) -> list[int]:
        """Return the messages in a state."""
        return [o for o, m in enumerate(self.messages) if m.state(self.now_ms) is state]

    def counts(self) -> tuple[int, ...]:
        """Return how many messages are visible, leased, delayed and dead."""
        states = [message.state(self.now_ms) for message in self.messages]
        return tuple(states.count(state) for state in list(MessageState)[:4])

    def low_water_mark(self) -> int:
        """Return the first message that is not done."""
        alive = (offset for offset, message in enumerate(self.messages) if not message.is_done)
        return next(alive, len(self.messages))

    def next_deadline_ms(self) -> int | None:
        """Return when a message becomes visible."""
        waiting = {MessageState.IN_FLIGHT, MessageState.DELAYED}
        return min(
            (m.visible_at_ms for m in self.messages if m.state(self.now_ms) in waiting),
            default=None,
        )

    def is_exhausted(self, offset: int) -> bool:
        limit = self.config.max_deliveries
        return limit is not None and self.messages[offset].receive_count >= limit

    def received(self, reply: PartitionReceived, max_messages: int, timeout_ms: int) -> None:
        """Check the received messages, and apply the receive."""
        room = self.config.max_in_flight - len(self.offsets(MessageState.IN_FLIGHT))
        count = sum(run.count for run in reply.runs)
        assert count <= max(0, min(max_messages, room))
        visible = set(self.offsets(MessageState.VISIBLE))
        if count:
            self.leases += 1
            assert reply.deadline_ms == self.now_ms + timeout_ms
        for run in reply.runs:
            for offset in range(run.first_offset, run.first_offset + run.count):
                message = self.messages[offset]
                assert offset in visible, "an invisible message was received"
                assert not self.is_exhausted(offset), "an exhausted message was received"
                self._receive(message, self.now_ms + timeout_ms)
                assert run.receive_count == message.receive_count
                assert run.first_received_ms == message.first_received_ms
        self.die_exhausted()

    def _receive(self, message: Message, visible_at_ms: int) -> None:
        message.receive_count += 1
        message.first_received_ms = message.first_received_ms or self.now_ms
        message.last_received_ms = self.now_ms
        message.lease_id = self.leases
        message.is_in_flight = True
        message.visible_at_ms = visible_at_ms

    def die(self, offsets: Iterable[int], reason: str = "") -> None:
        target = self.config.dead_letter_target or NO_TARGET
        for offset in offsets:
            message = self.messages[offset]
            message.is_dead = True
            message.reason = reason or message.reason
            self.moving.setdefault(target, []).append(offset)

    def die_exhausted(self) -> None:
        """Make messages dead letters that are visible after their last delivery."""
        self.die([o for o in self.offsets(MessageState.VISIBLE) if self.is_exhausted(o)])

    def refusal(self, offset: int, action: SettleAction, lease_id: int) -> ErrorCode | None:
        """Return the error of a settlement, `None` if it is allowed."""
        message = self.messages[offset]
        is_delete = action is SettleAction.DELETE
        is_own = message.lease_id == lease_id
        is_current = message.state(self.now_ms) is MessageState.IN_FLIGHT
        if lease_id < self.void_below:
            return ErrorCode.RECEIPT_EXPIRED
        if message.is_done:
            return None if is_delete else ErrorCode.MESSAGE_GONE
        if message.is_dead:
            kills = action in (SettleAction.RELEASE, SettleAction.REJECT)
            return None if is_own and kills else ErrorCode.MESSAGE_GONE
        if is_own:
            is_over = self.config.is_fifo and not is_current
            holds = action in (SettleAction.EXTEND, SettleAction.RETURN)
            is_over |= holds and not message.is_in_flight
        else:
            is_over = self.config.is_fenced or not is_delete
        return ErrorCode.RECEIPT_EXPIRED if is_over else None

    def settle(
        self, offset: int, action: SettleAction, delay_ms: int, *, lease_id: int
    ) -> ErrorCode | None:
        """Settle one message; return the error, if any."""
        if action is SettleAction.CHANGE_VISIBILITY and not delay_ms:
            action = SettleAction.RELEASE
        refusal = self.refusal(offset, action, lease_id)
        message = self.messages[offset]
        if refusal is not None or message.is_done or message.is_dead:
            return refusal
        if action in (SettleAction.EXTEND, SettleAction.CHANGE_VISIBILITY):
            return self._hide(message, self.now_ms + delay_ms)
        if action is SettleAction.DELETE:
            message.is_done = True
        elif action is SettleAction.RELEASE and self.is_exhausted(offset):
            self.die([offset])
        elif action is SettleAction.RELEASE:
            message.is_in_flight, message.visible_at_ms = False, self.now_ms + delay_ms
        elif action is SettleAction.REJECT:
            self.die([offset], "rejected")
        else:
            message.is_in_flight, message.visible_at_ms = False, self.now_ms
            message.receive_count -= 1
            if not message.receive_count:
                message.first_received_ms = 0
        return None

    def _hide(self, message: Message, until_ms: int) -> ErrorCode | None:
        """Hide a message until a time, leased if it is."""
        latest_ms = message.last_received_ms + VISIBILITY_TIMEOUT_MS_MAX
        if message.receive_count and until_ms > latest_ms:
            return ErrorCode.INVALID_REQUEST
        message.visible_at_ms = until_ms
        return None

    def finish(self, offsets: Iterable[int]) -> None:
        """Mark messages as done."""
        for offset in offsets:
            self.messages[offset].is_done = True

    def purge(self, end: int) -> None:
        self.finish(range(end))
        self.moving = {
            target: [offset for offset in offsets if offset >= end]
            for target, offsets in self.moving.items()
        }

    def seek(self, offset: int, deliver_at_ms: Sequence[int | None]) -> None:
        self.moving = {}
        self.void_below = self.leases + 1
        self.finish(range(offset))
        for place in range(offset, len(self.messages)):
            time_ms = deliver_at_ms[place]
            self.messages[place] = Message(visible_at_ms=time_ms or 0, is_done=time_ms is None)
