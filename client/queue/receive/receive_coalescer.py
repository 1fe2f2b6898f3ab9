"""Coalescer of receives that one client starts at the same time, or that wait at an idle queue.

Shell. A process that serves many workers, or wakes many of them at once, starts as many receives in
one turn of the event loop; each alone would cost a request, an entry of the journal and a reply.

- Receives of one turn of the loop are coalesced: the first one asks for all. A caller that was
  alone the last time and is alone now does not wait for the end of the turn.
- A receive that would wait joins a group whose request has been waiting at the brokers for a while:
  the queue has nothing then. So any number of long polls of an idle queue is one request. A task of
  the client asks for such a group, as long as it has members.

When messages arrive, members are served in the order of their calls, and the rest is asked for
again. Messages of a FIFO queue are in order within one receive, so one request serves one member.

Invariant: a group that has members is asked for by exactly one task, its first member or that of
the client.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

import trio
from msgspec.structs import replace

from tidelog.client.cluster.background_tasks import BackgroundTasks, ParkedTask
from tidelog.client.errors import ClosedError
from tidelog.client.queue.receive.message import RETURN, Message
from tidelog.client.queue.receive.receive_options import ReceiveOptions
from tidelog.client.queue.receive.receiver import QueueReceiver
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import TidelogError

_TOGETHER_MAX: Final = 200
"""Maximum messages of one request, unless a single caller wants more: while one group is being
processed, the broker works on the next one."""
_GIVING_BACK_S: Final = 1.0
"""Seconds for which a cancelled call stays to return its messages."""
_SINGLE_MAX: Final = 100
"""Requests to a FIFO queue that wait at a time, each for one receive; more receives share one. With
fewer, workers of a busy queue would wait for each other."""
_IDLE_S: Final = 0.02
"""Seconds without an answer after which a request is taken to wait for messages."""


class _GroupKey(NamedTuple):
    """Key of receives that may be coalesced."""

    visibility_timeout_ms: int | None
    max_bytes: int
    holder: str
    raises_at_limit: bool


@final
@dataclass(eq=False, slots=True)
class _Member:
    """Caller in a group."""

    max_messages: int
    wait_s: float
    ends_at: float
    """End of its wait, in seconds of trio's clock."""
    messages: list[Message] = field(default_factory=list[Message])
    failure: TidelogError | None = None
    is_served: bool = False
    waiter: ParkedTask = field(default_factory=ParkedTask)
    """Woken when it is served, or when its wait is over."""


@final
class _Group:
    """Callers that share requests."""

    def __init__(self, key: _GroupKey, options: ReceiveOptions, *, is_single: bool) -> None:
        self.key = key
        self.options = options
        self.is_single = is_single
        """Whether a request is for one member, because the order of its messages matters."""
        self.members: dict[_Member, None] = {}
        """Callers that are not served, in the order of their calls."""
        self.asker: _Member | None = None
        """Member that asks for all; `None` if a task of the client does, or none has to."""
        self.is_standing = False
        """Whether a task of the client asks."""
        self.asked_at = math.inf
        """Time since which a request waits; `math.inf` without one."""
        self.latest_end = -math.inf
        """Latest end of the waits of all callers."""
        self.scope: trio.CancelScope | None = None
        """Scope of the request of the task."""

    @property
    def max_messages(self) -> int:
        """Maximum messages of the next request."""
        count = 0
        for member in self.members:
            if count and count + member.max_messages > _TOGETHER_MAX:
                break
            count += member.max_messages
            if self.is_single:
                break
        return count

    def add(self, member: _Member) -> None:
        """Add a member."""
        self.members[member] = None
        self.latest_end = max(self.latest_end, member.ends_at)

    def serve(self, member: _Member, messages: list[Message]) -> None:
        """Serve a member with its messages."""
        del self.members[member]
        member.messages = messages
        member.is_served = True
        member.waiter.wake()

    def share(self, messages: list[Message]) -> list[Message]:
        """Serve as many members as there are messages for; return the messages that are left."""
        while messages and self.members:
            member = next(iter(self.members))
            self.serve(member, messages[: member.max_messages])
            messages = messages[member.max_messages :]
            if self.is_single:
                break
        return messages

    def fail(self, error: TidelogError) -> None:
        """Fail all members with copies: one error that all raise would grow each time."""
        for member in list(self.members):
            member.failure = copy(error)
            self.serve(member, [])

    def stop_if_empty(self) -> None:
        """Leave the request if nothing waits for it; the next call may take it over."""
        if not self.members and self.scope is not None:
            self.scope.cancel()


@final
class ReceiveCoalescer:
    """Receives messages of one queue, for any number of concurrent callers."""

    def __init__(
        self,
        receiver: QueueReceiver,
        settler: QueueSettler,
        tasks: BackgroundTasks,
        *,
        new_attempt_id: Callable[[], bytes],
    ) -> None:
        """Receive through `receiver`; return surplus messages through `settler`.

        `new_attempt_id` makes the receive attempt ids of requests to FIFO queues.
        """
        self._receiver = receiver
        self._settler = settler
        self._tasks = tasks
        self._open_work = receiver.cluster.open_work
        self._new_attempt_id = new_attempt_id
        self._open: dict[tuple[_GroupKey, float], _Group] = {}
        """Groups that others may join in this turn of the loop, by key and wait."""
        self._waiting: dict[_GroupKey, _Group] = {}
        """Groups with a request, which others may join once it is idle."""
        self._was_alone = False
        """Whether the last group had one member: then others are not likely to come."""

    def is_of_use(self, options: ReceiveOptions, *, is_fifo: bool) -> bool:
        """Return whether a receive may share its request; a lone caller has none to wait for.

        A call that may be repeated is recognised by its messages, so it is not coalesced.
        """
        if is_fifo:
            return not options.is_repeatable and self._receiver.running_count >= _SINGLE_MAX
        is_alone = self._was_alone and not self._receiver.running_count
        return options.attempt_id is None and not is_alone

    async def receive(
        self, options: ReceiveOptions, *, wait_s: float, is_fifo: bool
    ) -> list[Message]:
        """Return some messages; see `QueueReceiver.receive`."""
        now = trio.current_time()
        member = _Member(options.max_messages, wait_s, now + wait_s)
        key = _GroupKey(
            options.visibility_timeout_ms,
            options.max_bytes,
            options.holder,
            options.raises_at_limit,
        )
        group = self._waiting.get(key)
        is_new = group is None or not wait_s or now < group.asked_at + _IDLE_S
        if group is None or is_new:
            group = self._open_group(key, member, options, is_single=is_fifo)
        group.add(member)
        try:
            if group.asker is member:
                if not is_fifo:
                    await trio.lowlevel.checkpoint()
                await self._ask(group, member)
            else:
                # While a member asks, its reply ends the waits of all that began with it.
                until = math.inf if is_new else member.ends_at
                await self._tasks.park(member.waiter, until)
            await trio.lowlevel.checkpoint_if_cancelled()
            if not member.is_served:
                self._leave(group, member)
        except BaseException:
            self._leave(group, member)
            await self._give_back(member.messages)
            raise
        if member.failure is not None:
            raise member.failure
        return member.messages

    def _open_group(
        self, key: _GroupKey, member: _Member, options: ReceiveOptions, *, is_single: bool
    ) -> _Group:
        """Return the group of this turn of the loop, or a new one for which `member` asks."""
        place = (key, member.wait_s)
        group = self._open.get(place)
        if (
            group is not None
            and group.asker is not None
            and group.max_messages + member.max_messages <= _TOGETHER_MAX
        ):
            member.ends_at = group.asker.ends_at
            return group
        group = _Group(key, options, is_single=is_single)
        group.asker = member
        if not is_single:
            self._open[place] = group
        return group

    async def _ask(self, group: _Group, asker: _Member) -> None:
        """Ask for all members, and serve as many as there are messages for.

        Raises:
            TidelogError: The request failed; the others fail with it.
        """
        self._close(group)
        self._was_alone = len(group.members) == 1
        is_shared = not self._was_alone
        options = replace(group.options, max_messages=group.max_messages)
        wait_s = max(asker.ends_at - trio.current_time(), 0)
        self._note_request(group)
        try:
            messages = await self._receiver.receive(options, wait_s=wait_s)
        except TidelogError as error:
            self._end_request(group)
            group.fail(error)
            return
        self._end_request(group)
        if not messages:
            while group.members and (member := next(iter(group.members))).ends_at == asker.ends_at:
                group.serve(member, [])
        self._share(group, messages)
        if group.members:
            self._stand_by(group)
        if is_shared:
            # All served callers continue in one turn of the loop, so their next calls coalesce.
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _note_request(self, group: _Group) -> None:
        """Let others join the group once its request is idle."""
        if group.asked_at == math.inf:
            group.asked_at = trio.current_time()
        other = self._waiting.get(group.key)
        if other is None or other.asked_at >= group.asked_at:
            self._waiting[group.key] = group  # Of several, the one that has waited longest.

    def _end_request(self, group: _Group) -> None:
        """Let others join another group: nothing asks for this one now."""
        group.asker, group.asked_at = None, math.inf
        if self._waiting.get(group.key) is group:
            del self._waiting[group.key]

    def _share(self, group: _Group, messages: list[Message]) -> None:
        """Serve members with messages; return those that nothing waits for any more."""
        rest = group.share(messages)
        self._settler.settle_soon([each.place for each in rest], RETURN)

    def _stand_by(self, group: _Group) -> None:
        """Ask for the members of a group in a task of the client."""
        group.is_standing = True
        for member in group.members:
            self._tasks.limit(member.waiter, member.ends_at)
        self._open_work.count += 1
        self._tasks.start_soon(self._ask_for_members, group)

    async def _ask_for_members(self, group: _Group) -> None:
        try:
            while group.members and (now := trio.current_time()) < group.latest_end:
                if self._open_work.is_ending:
                    return  # The members get `ClosedError` at the close of the client.
                options = replace(group.options, max_messages=group.max_messages)
                if group.is_single:
                    options = replace(options, attempt_id=self._new_attempt_id())
                self._note_request(group)
                messages: list[Message] = []
                with self._open_work.receiving() as group.scope:
                    wait_s = group.latest_end - now
                    messages = await self._receiver.receive(options, wait_s=wait_s)
                if messages:
                    group.asked_at = math.inf
                self._share(group, messages)
        except TidelogError as error:
            group.fail(error)
        except ClosedError:
            return  # It was about to ask as the close of the client began.
        finally:
            group.is_standing, group.scope = False, None
            self._end_request(group)
            self._open_work.ended()

    def _leave(self, group: _Group, member: _Member) -> None:
        """Remove a member; if it asked, a task of the client goes on for the others."""
        group.members.pop(member, None)
        if group.asker is member:
            self._end_request(group)
            self._close(group)
            if group.members:
                self._stand_by(group)
        group.stop_if_empty()

    def _close(self, group: _Group) -> None:
        for key in [key for key, each in self._open.items() if each is group]:
            del self._open[key]

    async def _give_back(self, messages: list[Message]) -> None:
        if messages:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                with suppress(
                    TidelogError, trio.ClosedResourceError
                ):  # Then their leases must expire.
                    await self._settler.settle([each.place for each in messages], RETURN)
