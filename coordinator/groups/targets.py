"""Target assignments: the partitions of the members of a group after reconciliation.

Pure: no clock, no I/O; changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from tidelog.coordinator.groups.assignors import UNIFORM, Reader, assign
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.partitions import pack
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.coordinator.groups.records import MemberTarget, TargetComputed
from tidelog.wire.messages.groups import Subscription


class TopicShape(msgspec.Struct, frozen=True):
    """An assignor's view of a topic."""

    topic_id: bytes
    partition_count: int


def compute_target(group: Group, topics: Mapping[str, TopicShape]) -> TargetComputed | None:
    """Return a target for the group's epoch; `None` if it has one.

    Args:
        group: The group.
        topics: All topics, by name.
    """
    if group.target_epoch == group.group_epoch:
        return None
    wanted = _resolve(group, topics)
    ids = {one: sorted(topics[name].topic_id for name in one) for one in set(wanted)}
    read = sorted({name for one in ids for name in one})
    readers = [
        Reader(ids[one], sorted(group.target(member_id)))
        for one, member_id in zip(wanted, group.members, strict=True)
    ]
    assignor = _preferred_assignor(group)
    counts = {topics[name].topic_id: topics[name].partition_count for name in read}
    assigned = assign(assignor, readers, counts)
    return TargetComputed(
        group.group_id,
        group.group_epoch,
        assignor,
        {topics[name].topic_id: name for name in read},
        [
            MemberTarget(member_id, pack(partitions))
            for member_id, partitions in zip(group.members, assigned, strict=True)
            if group.target(member_id) != frozenset(partitions)
        ],
    )


def is_concerned(group: Group, names: Iterable[str]) -> bool:
    """Return whether a member wants to read one of these topics, or the target has it."""
    if not group.members:
        return False
    # Most members want the same: each subscription is checked once.
    different = {
        (tuple(member.subscription.topics), member.subscription.pattern): member.subscription
        for member in group.members.values()
    }
    known = set(group.topic_names.values())
    return any(
        name in known or any(wants_topic(one, name) for one in different.values()) for name in names
    )


def is_outdated(group: Group, topics: Mapping[str, TopicShape]) -> bool:
    """Return whether topics were created, deleted or grew without a new epoch of the group.

    Args:
        group: Any group.
        topics: All topics, by name.
    """
    if not group.members or group.target_epoch < group.group_epoch:
        return False
    wanted = {name for one in set(_resolve(group, topics)) for name in one}
    targets: Counter[bytes] = Counter()
    for member_id in group.members:
        targets.update(topic_id for topic_id, _ in group.target(member_id))
    # Each partition with a subscriber is in the target of one member.
    return targets != {topics[name].topic_id: topics[name].partition_count for name in wanted}


def wants_topic(subscription: Subscription, name: str) -> bool:
    """Return whether a topic of this name is part of a subscription."""
    if subscription.pattern is None:
        return name in subscription.topics
    return TopicPattern(subscription.pattern).matches(name)


def _resolve(group: Group, topics: Mapping[str, TopicShape]) -> list[tuple[str, ...]]:
    """Return the names of existing topics in each member's subscription, sorted."""
    # Most members want the same: each subscription is resolved once.
    resolved: dict[tuple[tuple[str, ...], str | None], tuple[str, ...]] = {}
    wanted: list[tuple[str, ...]] = []
    for member in group.members.values():
        subscription = member.subscription
        key = (tuple(subscription.topics), subscription.pattern)
        if key not in resolved:
            names: Iterable[str]
            if subscription.pattern is None:
                names = (name for name in set(subscription.topics) if name in topics)
            else:
                names = filter(TopicPattern(subscription.pattern).matches, topics)
            resolved[key] = tuple(sorted(names))
        wanted.append(resolved[key])
    return wanted


def _preferred_assignor(group: Group) -> str:
    """Return the assignor that most members prefer; of several such, the first by name."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return min(votes, key=lambda name: (-votes[name], name), default=UNIFORM)
