"""The queue of commits of consumer groups: many commits become one entry of the log.

Shell around `ConsumerGroups.commit_offsets`. While one entry is being committed, later commits are
collected for the next. So the log has one entry of commits under way at a time, of bounded size,
however many arrive. Other commands never wait behind more than that.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, final

import trio

from tidelog.coordinator.group_coordinator.leadership import GroupLeadership
from tidelog.coordinator.groups.commits import CommitResult, OffsetRange
from tidelog.coordinator.groups.partitions import Partition
from tidelog.wire.env.env import Env
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
        self._has_work = trio.Event()

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
        self._has_work.set()

    async def run(self) -> None:
        """Store commits until cancelled."""
        while True:
            await self._has_work.wait()
            batch = self._take()
            try:
                results = await self._store(batch)
            except BrokerError as error:
                results = [error] * len(batch)
            for waiting, result in zip(batch, results, strict=True):
                waiting.done(result)
            if not self._waiting:
                self._has_work = trio.Event()

    def _take(self) -> "list[_Waiting]":
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= BATCH_BYTES_MAX):
            size += self._waiting[0].size
            batch.append(self._waiting.popleft())
        self._bytes -= size
        return batch

    async def _store(self, batch: "list[_Waiting]") -> list[CommitResult]:
        state = self._leadership.leading().state
        ranges: dict[Partition, OffsetRange] = {}
        for waiting in batch:
            ranges.update(waiting.ranges)
        ranges = {one: offset_range for one, offset_range in ranges.items() if self._exists(one)}
        outcome = state.commit_offsets(
            [waiting.request for waiting in batch], ranges, self._env.clock.now_ms()
        )
        self._leadership.carry_out(outcome.records)
        await self._leadership.settled()
        return outcome.reply


class _Waiting(NamedTuple):
    """A commit that waits."""

    request: CommitOffsetsRequest
    ranges: Mapping[Partition, OffsetRange]
    size: int
    done: Done


def _size_of(request: CommitOffsetsRequest) -> int:
    """Return an upper bound of the commit's size in an entry."""
    size = _REQUEST_BYTES + _UTF8_BYTES_MAX * (len(request.group_id) + len(request.member_id))
    for commit in request.offsets:
        length = len(commit.metadata)
        size += _OFFSET_BYTES
        size += length if commit.metadata.isascii() else _UTF8_BYTES_MAX * length
    return size
