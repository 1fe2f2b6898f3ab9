"""Parts of commits that this broker has appended, until the cluster has recorded them.

Shell: owns the task that reports parts. A commit is answered when the leaders of its partitions
say that all parts are readable; they say so to the broker that has taken the commit. The record in
the metadata only ends the repetition of appends after a crash. So it need not have an entry of its
own: it goes with the next commit of this broker, or 5 s later with all parts of that time.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, final

import trio

from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.commands import FinishedPart, FinishParts
from tidelog.coordinator.metadata.transaction_commands import OPEN_MAX
from tidelog.coordinator.metadata.transactions import (
    AppendedPart,
    TransactionCommitted,
    Transactions,
)
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.raft.membership import check_cluster
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, ConnectionLostError
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.transactions import (
    AppendedPlace,
    AwaitAppendedReply,
    AwaitAppendedRequest,
)
from tidelog.wire.protocol import api

Place = tuple[int, Key]
"""A part: number of the commit, and partition."""
_RETRY_MIN_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_DECIDE_TIMEOUT_S: Final = 10.0
_REPORTED_S: Final = 5.0
"""Maximum seconds for which a part waits for a commit with which it is recorded. A stream with a
micro-batch every few seconds needs no other sync for that. A shred waits for it."""
_REPORTED_COUNT: Final = 100
"""Number of parts that do not wait."""
_PENDING_MAX: Final = OPEN_MAX // 2
"""Number of commits that are not complete, of all brokers, with which no part waits."""
_ASKED_S: Final = 5.0
"""Seconds for which another broker waits for a part."""


class _Finished(NamedTuple):
    part: FinishedPart
    at: float


@final
class FinishedParts:
    """Tells the cluster and waiting commits which parts are appended."""

    def __init__(self, env: Env, cluster: ClusterNode) -> None:
        """Start without parts; `report` must run in a task."""
        self._env = env
        self._cluster = cluster
        self._finished: dict[Place, _Finished] = {}
        self._waiting: dict[Place, trio.Event] = {}
        self._has_finished = trio.Event()
        self._is_urgent = trio.Event()

    @property
    def _transactions(self) -> Transactions:
        return self._cluster.metadata.state.transactions

    @property
    def places(self) -> Collection[Place]:
        """Parts that need no append here: they are finished, and maybe not recorded."""
        return self._finished.keys()

    def add(self, place: Place, leader_epoch: int, *, is_lost: bool = False) -> None:
        """Note a part that is readable at this broker, or lost."""
        if not self._transactions.is_pending(*place):
            return
        part = AppendedPart(place[0], *place[1], is_lost=is_lost)
        self._finished[place] = _Finished(FinishedPart(part, leader_epoch), trio.current_time())
        are_many = (
            len(self._finished) >= _REPORTED_COUNT
            or self._transactions.pending_count >= _PENDING_MAX
        )
        if is_lost or are_many or not self._is_lazy:
            self._is_urgent.set()
        self._has_finished.set()
        if not is_lost:  # Only the controller decides that a part is lost.
            self._wake(place)

    @property
    def _is_lazy(self) -> bool:
        """Whether all brokers ask leaders, instead of waiting for the records."""
        return self._cluster.metadata.state.feature_level >= TransactionCommitted.NEW_LEVEL

    def take(self) -> FinishParts | None:
        """Return the parts to record with a commit; they stay here until they are recorded."""
        if not self._finished:
            return None
        return FinishParts(
            self._cluster.node_id, [finished.part for finished in self._finished.values()]
        )

    def on_metadata(self, delta: BrokerDelta) -> None:
        """Forget recorded parts, and wake those that wait for them."""
        recorded: Collection[Place] = delta.appended_parts
        if delta.is_from_snapshot or delta.reshaped_topics:
            places = [*self._finished, *self._waiting]
            recorded = [each for each in places if not self._transactions.is_pending(*each)]
        for place in recorded:
            self._finished.pop(place, None)
            self._wake(place)

    def _wake(self, place: Place) -> None:
        waiting = self._waiting.pop(place, None)
        if waiting is not None:
            waiting.set()

    async def report(self, start_append: Callable[[Key], None]) -> None:
        """Report parts to the cluster that no commit has recorded, until cancelled.

        `start_append` begins the append of a part again that the cluster has not accepted.
        """
        delay_s = _RETRY_MIN_S
        while True:
            await self._has_finished.wait()
            await self._wait_due()
            command = self.take()
            if command is None:
                continue
            try:
                await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
            except BrokerError as error:
                self._env.probe("staged_part_not_told", severity="warning", reason=str(error))
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MAX_S)
                continue
            delay_s = _RETRY_MIN_S
            for each in command.parts:
                key = (each.part.topic_id, each.part.partition)
                self._finished.pop((each.part.commit_number, key), None)
                start_append(key)

    async def _wait_due(self) -> None:
        """Return when a part has waited long enough, or none is left."""
        while self._finished:
            due_at = next(iter(self._finished.values())).at + _REPORTED_S
            if self._is_urgent.is_set() or trio.current_time() >= due_at:
                self._is_urgent = trio.Event()
                return
            with trio.move_on_at(due_at):
                await self._is_urgent.wait()
        self._has_finished, self._is_urgent = trio.Event(), trio.Event()

    # -- waiting --------------------------------------------------------------------------------

    async def wait_readable(self, commit_number: int) -> None:
        """Wait until all parts of a commit are readable, or recorded as lost."""
        left = self._transactions.parts_left(commit_number)
        places = [(commit_number, key) for key in left if not self._is_readable(commit_number, key)]
        waiting = [self._waiting.setdefault(place, trio.Event()) for place in places]
        if all(self._leader_of(key) == self._cluster.node_id for _, key in places):
            for each in waiting:
                await each.wait()
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_leaders, places)
            for each in waiting:
                await each.wait()
            nursery.cancel_scope.cancel()

    async def await_appended(self, request: AwaitAppendedRequest) -> AwaitAppendedReply:
        """Answer another broker when the parts that are led here are readable.

        Parts that are recorded are no concern of this answer: the asking broker sees the records.

        Raises:
            InvalidRequestError: The node is of another cluster.
        """
        raft = self._cluster.raft
        check_cluster(request.cluster_id, raft.identity, raft.cluster_id)
        number, keys = (
            request.commit_number,
            [(each.topic_id, each.partition) for each in request.parts],
        )
        with trio.move_on_after(min(request.timeout_ms / 1000, _ASKED_S)):
            for key in keys:
                is_recorded = number < self._transactions.next_commit and (
                    not self._transactions.is_pending(number, key)
                )
                is_led = self._leader_of(key) == self._cluster.node_id
                if is_led and not is_recorded and not self._is_readable(number, key):
                    await self._waiting.setdefault((number, key), trio.Event()).wait()
        return AwaitAppendedReply([self._is_readable(number, key) for key in keys])

    def _is_readable(self, commit_number: int, key: Key) -> bool:
        """Return whether this broker has appended a part."""
        known = self._finished.get((commit_number, key))
        return known is not None and not known.part.part.is_lost

    def _leader_of(self, key: Key) -> int | None:
        partition = self._cluster.metadata.state.partition(*key)
        return None if partition is None else partition.leader

    async def _ask_leaders(self, places: Sequence[Place]) -> None:
        """Ask the leaders of parts until cancelled; a part that is readable is woken."""
        while True:
            by_leader: dict[int, list[Place]] = {}
            for place in places:
                leader_id = self._leader_of(place[1])
                is_other = leader_id not in (None, self._cluster.node_id)
                if leader_id is not None and is_other and place in self._waiting:
                    by_leader.setdefault(leader_id, []).append(place)
            if self._is_lazy:
                async with trio.open_nursery() as nursery:
                    for leader_id, asked in by_leader.items():
                        nursery.start_soon(self._ask, leader_id, asked)
            await trio.sleep(_RETRY_MIN_S)

    async def _ask(self, leader_id: int, places: Sequence[Place]) -> None:
        for some in divided(list(places)):
            request = AwaitAppendedRequest(
                self._cluster.raft.cluster_id,
                some[0][0],
                [AppendedPlace(*key) for _, key in some],
                int(_ASKED_S * 1000),
            )
            with suppress(BrokerError, ConnectionLostError):
                reply = await self._cluster.peers.ask(
                    leader_id, api.AWAIT_APPENDED, request, timeout_s=2 * _ASKED_S
                )
                for place, is_appended in zip(some, reply.are_appended, strict=False):
                    if is_appended:
                        self._wake(place)
