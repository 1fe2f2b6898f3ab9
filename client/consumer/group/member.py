"""Member of a consumer group: heartbeats, assigned and revoked partitions, commits.

Shell: owns the tasks of one membership, which run beside the application. `MembershipProtocol`
decides. Revoked partitions are withheld from the application at once; the rest of a change, such as
waiting for the record in hand, callbacks and a last commit, is done one change after the other.
Callbacks never run while the application is at work on a record.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import trio

from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.config import ConsumerConfig, RebalanceCallback
from tidelog.client.consumer.fetch.fetcher import Fetcher
from tidelog.client.consumer.fetch.offset_reset import reset_offsets
from tidelog.client.consumer.group.committed_offsets import CommittedOffsets, CommittedPosition
from tidelog.client.consumer.group.membership_protocol import (
    GroupPartition,
    HeartbeatDue,
    MembershipEnded,
    MembershipEvent,
    MembershipProtocol,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    ConnectionLostError,
    RequestTimedOutError,
    RetriableError,
    TidelogError,
    UnknownPartitionError,
    UnknownTopicError,
    WireFormatError,
)
from tidelog.wire.messages.groups import (
    JOIN_EPOCH,
    CommitOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    Subscription,
)
from tidelog.wire.protocol import api

_HEARTBEAT_PATIENCE_S = 10.0
"""Seconds without a reply after which the coordinator is looked up again, well before a lease ends.
"""
_BUSY_S = 30.0
"""Poll interval that a heartbeat requests while the application is at work: less than a session, so
that a process that dies meanwhile is fenced no later."""
_LEAVE_PATIENCE_S = 5.0
"""Seconds for which a member tries to leave; after that its session has to expire."""
_STARVED_S = 2.0
"""Seconds after which an application that never awaits is made to do so."""
_LEAVE_S = 1.0
"""Seconds for which a cancelled member commits and leaves."""
_PLACE_PATIENCE_S = 5.0
_PLACE_AGAIN_S = 0.5
_NEEDED = [api.GROUP_HEARTBEAT.key, api.FETCH_OFFSETS.key, api.LIST_OFFSETS.key]
"""APIs without which a member gets no partitions."""
_NOT_NOW = (
    ConnectionLostError,
    RetriableError,
    UnknownPartitionError,
    UnknownTopicError,
    WireFormatError,
)
"""Errors while the start is unknown; the group revokes partitions of deleted topics."""


class _Change(NamedTuple):
    """Event that is still to be handled."""

    member_id: str
    """Member id at the time of the event; an event of an earlier member id is stale."""
    event: MembershipEvent


@final
class GroupMember:
    """Membership of one consumer in its group."""

    def __init__(
        self,
        cluster: ClusterClient,
        fetcher: Fetcher,
        membership: MembershipProtocol,
        *,
        group_id: str,
        config: ConsumerConfig,
    ) -> None:
        """Start outside of the group; `open` joins."""
        self.offsets = CommittedOffsets(cluster, fetcher, membership, group_id=group_id)
        self._cluster = cluster
        self._rebalances = cluster.counters.consumers.rebalances
        self._fetcher = fetcher
        self._membership = membership
        self._group_id = group_id
        self._config = config
        self._changes: deque[_Change] = deque()
        """Events that are still to be handled, with their member ids."""
        self._has_changes = trio.Event()
        self._wake_heart = trio.Event()
        self._heard = trio.Event()
        self._over = trio.Event()
        self._scope = trio.CancelScope()
        self._told: set[TopicPartition] = set()
        """Partitions that the application knows of, by `on_assigned` if there is one."""
        self._is_calling = False
        self._is_leaving = False
        self._has_failed = False
        self._heartbeat_failure: TidelogError | None = None
        self._last_progress: object = None
        self._busy_until = 0.0
        self._told_busy_until = 0.0
        self._pulse_at = 0.0
        """Time at which tasks of this member last had a chance to run."""
        fetcher.may_hand_out = self._may_hand_out
        fetcher.is_starved = self._is_starved

    async def open(self) -> None:
        """Join.

        Raises:
            TidelogError: The group refuses, or no broker answered within `request_timeout`.
            ClosedError: The client is closed.
        """
        self._cluster.tasks.require_open()
        self._cluster.tasks.start_soon(self._run)
        try:
            await self._wait_joined()
        except BaseException:
            self._abandon()
            raise

    async def close(self) -> None:
        """Release all partitions, commit, and leave; if cancelled, in no more than a second."""
        self._is_leaving = True
        self._fetcher.rewind()
        if not self._membership.is_over:
            is_static = self._config.group_instance_id is not None
            now = trio.current_time()
            self._handle_events(self._membership.leave(now, is_restart=is_static))
        self._fetcher.wake()
        self._wake_heart.set()
        try:
            await self._over.wait()
        except trio.Cancelled:
            with trio.CancelScope(deadline=trio.current_time() + _LEAVE_S, shield=True):
                await self._over.wait()
            raise
        finally:
            self._abandon()

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription."""
        self._membership.subscribe(subscription, trio.current_time())
        self._wake_heart.set()

    async def extend_poll_interval(self, seconds: float) -> None:
        """Announce `seconds` of silence to the group; return when the group knows."""
        now = trio.current_time()
        self._busy_until = until = now + seconds
        self._membership.hurry(now)
        self._wake_heart.set()
        while self._told_busy_until < until and not self._over.is_set():
            await self._cluster.tasks.wait(self._heard)
        self._cluster.tasks.require_open()

    def _may_hand_out(self) -> bool:
        return not self._is_calling and self._membership.may_process(trio.current_time())

    def _is_starved(self) -> bool:
        return trio.current_time() > self._pulse_at + _STARVED_S

    async def _run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_pulse)
                    nursery.start_soon(self._beat)
                    nursery.start_soon(self._keep_to_lease)
                    nursery.start_soon(self._handle_changes, nursery)
                    if self._config.enable_auto_commit:
                        nursery.start_soon(self._commit_regularly)
        finally:  # Wakes waiting callers, also when the client is closed.
            self._over.set()
            self._heard.set()

    def _abandon(self) -> None:
        """End all tasks; send a last commit and leave without waiting, if that was not done."""
        self._scope.cancel()
        if self._membership.is_over:
            return
        commits: list[CommitOffsetsRequest] = []
        if self._config.enable_auto_commit and not self._has_failed:
            self._fetcher.rewind()
            commits = self.offsets.last_requests()
        leave_request = self._membership.abandon()
        node_id = self._cluster.metadata.controller_id
        connection = None if node_id is None else self._cluster.live_connection(node_id)
        if connection is None or leave_request is None:
            return
        for commit in commits:
            connection.submit(api.COMMIT_OFFSETS, commit, _ignore)
        connection.submit(api.GROUP_HEARTBEAT, leave_request, _ignore)

    async def _wait_joined(self) -> None:
        with trio.move_on_after(self._cluster.config.request_timeout):
            while self._membership.member_epoch == JOIN_EPOCH and not self._over.is_set():
                await self._cluster.tasks.wait(self._heard)
        if self._membership.member_epoch == JOIN_EPOCH:
            self._cluster.tasks.require_open()
            failure = self._fetcher.failure or self._heartbeat_failure
            raise failure or RequestTimedOutError(f"group {self._group_id} does not answer")

    # Heartbeats.

    async def _beat(self) -> None:
        while not self._membership.is_over:
            now = trio.current_time()
            self._note_work(now)
            heartbeat = self._membership.next_heartbeat(now)
            if heartbeat is not None:
                await self._send(heartbeat)
                continue
            self._wake_heart = trio.Event()
            with trio.CancelScope(deadline=self._membership.next_heartbeat_at()):
                await self._wake_heart.wait()

    async def _keep_pulse(self) -> None:
        while True:
            self._pulse_at = trio.current_time()
            due_at = self._pulse_at + _STARVED_S / 2
            await trio.sleep_until(due_at)
            self._cluster.blocked_loop.woke(due_at)

    async def _send(self, heartbeat: HeartbeatDue) -> None:
        membership = self._membership
        busy_until = self._busy_until
        try:
            reply = await self._ask(heartbeat.request)
        except TidelogError as error:
            self._heartbeat_failure = error
            if isinstance(error, STALE_METADATA_ERRORS):
                self._cluster.request_refresh((), because=error)
            self._handle_events(membership.failed(heartbeat.number, error, trio.current_time()))
            self._fail_if_misread(self._cluster.metadata.controller_id)
        else:
            self._heartbeat_failure = None
            self._told_busy_until = busy_until
            self._handle_events(membership.answered(heartbeat.number, reply, trio.current_time()))
        heard, self._heard = self._heard, trio.Event()
        heard.set()
        self._fetcher.wake()

    async def _ask(self, request: GroupHeartbeatRequest) -> GroupHeartbeatReply:
        cluster = self._cluster
        if request.member_epoch < JOIN_EPOCH:  # It leaves; there is no other chance.
            with trio.move_on_after(_LEAVE_PATIENCE_S):
                return await cluster.call_controller(
                    api.GROUP_HEARTBEAT, request, is_repeatable=True
                )
            raise RequestTimedOutError(f"group {self._group_id} did not answer a leave request")
        connection = await cluster.controller_connection()
        return await cluster.call_once(
            connection, api.GROUP_HEARTBEAT, request, patience=_HEARTBEAT_PATIENCE_S
        )

    def _note_work(self, now: float) -> None:
        """Report whether the application works on the same record as at the last heartbeat."""
        progress = self._fetcher.progress
        is_at_work = self._fetcher.in_flight_partition is not None and not self._is_leaving
        is_same = progress == self._last_progress or bool(self._membership.releasing)
        self._last_progress = progress
        until = now + _BUSY_S if is_at_work and is_same else 0.0
        self._membership.busy(max(until, self._busy_until))

    async def _keep_to_lease(self) -> None:
        """Stop handing out records when the coordinator was silent for too long."""
        while True:
            await trio.sleep_until(self._membership.lease_end)
            if not self._membership.may_process(trio.current_time()):
                self._fetcher.interrupt()
                await self._heard.wait()

    # Changes of the assignment.

    def _handle_events(self, events: Sequence[MembershipEvent]) -> None:
        """Apply what must not wait, and queue the rest."""
        for event in events:
            match event:
                case PartitionsRevoked():
                    self._fetcher.stop(_places(event.partitions))
                case PartitionsLost():
                    self._fetcher.stop(_places(event.partitions))
                    self._fetcher.forget(_places(event.partitions))
                    self.offsets.forget(_places(event.partitions))
                case MembershipEnded():
                    self._fetcher.failure = self._fetcher.failure or event.error
                case PartitionsAssigned():
                    pass
            self._changes.append(_Change(self._membership.member_id, event))
        if events:
            self._has_changes.set()
            self._fetcher.wake()
            self._wake_heart.set()

    async def _handle_changes(self, nursery: trio.Nursery) -> None:
        while not self._over.is_set():
            while self._changes:
                member_id, event = self._changes.popleft()
                await self._handle_change(event, member_id, nursery)
            self._has_changes = trio.Event()
            if not self._over.is_set():
                await self._has_changes.wait()

    async def _handle_change(
        self, event: MembershipEvent, member_id: str, nursery: trio.Nursery
    ) -> None:
        match event:
            case PartitionsRevoked():
                await self._revoke(event.partitions, member_id)
            case PartitionsAssigned():
                later = await self._assign(event.partitions, member_id)
                if later:
                    nursery.start_soon(self._assign_later, later, member_id)
            case PartitionsLost():
                lost = _places(event.partitions)
                self._rebalances["lost"] += 1
                self._probe("group.lost", lost, severity="warning")
                await self._call(self._config.on_lost, self._tell_of_end(lost), _always)
            case MembershipEnded():
                self._scope.cancel()

    async def _revoke(self, partitions: Sequence[GroupPartition], member_id: str) -> None:
        places = _places(partitions)

        def is_current() -> bool:
            return self._membership.member_id == member_id

        while self._fetcher.in_flight_partition in places and is_current():
            await self._fetcher.wait_finished()
        told = [tp for tp in places if tp in self._told]
        await self._call(self._config.on_revoked, told, is_current)
        if not is_current():
            return  # They are lost; the next event says so.
        if self._config.enable_auto_commit and not self._has_failed:
            try:
                await self.offsets.commit_processed(places)
            except TidelogError as error:
                # Other members start at the last commit: records are repeated, none is skipped.
                self._probe("group.commit_failed", places, severity="warning", reason=str(error))
        if is_current():
            self._tell_of_end(places)
            self._fetcher.forget(places)
            self.offsets.forget(places)
            self._rebalances["revoked"] += 1
            self._probe("group.revoked", places)
            self._handle_events(self._membership.released(partitions, trio.current_time()))
            self._wake_heart.set()

    async def _assign(
        self, partitions: Sequence[GroupPartition], member_id: str
    ) -> list[GroupPartition]:
        """Start to read; return the partitions whose start is not known yet."""
        found = await self._find_places(self._still_owned(partitions, member_id))
        owned = self._still_owned(partitions, member_id)
        ready = [one for one in owned if _place(one) in found]
        for one in ready:
            start = found[_place(one)]
            self._fetcher.stage(
                _place(one), one.topic_id, start.offset, leader_epoch=start.leader_epoch
            )

        def is_current() -> bool:
            return bool(self._still_owned(ready, member_id))

        if self._config.on_assigned is not None and ready:
            self._told.update(_places(ready))
            await self._call(self._config.on_assigned, _places(ready), is_current)
        begun = _places(self._still_owned(ready, member_id))
        if begun:
            self._told.update(begun)
            self._rebalances["assigned"] += 1
            self._probe("group.assigned", begun)
            self._fetcher.begin(begun)
        return [one for one in owned if _place(one) not in found]

    async def _assign_later(self, partitions: list[GroupPartition], member_id: str) -> None:
        await trio.sleep(_PLACE_AGAIN_S)
        metadata = self._cluster.metadata
        leaders = {metadata.leader_of(each.topic, each.partition) for each in partitions}
        for node_id in (metadata.controller_id, *leaders):
            self._fail_if_misread(node_id)
        self._changes.append(_Change(member_id, PartitionsAssigned(tuple(partitions))))
        self._has_changes.set()

    def _still_owned(
        self, partitions: Sequence[GroupPartition], member_id: str
    ) -> list[GroupPartition]:
        membership = self._membership
        if membership.member_id != member_id:
            return []
        kept = membership.owned - membership.releasing
        return [one for one in partitions if one in kept]

    async def _find_places(
        self, partitions: Sequence[GroupPartition]
    ) -> dict[TopicPartition, CommittedPosition]:
        """Return the starts of partitions, as far as they are known now.

        One without an offset means that the application has to seek.
        """
        found: dict[TopicPartition, CommittedPosition] = {}
        if not partitions:
            return found
        reset = self._config.auto_offset_reset
        missing: list[TopicPartition] = []
        with trio.move_on_after(_PLACE_PATIENCE_S):
            try:
                committed = await self.offsets.fetch(partitions)
                missing = [tp for tp, each in committed.items() if each.offset is None]
                found |= {tp: each for tp, each in committed.items() if each.offset is not None}
                placed = await reset_offsets(self._cluster, missing, reset)
                found |= {tp: CommittedPosition(offset) for tp, offset in placed.items()}
            except _NOT_NOW as error:
                self._probe(
                    "group.place_unknown",
                    _places(partitions),
                    severity="warning",
                    reason=str(error),
                )
                # The topic may be new or have new partitions: the group learns that first.
                self._cluster.request_refresh({tp.topic for tp in missing})
            except TidelogError as error:
                self._fail(error)
        return found

    def _tell_of_end(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that the application knows of, and remove them."""
        known = [tp for tp in places if tp in self._told]
        self._told.difference_update(known)
        return known

    async def _call(
        self,
        callback: RebalanceCallback | None,
        places: Sequence[TopicPartition],
        is_current: Callable[[], bool],
    ) -> None:
        """Call back when the application is not at work, unless the change is out of date."""
        if callback is None or not places or self._has_failed:
            return
        # No further record is handed out: otherwise a busy application would never be idle.
        self._is_calling = True
        self._fetcher.interrupt()
        try:
            while self._fetcher.in_flight_partition is not None and is_current():
                await self._fetcher.wait_finished()
            if is_current():
                await callback(list(places))
        except Exception as error:  # noqa: BLE001  (the next read raises it)
            self._fail(error)
        finally:
            self._is_calling = False
            self._fetcher.wake()

    def _fail_if_misread(self, node_id: int | None) -> None:
        """Stop if the replies of a broker were wrong for `request_timeout`."""
        error = self._cluster.lasting_wrong_reply(node_id, _NEEDED)
        if error is not None:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Stop with an error of the application; nothing more is committed."""
        self._has_failed = True
        self._fetcher.failure = self._fetcher.failure or error
        if not self._membership.is_over:
            self._handle_events(self._membership.leave(trio.current_time()))
            self._wake_heart.set()

    async def _commit_regularly(self) -> None:
        while True:
            await trio.sleep(self._config.auto_commit_interval)
            try:
                await self.offsets.commit_processed()
            except TidelogError as error:
                self._probe("group.commit_failed", (), severity="warning", reason=str(error))

    def _probe(self, event: str, places: Sequence[TopicPartition], **fields: object) -> None:
        self._cluster.env.probe(
            event,
            group_id=self._group_id,
            member_id=self._membership.member_id,
            partitions=[f"{tp.topic}/{tp.partition}" for tp in places],
            **fields,
        )


def _place(partition: GroupPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _places(partitions: Sequence[GroupPartition]) -> list[TopicPartition]:
    return [_place(one) for one in partitions]


def _always() -> bool:
    return True


def _ignore(outcome: object) -> None:
    """Drop the outcome: no caller waits for it."""
