"""Model of a FIFO queue that looks at every message each time, to compare the real one with."""

from dataclasses import dataclass, field
from typing import final

from tidelog.wire.messages.queues import MessageState, SettleAction


@final
@dataclass
class Message:
    """Message that was sent."""

    group: str
    deliver_at_ms: int
    visible_at_ms: int = 0
    receive_count: int = 0
    lease_id: int = 0
    is_in_flight: bool = False
    is_dead: bool = False
    is_done: bool = False


@final
@dataclass
class FifoModel:
    """All messages that were ever sent, and the time."""

    now_ms: int
    messages: list[Message] = field(default_factory=list[Message])

    def add(self, group: str, deliver_at_ms: int) -> None:
        """Send a message."""
        self.messages.append(Message(group, deliver_at_ms))

    def state(self, message: Message) -> MessageState | None:
        """Return the state of a message as if there were no groups; `None` if it is done."""
        if message.is_done:
            return None
        if message.is_dead:
            return MessageState.DEAD
        if max(message.visible_at_ms, message.deliver_at_ms) <= self.now_ms:
            return MessageState.VISIBLE
        return MessageState.IN_FLIGHT if message.is_in_flight else MessageState.DELAYED

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for message in self.messages:
            state = self.state(message)
            if state is not None:
                counts[state.name.lower()] = counts.get(state.name.lower(), 0) + 1
        return counts

    def deliverable(self) -> dict[str, list[int]]:
        """Return, for each group, the longest visible prefix of its remaining messages."""
        found: dict[str, list[int]] = {}
        stopped: set[str] = set()
        for offset, message in enumerate(self.messages):
            state = self.state(message)
            if state in (None, MessageState.DEAD) or message.group in stopped:
                continue
            if state is MessageState.VISIBLE:
                found.setdefault(message.group, []).append(offset)
            else:
                stopped.add(message.group)
        return found

    def blocked(self) -> list[int]:
        deliverable = {offset for offsets in self.deliverable().values() for offset in offsets}
        return [
            offset
            for offset, message in enumerate(self.messages)
            if self.state(message) is MessageState.VISIBLE and offset not in deliverable
        ]

    def check_received(self, offsets: list[int], limit: int) -> None:
        """Check that a receive may get these messages: as many as possible, group by group."""
        deliverable = self.deliverable()
        assert len(offsets) == min(limit, sum(map(len, deliverable.values())))
        taken: dict[str, list[int]] = {}
        for offset in offsets:
            taken.setdefault(self.messages[offset].group, []).append(offset)
        cut_groups = 0
        for group, of_group in taken.items():
            assert of_group == deliverable[group][: len(of_group)]
            cut_groups += len(of_group) < len(deliverable[group])
        assert cut_groups <= 1

    def received(self, offsets: list[int], lease_id: int, timeout_ms: int) -> None:
        for offset in offsets:
            message = self.messages[offset]
            message.receive_count += 1
            message.lease_id = lease_id
            message.is_in_flight = True
            message.visible_at_ms = self.now_ms + timeout_ms

    def settle(
        self, offsets: list[int], lease_id: int, action: SettleAction, *, delay_ms: int | None
    ) -> list[int]:
        """Settle messages; return the refused ones."""
        if action is SettleAction.CHANGE_VISIBILITY:
            action = SettleAction.EXTEND if delay_ms else SettleAction.RELEASE
        refused: list[int] = []
        for offset in offsets:
            message = self.messages[offset]
            is_repeated = message.is_dead and action in (SettleAction.RELEASE, SettleAction.REJECT)
            if message.is_done and action is SettleAction.DELETE:
                continue
            if is_repeated and message.lease_id == lease_id:
                continue
            if self.state(message) is not MessageState.IN_FLIGHT or message.lease_id != lease_id:
                refused.append(offset)
                continue
            self._settle(message, action, delay_ms)
        return refused

    def _settle(self, message: Message, action: SettleAction, delay_ms: int | None) -> None:
        message.is_in_flight = action is SettleAction.EXTEND
        message.visible_at_ms = self.now_ms + (delay_ms or 0)
        match action:
            case SettleAction.DELETE:
                message.is_done = True
            case SettleAction.REJECT:
                message.is_dead = True
            case SettleAction.RETURN:
                message.receive_count -= 1
            case SettleAction.EXTEND | SettleAction.RELEASE | SettleAction.CHANGE_VISIBILITY:
                pass

    def purge(self) -> None:
        for message in self.messages:
            message.is_done, message.is_dead = True, False

    def moved(self, offsets: list[int], *, is_done: bool) -> None:
        """Move dead letters, or return them after a failed move."""
        for offset in offsets:
            message = self.messages[offset]
            message.is_dead = False
            message.is_done = is_done
            message.visible_at_ms = self.now_ms
            message.is_in_flight = False
