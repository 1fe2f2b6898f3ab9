"""The outcome of a heartbeat: join, leave, takeover, revocation, assignment.

Pure: no clock, no I/O; changes nothing. A heartbeat makes one change at a time: a joining member
gets partitions in a later one. Repeated and delayed heartbeats are harmless. A join of a known
member changes nothing, and a revocation counts only for the revision that requested it.
"""

from tidelog.coordinator.groups.assignors import ASSIGNORS
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.outcome import GroupOutcome
from tidelog.coordinator.groups.partitions import unpack
from tidelog.coordinator.groups.pattern import TopicPattern
from tidelog.coordinator.groups.reconciliation import next_step
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    GroupRecord,
    MemberJoined,
    MemberLeft,
    StaticMemberLeft,
    StaticMemberReplaced,
    SubscriptionChanged,
)
from tidelog.wire.errors import (
    FencedInstanceError,
    InvalidRequestError,
    OverloadedError,
    UnknownMemberError,
)
from tidelog.wire.messages.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    AssignedTopic,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    Subscription,
)

_GROUP_ID_MAX = 249
_MEMBER_ID_MAX = 64
_TOPICS_MAX = 10_000
_SUBSCRIPTION_CHARACTERS_MAX = 100_000
"""Characters of all names together: a member is one record, which must fit into an entry."""


def answer_heartbeat(
    group: Group, request: GroupHeartbeatRequest, config: GroupConfig, *, now_ms: int
) -> GroupOutcome[GroupHeartbeatReply]:
    """Return the changes of a heartbeat, and its reply.

    Args:
        group: The group; a new one has no members.
        request: The member's heartbeat.
        config: Limits and intervals.
        now_ms: Unix milliseconds.

    Raises:
        UnknownMemberError: The member was fenced or has left.
        FencedInstanceError: A newer process of this static member has taken over.
        OverloadedError: The group has the maximum number of members.
        InvalidRequestError: The request is invalid; the text says why.
    """
    check_request(request, config)
    if request.member_epoch < JOIN_EPOCH:
        return _leave(group, request, now_ms)
    member = group.members.get(request.member_id)
    if member is None:
        return _enter(group, request, config)
    if member.is_away:
        raise UnknownMemberError(
            f"member {request.member_id} went away; join again under a new member id"
        )
    if JOIN_EPOCH < request.member_epoch < member.joined_epoch:
        # A delayed copy of its first heartbeat let a fenced member in again, without its knowledge.
        raise UnknownMemberError(
            f"member {request.member_id} was fenced after epoch {request.member_epoch}; join again"
            " under a new member id"
        )
    if request.member_epoch > member.member_epoch:
        raise InvalidRequestError(
            f"member {request.member_id} is at epoch {member.member_epoch}, it cannot know of"
            f" {request.member_epoch}; send the epoch of the last reply"
        )
    changed = _changed_subscription(group, member, request)
    step = next_step(group, member, request)
    records = [record for record in (changed, step) if record is not None]
    if step is None:
        return GroupOutcome(records, _reply_as_it_is(group, member, request, config=config))
    return GroupOutcome(records, _reply_after(group, member, step, request=request, config=config))


def check_request(request: GroupHeartbeatRequest, config: GroupConfig) -> None:
    """Check the parts of a request that do not depend on the group.

    Raises:
        InvalidRequestError: The request is invalid; the text says why, and what is valid.
    """
    check_group_id(request.group_id)
    if not 1 <= len(request.member_id) <= _MEMBER_ID_MAX:
        raise InvalidRequestError(f"a member id has 1 to {_MEMBER_ID_MAX} characters")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError(
            f"a member epoch is positive, {JOIN_EPOCH} to join, {LEAVE_EPOCH} to leave or"
            f" {STATIC_LEAVE_EPOCH} to go away, not {request.member_epoch}"
        )
    if request.instance_id is None:
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            raise InvalidRequestError("only a static member goes away; send an instance_id")
    elif not 1 <= len(request.instance_id) <= _GROUP_ID_MAX:
        raise InvalidRequestError(f"an instance id has 1 to {_GROUP_ID_MAX} characters")
    if len(request.client_id) > _GROUP_ID_MAX:
        raise InvalidRequestError(f"a client name has at most {_GROUP_ID_MAX} characters")
    if request.subscription is not None:
        _check_subscription(request.subscription)
        if request.assignor not in ASSIGNORS:
            raise InvalidRequestError(
                f"there is no assignor {request.assignor!r}; there are {', '.join(ASSIGNORS)}"
            )
        if not 1 <= request.rebalance_timeout_ms <= config.max_rebalance_timeout_ms:
            raise InvalidRequestError(
                f"rebalance_timeout_ms is {request.rebalance_timeout_ms}, it must be 1 to"
                f" {config.max_rebalance_timeout_ms}"
            )


def check_group_id(group_id: str) -> None:
    """Check that a group may have this id.

    Raises:
        InvalidRequestError: The id is invalid; the text says which ids are valid.
    """
    if not 1 <= len(group_id) <= _GROUP_ID_MAX or not group_id.isprintable():
        raise InvalidRequestError(
            f"{group_id!r} cannot be the id of a group: 1 to {_GROUP_ID_MAX} printable characters"
            " can"
        )


def _check_subscription(subscription: Subscription) -> None:
    if subscription.pattern is not None:
        if subscription.topics:
            raise InvalidRequestError("subscribe to topics or to a pattern, not to both")
        TopicPattern(subscription.pattern)
    elif not 1 <= len(subscription.topics) <= _TOPICS_MAX:
        raise InvalidRequestError(
            f"subscribe to a pattern or to 1 to {_TOPICS_MAX} topics,"
            f" not to {len(subscription.topics)}"
        )
    elif sum(map(len, subscription.topics)) > _SUBSCRIPTION_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"names of topics have at most {_SUBSCRIPTION_CHARACTERS_MAX} characters together;"
            " subscribe to a pattern"
        )


def _enter(
    group: Group, request: GroupHeartbeatRequest, config: GroupConfig
) -> GroupOutcome[GroupHeartbeatReply]:
    """Let a member join that is not known under this member id."""
    former = None if request.instance_id is None else group.by_instance.get(request.instance_id)
    if former is not None:
        # A member that is away has released everything, so an equal incarnation is harmless.
        least = former.incarnation + (not former.is_away)
        if request.incarnation < least:
            raise FencedInstanceError(
                f"{request.instance_id} runs elsewhere as incarnation {former.incarnation}, this"
                f" process is {request.incarnation}; stop it, or restart it",
                incarnation=former.incarnation,
            )
    if request.member_epoch != JOIN_EPOCH:
        raise UnknownMemberError(
            f"group {request.group_id} has no member {request.member_id}, it was fenced or has"
            " left; join again under a new member id"
        )
    if request.subscription is None:
        raise InvalidRequestError("to join, send a subscription")
    if former is not None:
        return _take_over(group, former, request, config=config)
    if len(group.members) >= config.group_max_size:
        raise OverloadedError(
            f"group {request.group_id} has {len(group.members)} members, more cannot join"
        )
    joined = MemberJoined(
        request.group_id,
        group.group_epoch + 1,
        request.member_id,
        request.subscription,
        request.subscription_version,
        request.assignor,
        request.rebalance_timeout_ms,
        request.instance_id,
        request.incarnation,
        request.client_id,
    )
    return GroupOutcome(
        [joined], _reply(config, joined.group_epoch, 1, assignment=[], is_waiting=True)
    )


def _take_over(
    group: Group, former: Member, request: GroupHeartbeatRequest, *, config: GroupConfig
) -> GroupOutcome[GroupHeartbeatReply]:
    """Give a newer process of a static member the partitions of the older one."""
    records: list[GroupRecord] = [
        StaticMemberReplaced(
            request.group_id,
            former.member_id,
            request.member_id,
            request.incarnation,
            request.client_id,
        )
    ]
    changed = _changed_subscription(group, former, request)
    if changed is not None:
        records.append(changed)
    is_waiting = not group.is_settled(former)
    assignment = group.assignment(former.readable())
    reply = _reply(
        config,
        former.member_epoch,
        former.revision + 1,
        assignment=assignment,
        is_waiting=is_waiting,
    )
    return GroupOutcome(records, reply)


def _changed_subscription(
    group: Group, member: Member, request: GroupHeartbeatRequest
) -> SubscriptionChanged | None:
    """Return the record of a new subscription; a delayed one is ignored."""
    wanted = request.subscription
    is_same = (
        wanted == member.subscription
        and request.assignor == member.assignor
        and request.rebalance_timeout_ms == member.rebalance_timeout_ms
    )
    is_newer = (
        request.member_id != member.member_id
        or request.subscription_version > member.subscription_version
    )
    if wanted is None or is_same or not is_newer:
        return None
    return SubscriptionChanged(
        request.group_id,
        group.group_epoch + 1,
        request.member_id,
        wanted,
        request.subscription_version,
        request.assignor,
        request.rebalance_timeout_ms,
    )


def _leave(
    group: Group, request: GroupHeartbeatRequest, now_ms: int
) -> GroupOutcome[GroupHeartbeatReply]:
    """Remove a member; an unknown one succeeds, for this may be a second attempt."""
    reply = GroupHeartbeatReply(LEAVE_EPOCH, request.assignment_revision, 0, 0)
    member = group.members.get(request.member_id)
    if member is None or (member.is_away and request.member_epoch == STATIC_LEAVE_EPOCH):
        return GroupOutcome([], reply)
    if request.member_epoch == STATIC_LEAVE_EPOCH and member.instance_id is not None:
        return GroupOutcome([StaticMemberLeft(group.group_id, member.member_id)], reply)
    return GroupOutcome([removal(group, member, now_ms)], reply)


def removal(group: Group, member: Member, now_ms: int) -> MemberLeft:
    """Return the record that removes a member."""
    return MemberLeft(group.group_id, group.group_epoch + 1, member.member_id, now_ms)


def _reply_as_it_is(
    group: Group, member: Member, request: GroupHeartbeatRequest, *, config: GroupConfig
) -> GroupHeartbeatReply:
    is_first_target_due = not member.held and group.target_epoch < group.group_epoch
    has_seen = request.assignment_revision == member.revision
    return _reply(
        config,
        member.member_epoch,
        member.revision,
        assignment=None if has_seen else group.assignment(member.readable()),
        is_waiting=is_first_target_due or not group.is_settled(member),
    )


def _reply_after(
    group: Group,
    member: Member,
    step: AssignmentChanged,
    *,
    request: GroupHeartbeatRequest,
    config: GroupConfig,
) -> GroupHeartbeatReply:
    """Return a member's reply after a change that is not applied yet."""
    given, taken = unpack(step.given), frozenset(unpack(step.revoking))
    held_count = len(member.held) - len(unpack(step.released)) + len(given)
    is_settled = (
        step.member_epoch >= group.target_epoch
        and held_count == len(group.target(member.member_id))
        and not taken
    )
    revision = member.revision + bool(given or taken)
    readable = [one for one in member.readable() if one not in taken] + given
    return _reply(
        config,
        step.member_epoch,
        revision,
        assignment=None if request.assignment_revision == revision else group.assignment(readable),
        is_waiting=not is_settled,
    )


def _reply(
    config: GroupConfig,
    member_epoch: int,
    revision: int,
    *,
    assignment: list[AssignedTopic] | None,
    is_waiting: bool,
) -> GroupHeartbeatReply:
    return GroupHeartbeatReply(
        member_epoch,
        revision,
        config.waiting_interval_ms if is_waiting else config.heartbeat_interval_ms,
        config.session_timeout_ms - config.lease_margin_ms,
        assignment,
    )
