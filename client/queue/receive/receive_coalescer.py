"""Receives of one client that begin at the same time, as one request.

Shell without tasks. Who answers for many workers, or has many of them wake up at once, gets as many
receives in one turn of the loop; asked one by one they would cost a request, an entry of the
journal and a reply each. Nobody waits for others: what is there when the loop has gone round once
goes together. One of those who wait asks for all; when messages come, who began first is served
first, and the next one who has none asks for the rest.

Invariant: in a group that has members, exactly one of them asks, or has been told to.
"""

from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

import trio

from tidelog.client.queue.receive.message import RETURN, Message
from tidelog.client.queue.receive.receiver import QueueReceiver, ReceiveOptions
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import TidelogError

_TOGETHER_MAX: Final = 200
"""Messages that are asked for at once, unless a single caller wants more: while one group is being
worked on, the broker has the next one to think of."""
_GIVING_BACK_S: Final = 1.0
"""How long somebody who was cancelled stays to give back what nobody saw."""


class _GroupKey(NamedTuple):
    """Receives with the same key are coalesced."""

    visibility_timeout_ms: int | None
    max_bytes: int
    holder: str
    wait_s: float


@final
@dataclass(eq=False, slots=True)
class _Member:
    """One caller."""

    max_messages: int
    messages: list[Message] = field(default_factory=list[Message])
    failure: TidelogError | None = None
    is_served: bool = False
    has_turn: trio.Event = field(default_factory=trio.Event)
    """Set when it is served, or is to ask."""


@final
class _Group:
    """Callers who ask together."""

    def __init__(self, key: _GroupKey, options: ReceiveOptions, ends_at: float) -> None:
        self.key = key
        self.options = options
        self.ends_at = ends_at
        self.members: dict[_Member, None] = {}
        """Who is not served, in the order in which they came."""

    @property
    def max_messages(self) -> int:
        return sum(member.max_messages for member in self.members)

    def call_next(self) -> None:
        """Tell the first one to ask."""
        for member in self.members:
            member.has_turn.set()
            return

    def serve(self, member: _Member, messages: list[Message]) -> None:
        """Give a member its messages."""
        del self.members[member]
        member.messages = messages
        member.is_served = True
        member.has_turn.set()

    def fail(self, error: TidelogError) -> None:
        """Tell everybody why there are none; one error that all raise would grow each time."""
        for member in list(self.members):
            member.failure = copy(error)
            self.serve(member, [])


@final
class ReceiveCoalescer:
    """Receives messages of one queue, for any number of callers at once."""

    def __init__(self, receiver: QueueReceiver, settler: QueueSettler) -> None:
        """Ask by `receiver`; give back through `settler` what nobody wants any more."""
        self._receiver = receiver
        self._settler = settler
        self._open: dict[_GroupKey, _Group] = {}
        """Groups that others may join."""

    async def receive(self, options: ReceiveOptions, *, wait_s: float) -> list[Message]:
        """Return some messages; see `QueueReceiver.receive`.

        An attempt that may be repeated is known by its messages, and goes alone.
        """
        if options.attempt_id is not None:
            return await self._receiver.receive(options, wait_s=wait_s)
        group, member = self._join(options, wait_s)
        try:
            await member.has_turn.wait()
            if not member.is_served:
                await self._ask(group)
        except BaseException:
            self._leave(group, member)
            await self._give_back(member.messages)
            raise
        if member.failure is not None:
            raise member.failure
        return member.messages

    def _join(self, options: ReceiveOptions, wait_s: float) -> tuple[_Group, _Member]:
        key = _GroupKey(options.visibility_timeout_ms, options.max_bytes, options.holder, wait_s)
        group = self._open.get(key)
        member = _Member(options.max_messages)
        if group is None or group.max_messages + options.max_messages > _TOGETHER_MAX:
            group = self._open[key] = _Group(key, options, trio.current_time() + wait_s)
            member.has_turn.set()
        group.members[member] = None
        return group, member

    async def _ask(self, group: _Group) -> None:
        """Ask for all members, and serve as many as there are messages for.

        Raises:
            TidelogError: They could not be asked for; the others are told.
        """
        self._close(group)
        options = group.options._replace(max_messages=group.max_messages)
        wait_s = max(group.ends_at - trio.current_time(), 0)
        try:
            messages = await self._receiver.receive(options, wait_s=wait_s)
        except TidelogError as error:
            group.fail(error)
            return
        served, is_shared = 0, len(group.members) > 1
        for member in list(group.members):
            mine = messages[served : served + member.max_messages]
            if messages and not mine:
                break
            group.serve(member, mine)
            served += len(mine)
        group.call_next()
        # Some have left since they were asked for.
        self._settler.settle_soon([each.place for each in messages[served:]], RETURN)
        if is_shared:
            # All who were served go on in one turn of the loop: what they do next goes together.
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _leave(self, group: _Group, member: _Member) -> None:
        """Be no member any more; if it was the one who asks, another one does."""
        if member in group.members:
            del group.members[member]
            if member.has_turn.is_set():
                group.call_next()
        if not group.members:
            self._close(group)

    def _close(self, group: _Group) -> None:
        if self._open.get(group.key) is group:
            del self._open[group.key]

    async def _give_back(self, messages: list[Message]) -> None:
        if messages:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                with suppress(
                    TidelogError, trio.ClosedResourceError
                ):  # Then their time has to pass.
                    await self._settler.settle([each.place for each in messages], RETURN)
