"""Committed offsets of a group, as one member reads and commits them.

Shell: sends requests to the controller, and repeats them while that may help.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.consumer.fetch.fetcher import Fetcher
from tidelog.client.consumer.group.membership_protocol import GroupPartition, MembershipProtocol
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    BrokerError,
    ErrorDetail,
    PartitionNotOwnedError,
    RetriableError,
    StaleMemberEpochError,
    TidelogError,
    UnknownMemberError,
    from_wire,
)
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    FetchOffsetsRequest,
    PartitionCommit,
    PartitionCommittedOffset,
    TopicPartitions,
)
from tidelog.wire.protocol import api


class CommittedPosition(NamedTuple):
    """Committed offset of one partition."""

    offset: int | None
    """Offset of the next record to process; `None` if nothing was committed."""
    leader_epoch: int | None = None
    """Leader epoch of the last record below, `None` if not known."""
    metadata: str = ""
    """Metadata that was committed with the offset."""


async def fetch_committed(
    cluster: ClusterClient, group_id: str, wanted: Sequence[GroupPartition]
) -> dict[TopicPartition, int | None]:
    """Return the committed offsets of a group, `None` where nothing was committed.

    Raises:
        TidelogError: No broker answered.
    """
    found = await fetch_positions(cluster, group_id, wanted)
    return {tp: each.offset for tp, each in found.items()}


async def fetch_positions(
    cluster: ClusterClient, group_id: str, wanted: Sequence[GroupPartition]
) -> dict[TopicPartition, CommittedPosition]:
    """Return the committed positions of a group; see `fetch_committed`."""
    found: dict[tuple[bytes, int], PartitionCommittedOffset] = {}
    for part in divided(wanted):
        request = FetchOffsetsRequest(
            group_id, [TopicPartitions(one.topic_id, [one.partition]) for one in part]
        )
        reply = await cluster.call_controller(api.FETCH_OFFSETS, request, is_repeatable=True)
        found |= {(each.topic_id, each.partition): each for each in reply.offsets}
    return {_place(one): _committed(found, one.topic_id, one.partition) for one in wanted}


@final
class CommittedOffsets:
    """Commits of one member.

    Invariant: one commit is in flight at a time, so that none can overtake another.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        fetcher: Fetcher,
        membership: MembershipProtocol,
        *,
        group_id: str,
    ) -> None:
        """Commit for `membership` the records that the application of `fetcher` has processed."""
        self._cluster = cluster
        self._fetcher = fetcher
        self._membership = membership
        self._group_id = group_id
        self._turn = trio.Lock()
        self._committed: dict[TopicPartition, int | None] = {}
        """Committed offsets of owned partitions, as far as they are known."""
        self._counted: dict[TopicPartition, int | None] = {}
        """Processed offset of each partition at its last commit, automatic or manual. While it does
        not change, a manual choice further on or further back stays committed."""

    async def fetch(
        self, wanted: Sequence[GroupPartition]
    ) -> dict[TopicPartition, CommittedPosition]:
        """Return the committed offsets of assigned partitions; see `fetch_committed`."""
        found = await fetch_positions(self._cluster, self._group_id, wanted)
        self._committed |= {tp: each.offset for tp, each in found.items()}
        return found

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the committed offsets of partitions that were revoked or lost."""
        for tp in partitions:
            self._committed.pop(tp, None)
            self._counted.pop(tp, None)

    async def commit(
        self, offsets: Mapping[tuple[str, int], int] | None, metadata: str = ""
    ) -> None:
        """Commit these offsets, or all that was handed out; see `Consumer.commit`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if offsets is None:
            self._fetcher.ack()
            await self.commit_processed()
            return
        owned = self._owned()
        chosen: dict[GroupPartition, int] = {}
        for (topic, partition), offset in offsets.items():
            tp = TopicPartition(topic, partition)
            if tp not in owned:
                raise PartitionNotOwnedError(
                    f"{topic}/{partition} is not one of this member's partitions (any more)"
                )
            chosen[owned[tp]] = offset
        await self._take_turn()
        try:
            await self._send(chosen, metadata)
        finally:
            self._turn.release()

    async def commit_processed(self, only: Iterable[TopicPartition] | None = None) -> None:
        """Commit processed offsets that were not committed yet, of some partitions or of all.

        Raises:
            PartitionNotOwnedError: Other members have a partition now.
            TidelogError: No broker answered.
        """
        await self._take_turn()
        try:
            await self._send(self._due(only))
        finally:
            self._turn.release()

    async def _take_turn(self) -> None:
        """Wait until no other commit is under way; without one, that takes no turn of the loop."""
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()

    def last_requests(self) -> list[CommitOffsetsRequest]:
        """Return commits of all that is due, for callers that cannot wait for the replies."""
        due = self._due(None)
        return [self._request(dict(part)) for part in divided(list(due.items()))] if due else []

    def _owned(self) -> dict[TopicPartition, GroupPartition]:
        return {_place(one): one for one in sorted(self._membership.owned)}

    def _due(self, only: Iterable[TopicPartition] | None) -> dict[GroupPartition, int]:
        owned = self._owned()
        due: dict[GroupPartition, int] = {}
        for tp in owned if only is None else only:
            offset = self._fetcher.processed(tp)
            is_known = offset in (None, self._committed.get(tp), self._counted.get(tp))
            if tp in owned and offset is not None and not is_known:
                due[owned[tp]] = offset
        return due

    def _request(
        self, offsets: Mapping[GroupPartition, int], metadata: str = ""
    ) -> CommitOffsetsRequest:
        membership = self._membership
        return CommitOffsetsRequest(
            self._group_id,
            membership.member_id,
            membership.member_epoch,
            membership.next_commit_sequence(),
            [
                PartitionCommit(
                    one.topic_id,
                    one.partition,
                    offset,
                    self._fetcher.leader_epoch_before(_place(one), offset),
                    metadata,
                )
                for one, offset in offsets.items()
            ],
        )

    async def _send(self, offsets: Mapping[GroupPartition, int], metadata: str = "") -> None:
        """Commit offsets, if there are any; a checkpoint."""
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        failure: TidelogError | None = None
        for part in divided(list(offsets.items())):
            failure = failure or await self._send_part(dict(part), metadata)
        if failure is not None:
            raise failure

    async def _send_part(
        self, offsets: Mapping[GroupPartition, int], metadata: str
    ) -> TidelogError | None:
        """Commit offsets in one request; return the first refusal of a partition."""
        counters = self._cluster.counters.consumers
        counted = {one: self._fetcher.processed(_place(one)) for one in offsets}
        try:
            reply = await self._ask(self._request(offsets, metadata))
        except TidelogError as error:
            counters.committed(error)
            raise
        failure: TidelogError | None = None
        for (one, offset), result in zip(offsets.items(), reply.results, strict=True):
            tp = _place(one)
            if result.error is not None:
                failure = failure or _refusal(tp, result.error)
            elif one in self._membership.owned:
                self._committed[tp] = offset
                self._counted[tp] = counted[one]
        counters.committed(failure)
        return failure

    async def _ask(self, request: CommitOffsetsRequest) -> CommitOffsetsReply:
        """Send this commit, several times if needed."""

        async def attempt() -> CommitOffsetsReply:
            connection = await self._cluster.controller_connection()
            reply = await self._cluster.call_once(connection, api.COMMIT_OFFSETS, request)
            for result in reply.results:
                error = None if result.error is None else from_wire(result.error)
                if isinstance(error, RetriableError):  # The end of a log was not available.
                    raise error
            return reply

        try:
            return await self._cluster.retry(attempt, is_repeatable=True)
        except UnknownMemberError as gone:
            raise PartitionNotOwnedError(
                "the group took this member for dead and gave its partitions to others, which begin"
                " at the last commit; this member joins again by itself"
            ) from gone


def _place(partition: GroupPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _refusal(tp: TopicPartition, detail: ErrorDetail) -> BrokerError:
    error = from_wire(detail)
    if isinstance(error, StaleMemberEpochError):
        error = PartitionNotOwnedError(
            f"{tp.topic}/{tp.partition} was others' in the meantime: {error}"
        )
    error.at = tp
    return error


def _committed(
    found: Mapping[tuple[bytes, int], PartitionCommittedOffset], topic_id: bytes, partition: int
) -> CommittedPosition:
    committed = found.get((topic_id, partition))
    if committed is None:
        return CommittedPosition(None)
    return CommittedPosition(committed.offset, committed.leader_epoch, committed.metadata)
