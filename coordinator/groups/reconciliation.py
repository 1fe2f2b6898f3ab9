"""One step of a member from what it has to what the target gives it.

Pure: no clock, no I/O.

    has more than the target  -> UNREVOKED: told to let go, stays in its epoch until it has
    has what the target gives -> STABLE in the target epoch
    lacks what others hold    -> UNRELEASED in the target epoch: is given the rest as it comes free

Steps are taken in the member's own heartbeats only. A partition is given when nobody holds it, and
held by the last member until a heartbeat that has *seen* the revision which takes it away leaves
it out (I76). Counting by revision, not by epoch, is what makes old heartbeats harmless: one that
was delayed speaks of an older revision, or of a state that is still true.
"""

from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.partitions import Partition, pack, unpack
from tidelog.coordinator.groups.records import AssignmentChanged
from tidelog.wire.messages.groups import GroupHeartbeatRequest


def next_step(
    group: Group, member: Member, request: GroupHeartbeatRequest
) -> AssignmentChanged | None:
    """Return what a heartbeat changes for its member; `None` when nothing does."""
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
    """Return what the member has let go of, of what it had to."""
    if request.owned is None or request.assignment_revision != member.revision:
        return set()
    return member.revoking.difference(unpack(request.owned))
