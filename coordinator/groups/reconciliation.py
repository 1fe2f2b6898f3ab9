"""The reconciliation of a member: one step from its current to its target assignment.

Pure: no clock, no I/O.

    has more than the target     -> UNREVOKED: told to revoke, stays in its epoch until it has
    has its target partitions    -> STABLE in the target epoch
    lacks partitions of others   -> UNRELEASED in the target epoch: gets the rest when it is free

Steps are taken in the member's own heartbeats only. A partition is assigned when it has no owner.
Its last owner holds it until a heartbeat without it that has *seen* the revision which revokes it
(I76). Counting by revision, not by epoch, makes old heartbeats harmless: a delayed one belongs to
an older revision, or to a state that is still true.
"""

from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.partitions import Partition, pack, unpack
from tidelog.coordinator.groups.records import AssignmentChanged
from tidelog.wire.messages.groups import GroupHeartbeatRequest


def next_step(
    group: Group, member: Member, request: GroupHeartbeatRequest
) -> AssignmentChanged | None:
    """Return the change of a member by its heartbeat; `None` without one."""
    if group.is_settled(member):
        return None
    released = _released(member, request)
    revoking: list[Partition] = []
    given: list[Partition] = []
    epoch = member.member_epoch
    if len(released) == len(member.revoking):
        target = group.target(member.member_id)
        kept = member.held.keys() - released
        revoking = sorted(kept - target)
        if not revoking:
            epoch = max(epoch, group.target_epoch)
            given = sorted(one for one in target - kept if one not in group.owner)
    if not (released or revoking or given or epoch != member.member_epoch):
        return None
    return AssignmentChanged(
        group.group_id, member.member_id, epoch, pack(given), pack(revoking), pack(released)
    )


def _released(member: Member, request: GroupHeartbeatRequest) -> set[Partition]:
    """Return the revoking partitions that the member has released."""
    if request.owned is None or request.assignment_revision != member.revision:
        return set()
    return member.revoking.difference(unpack(request.owned))
