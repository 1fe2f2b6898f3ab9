"""What a cluster promises to consumer groups: one owner a partition, and commits that stay.

Definitions go by committed records, and by what members are told and do.
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
    """A partition belongs to one member of a group at a time, and only that one works on it.

    Definition: it is given to a member only if nobody has it, by committed records; who has it
    loses it by letting go of it, by leaving, or to a newer process of the same static member.
    Whoever is handed records of a partition has it at that moment, and nobody else commits there.
    """

    def __init__(self) -> None:
        """Know of no owner."""
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
        name = "nobody" if owner is None else self._client_names[owner]
        if name != work.client_id:
            self.fail(f"{work.client_id} is handed records of {work.partition}, which {name} has")

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
    """What is said to be committed is committed, and a group never goes back.

    Definition: when a member is told that its commit is done, some node has applied it; offsets
    of a group rise, in committed records, unless somebody resets them; and nobody who asks is told
    less than what was committed before.
    """

    def __init__(self) -> None:
        """Know of no commit."""
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
            self.fail(f"{commit} is said to be committed, and the group is at {known}")

    def found_committed(self, found: GroupCommit, least: int) -> None:
        """See `NodeChecker`."""
        if found.offset < least:
            self.fail(f"{found} was found, and {least} was committed before that was asked")

    def _forget(self, keys: Iterable[tuple[str, cluster_history.Partition]]) -> None:
        for key in list(keys):
            del self._offsets[key]


def _unpacked(topics: Sequence[TopicPartitions]) -> list[cluster_history.Partition]:
    return [(topic.topic_id, number) for topic in topics for number in topic.partitions]
