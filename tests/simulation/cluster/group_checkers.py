"""Checkers of consumer groups: one owner for each partition, and stable commits.

Definitions use committed records, and the replies and actions of members.
"""

from collections.abc import Iterable, Sequence
from typing import final

import pytest

from tests.simulation.cluster import cluster_history
from tests.simulation.cluster.cluster_history import GroupCommit, NodeChecker, Work
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    GroupDeleted,
    MemberJoined,
    MemberLeft,
    OffsetsCommitted,
    OffsetsReset,
    StaticMemberReplaced,
    TopicForgotten,
)
from tidelog.wire.messages.groups import TopicPartitions


@pytest.mark.invariant("I76")
@final
class OneOwner(NodeChecker):
    """A partition has one owner in a group at a time, and only the owner works on it.

    Definition: by committed records, a partition is assigned to a member only if it has no owner.
    An owner loses it by a revocation, by leaving, or to a newer process of the same static member.
    A member that receives records of a partition owns it at that moment, and no other member
    commits there.
    """

    def __init__(self) -> None:
        """Start without owners."""
        self._owners: dict[tuple[str, cluster_history.Partition], str] = {}
        self._client_names: dict[str, str] = {}

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`."""
        for record in records:
            match record:
                case AssignmentChanged():
                    self._change(index, record)
                case OffsetsCommitted() if record.member_id:
                    self._check_commit(index, record)
                case MemberJoined() | StaticMemberReplaced() | MemberLeft():
                    self._note_member(record)
                case GroupDeleted():
                    gone = [key for key in self._owners if key[0] == record.group_id]
                    for key in gone:
                        del self._owners[key]
                case _:
                    pass

    def worked(self, work: Work) -> None:
        """See `NodeChecker`."""
        owner = self._owners.get((work.group_id, work.partition))
        name = "no member" if owner is None else self._client_names[owner]
        if name != work.client_id:
            self.fail(f"{work.client_id} gets records of {work.partition}, owned by {name}")

    def _change(self, index: int, record: AssignmentChanged) -> None:
        for partition in _unpacked(record.released):
            owner = self._owners.pop((record.group_id, partition), None)
            if owner != record.member_id:
                self.fail(f"entry {index} takes {partition} from {record.member_id}, not {owner}")
        for partition in _unpacked(record.given):
            owner = self._owners.setdefault((record.group_id, partition), record.member_id)
            if owner != record.member_id:
                self.fail(
                    f"entry {index} gives {partition} to {record.member_id}, and {owner} has it"
                )

    def _check_commit(self, index: int, record: OffsetsCommitted) -> None:
        for commit in record.offsets:
            partition = (commit.topic_id, commit.partition)
            owner = self._owners.get((record.group_id, partition))
            if owner != record.member_id:
                self.fail(
                    f"entry {index} has a commit of {record.member_id} for {partition}, which"
                    f" {owner} has"
                )

    def _note_member(self, record: MemberJoined | StaticMemberReplaced | MemberLeft) -> None:
        if isinstance(record, MemberLeft):
            self._rename(record.group_id, record.member_id, None)
            return
        self._client_names[record.member_id] = record.client_id
        if isinstance(record, StaticMemberReplaced):
            self._rename(record.group_id, record.old_member_id, record.member_id)

    def _rename(self, group_id: str, old: str, new: str | None) -> None:
        for key, owner in list(self._owners.items()):
            if key[0] == group_id and owner == old:
                if new is None:
                    del self._owners[key]
                else:
                    self._owners[key] = new


@final
class CommitsStay(NodeChecker):
    """An acknowledged commit is committed, and a group never goes back.

    Definition: when a commit is acknowledged, some node has applied it. Offsets of a group rise, in
    committed records, unless a client resets them. No reply has a lower offset than was committed
    before the request.
    """

    def __init__(self) -> None:
        """Start without commits."""
        self._offsets: dict[tuple[str, cluster_history.Partition], int] = {}

    def committed(self, index: int, records: Sequence[object]) -> None:
        """See `NodeChecker`."""
        for record in records:
            match record:
                case OffsetsCommitted():
                    for commit in record.offsets:
                        key = (record.group_id, (commit.topic_id, commit.partition))
                        before = self._offsets.get(key, 0)
                        if commit.offset < before:
                            self.fail(f"entry {index} takes {key} from {before} to {commit.offset}")
                        self._offsets[key] = commit.offset
                case OffsetsReset():
                    for commit in record.offsets:
                        key = (record.group_id, (commit.topic_id, commit.partition))
                        self._offsets[key] = commit.offset
                case TopicForgotten():
                    self._forget(key for key in self._offsets if key[1][0] == record.topic_id)
                case GroupDeleted():
                    self._forget(key for key in self._offsets if key[0] == record.group_id)
                case _:
                    pass

    def told_committed(self, commit: GroupCommit) -> None:
        """See `NodeChecker`."""
        known = self._offsets.get((commit.group_id, commit.partition), 0)
        if known < commit.offset:
            self.fail(f"{commit} was acknowledged, but the group is at {known}")

    def found_committed(self, found: GroupCommit, least: int) -> None:
        """See `NodeChecker`."""
        if found.offset < least:
            self.fail(f"{found} was found, but {least} was committed before the request")

    def _forget(self, keys: Iterable[tuple[str, cluster_history.Partition]]) -> None:
        for key in list(keys):
            del self._offsets[key]


def _unpacked(topics: Sequence[TopicPartitions]) -> list[cluster_history.Partition]:
    return [(topic.topic_id, number) for topic in topics for number in topic.partitions]
