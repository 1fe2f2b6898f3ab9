"""The queue of commits of consumer groups: many commits become one entry of the log.

Shell around `ConsumerGroups.commit_offsets`. While one entry is being committed, later commits are
collected for the next. So the log has one entry of commits under way at a time, of bounded size,
however many arrive. Other commands never wait behind more than that.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, final

import trio

from tidelog.coordinator.controller.replicated_state import COMMIT_TIMEOUT_S, not_committed
from tidelog.coordinator.group_coordinator.leadership import GroupLeadership
from tidelog.coordinator.groups.commits import CommitResult, OffsetRange
from tidelog.coordinator.groups.partitions import Partition
from tidelog.wire.env.env import Env
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import BrokerError, InvalidRequestError, OverloadedError
from tidelog.wire.messages.groups import CommitOffsetsRequest

BATCH_BYTES_MAX: Final = 32 * 1024
"""Maximum of commits in one entry; one request always fits. Few enough that nothing else waits for
long while they are applied and answered, and enough that they cost less than one by one."""
REQUEST_BYTES_MAX: Final = 512 * 1024
QUEUE_BYTES_MAX: Final = 512 * 1024
"""Maximum of waiting commits: half a second of work for a busy core. More are refused, and may be
retried; so other work of this node does not wait longer either."""
Done = Callable[[CommitResult], None]

_REQUEST_BYTES = 64
_OFFSET_BYTES = 48
_UTF8_BYTES_MAX = 4


@final
class CommitQueue:
    """Commits that wait for an entry of the log."""

    def __init__(
        self, env: Env, leadership: GroupLeadership, exists: Callable[[Partition], bool]
    ) -> None:
        """Commit through `leadership`; `run` must run in a task of its own.

        `exists` returns whether a partition exists. A topic may have been deleted since its log
        bounds were requested; then a commit to it must not be stored.
        """
        self._env = env
        self._leadership = leadership
        self._exists = exists
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._entry: _Entry | None = None
        """The entry under way."""
        self._is_lone = True
        """Whether the last entry had one commit, and no other waited for its end."""
        self._now_s = loop_clock()
        self._wake = trio.Event()
        self._looks_at = math.inf
        """Time at which `run` looks at the entry under way, if nothing wakes it before."""

    def put(
        self, request: CommitOffsetsRequest, ranges: Mapping[Partition, OffsetRange], done: Done
    ) -> None:
        """Store a group's offsets; call `done` when they are durable on a majority, or refused.

        Args:
            request: The commit.
            ranges: Bounds of the partitions in it, as far as they are known.
            done: Gets the reply, or the error of the whole commit; synchronous, must not raise.

        Raises:
            InvalidRequestError: The commit is too large.
            OverloadedError: Too many commits wait already.
        """
        size = _size_of(request)
        if size > REQUEST_BYTES_MAX:
            raise InvalidRequestError(
                f"a commit of {len(request.offsets)} partitions is too large; use several"
            )
        if self._waiting and self._bytes + size > QUEUE_BYTES_MAX:
            raise OverloadedError("too many commits wait to be stored; try again")
        self._waiting.append(_Waiting(request, ranges, size, done))
        self._bytes += size
        if self._entry is None and self._is_lone:
            self._begin()
        elif self._entry is None:
            self._wake.set()

    async def run(self) -> None:
        """Store commits that came together, and time out; until cancelled."""
        while True:
            entry = self._entry
            if entry is None and self._waiting:
                self._begin()
            elif entry is not None and entry.must_wait:
                await self._settle(entry)
            elif entry is not None and entry.deadline <= self._now_s():
                self._end(entry, not_committed())
            else:
                self._wake = trio.Event()
                self._looks_at = math.inf if entry is None else entry.deadline
                with trio.CancelScope(deadline=self._looks_at):
                    await self._wake.wait()

    def _begin(self) -> None:
        """Propose the next entry.

        A commit that is alone gets here in the task of its connection: no task begins or ends it.
        If commits come together, `run` begins after all tasks of this turn of the loop.
        """
        batch = self._take()
        try:
            results = self._decide(batch)
        except BrokerError as error:
            _answer(batch, [error] * len(batch))
            return
        entry = self._entry = _Entry(batch, results, self._now_s() + COMMIT_TIMEOUT_S)
        if not self._leadership.when_settled(partial(self._told, entry)):
            entry.must_wait = True
            self._wake.set()
        elif self._looks_at > entry.deadline:
            self._wake.set()

    def _told(self, entry: "_Entry", error: BrokerError | None) -> None:
        if entry is not self._entry:
            return  # It has timed out.
        if error is None and not self._leadership.is_confirmed:
            entry.must_wait = True
            self._wake.set()
        else:
            self._end(entry, error)

    async def _settle(self, entry: "_Entry") -> None:
        try:
            await self._leadership.settled()
        except BrokerError as error:
            self._end(entry, error)
        else:
            self._end(entry, None)

    def _end(self, entry: "_Entry", error: BrokerError | None) -> None:
        """Answer the commits of an entry, and begin the next one."""
        self._entry = None
        self._is_lone = len(entry.batch) == 1 and not self._waiting
        _answer(entry.batch, entry.results if error is None else [error] * len(entry.batch))
        while self._waiting and self._entry is None:
            self._begin()

    def _take(self) -> "list[_Waiting]":
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= BATCH_BYTES_MAX):
            size += self._waiting[0].size
            batch.append(self._waiting.popleft())
        self._bytes -= size
        return batch

    def _decide(self, batch: "list[_Waiting]") -> list[CommitResult]:
        state = self._leadership.leading().state
        ranges: dict[Partition, OffsetRange] = {}
        for waiting in batch:
            ranges |= {one: found for one, found in waiting.ranges.items() if self._exists(one)}
        outcome = state.commit_offsets(
            [waiting.request for waiting in batch], ranges, self._env.clock.now_ms()
        )
        self._leadership.carry_out(outcome.records)
        return outcome.reply


@final
class _Entry:
    """An entry under way, and the replies for its end."""

    __slots__ = ("batch", "deadline", "must_wait", "results")

    def __init__(
        self, batch: "list[_Waiting]", results: list[CommitResult], deadline: float
    ) -> None:
        self.batch = batch
        self.results = results
        self.deadline = deadline
        self.must_wait = False
        """Whether its end depends on more than its commit, for which `run` waits."""


class _Waiting(NamedTuple):
    """A commit that waits."""

    request: CommitOffsetsRequest
    ranges: Mapping[Partition, OffsetRange]
    size: int
    done: Done


def _answer(batch: "list[_Waiting]", results: Sequence[CommitResult]) -> None:
    for waiting, result in zip(batch, results, strict=True):
        waiting.done(result)


def _size_of(request: CommitOffsetsRequest) -> int:
    """Return an upper bound of the commit's size in an entry."""
    size = _REQUEST_BYTES + _UTF8_BYTES_MAX * (len(request.group_id) + len(request.member_id))
    for commit in request.offsets:
        length = len(commit.metadata)
        size += _OFFSET_BYTES
        size += length if commit.metadata.isascii() else _UTF8_BYTES_MAX * length
    return size
