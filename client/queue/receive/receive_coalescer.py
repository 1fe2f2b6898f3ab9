"""Coalescer of receives that one client starts at the same time.

Shell without tasks. A process that serves many workers, or wakes many of them at once, starts as
many receives in one turn of the event loop; each alone would cost a request, an entry of the
journal and a reply. Receives of one turn of the loop are coalesced. A caller that was alone the
last time and is alone now does not wait for the end of the turn. One member of a group asks for
all. When messages arrive, members are served in the order of their
calls, and the next one without messages asks for the rest.

Invariant: in a group that has members, exactly one of them asks, or has been told to.
"""

from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

import trio
from msgspec.structs import replace

from tidelog.client.queue.receive.message import RETURN, Message
from tidelog.client.queue.receive.receiver import QueueReceiver, ReceiveOptions
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import TidelogError

_TOGETHER_MAX: Final = 200
"""Maximum messages of one request, unless a single caller wants more: while one group is being
processed, the broker works on the next one."""
_GIVING_BACK_S: Final = 1.0
"""Seconds for which a cancelled call stays to return its messages."""


class _GroupKey(NamedTuple):
    """Key of receives that may be coalesced."""

    visibility_timeout_ms: int | None
    max_bytes: int
    holder: str
    wait_s: float
    raises_at_limit: bool


@final
@dataclass(eq=False, slots=True)
class _Member:
    """Caller in a group."""

    max_messages: int
    messages: list[Message] = field(default_factory=list[Message])
    failure: TidelogError | None = None
    is_served: bool = False
    has_turn: trio.Event = field(default_factory=trio.Event)
    """Set when it is served, or has to ask."""


@final
class _Group:
    """Callers that share a request."""

    def __init__(self, key: _GroupKey, options: ReceiveOptions, ends_at: float) -> None:
        self.key = key
        self.options = options
        self.ends_at = ends_at
        self.members: dict[_Member, None] = {}
        """Callers that are not served, in the order of their calls."""

    @property
    def max_messages(self) -> int:
        return sum(member.max_messages for member in self.members)

    def call_next(self) -> None:
        """Wake the first member, which asks next."""
        for member in self.members:
            member.has_turn.set()
            return

    def serve(self, member: _Member, messages: list[Message]) -> None:
        """Serve a member with its messages."""
        del self.members[member]
        member.messages = messages
        member.is_served = True
        member.has_turn.set()

    def fail(self, error: TidelogError) -> None:
        """Fail all members with copies: one error that all raise would grow each time."""
        for member in list(self.members):
            member.failure = copy(error)
            self.serve(member, [])


@final
class ReceiveCoalescer:
    """Receives messages of one queue, for any number of concurrent callers."""

    def __init__(self, receiver: QueueReceiver, settler: QueueSettler) -> None:
        """Receive through `receiver`; return surplus messages through `settler`."""
        self._receiver = receiver
        self._settler = settler
        self._open: dict[_GroupKey, _Group] = {}
        """Groups that others may join."""
        self._was_alone = False
        """Whether the last group had one member: then others are not likely to come."""

    def is_of_use(self, options: ReceiveOptions) -> bool:
        """Return whether a receive may share its request; a lone caller has none to wait for.

        A receive with an attempt id is recognised by its messages, so it is not coalesced.
        """
        is_alone = self._was_alone and not self._receiver.running_count
        return options.attempt_id is None and not is_alone

    async def receive(self, options: ReceiveOptions, *, wait_s: float) -> list[Message]:
        """Return some messages; see `QueueReceiver.receive`."""
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
        key = _GroupKey(
            options.visibility_timeout_ms,
            options.max_bytes,
            options.holder,
            wait_s,
            options.raises_at_limit,
        )
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
            TidelogError: The request failed; the others fail with it.
        """
        self._close(group)
        self._was_alone = len(group.members) == 1
        options = replace(group.options, max_messages=group.max_messages)
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
        # Members may have left since the request.
        self._settler.settle_soon([each.place for each in messages[served:]], RETURN)
        if is_shared:
            # All served callers continue in one turn of the loop, so their next calls coalesce.
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _leave(self, group: _Group, member: _Member) -> None:
        """Remove a member; if it was to ask, wake the next one."""
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
                ):  # Then their leases must expire.
                    await self._settler.settle([each.place for each in messages], RETURN)
