"""The coordinator that leads: sessions, rebalance delay and the state machine together."""

import pytest

from tests.simulation.groups.world import World
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.outcome import GroupOutcome
from tidelog.coordinator.groups.records import AssignmentChanged, GroupRecord, TargetComputed
from tidelog.coordinator.groups.sessions import ExpiredMember
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.messages.groups import GroupHeartbeatRequest, Subscription

ORDERS = TopicShape(b"orders".ljust(16, b"."), 4)
TOPICS = {"orders": ORDERS}
WANTED = Subscription(["orders"])


def join(leading: GroupManager, member_id: str, now_ms: int) -> None:
    request = GroupHeartbeatRequest("g", member_id, 0, owned=[], subscription=WANTED)
    leading.heartbeat(request, wall_ms=now_ms, now_ms=now_ms)


def tick(leading: GroupManager, from_ms: int, to_ms: int) -> GroupOutcome[list[ExpiredMember]]:
    """Tick at each deadline; return the whole outcome."""
    records: list[GroupRecord] = []
    expired: list[ExpiredMember] = []
    now_ms = from_ms
    while now_ms < to_ms:
        deadline_ms = leading.next_deadline_ms
        now_ms = to_ms if deadline_ms is None else min(to_ms, max(now_ms, deadline_ms))
        outcome = leading.tick(TOPICS, wall_ms=now_ms, now_ms=now_ms)
        records.extend(outcome.records)
        expired.extend(outcome.reply)
    return GroupOutcome(records, expired)


def test_the_initial_rebalance_delay_collects_the_first_members() -> None:
    leading = GroupManager(ConsumerGroups(), 0)
    join(leading, "a", 0)
    join(leading, "b", 2_000)
    assert leading.next_deadline_ms == 3_000

    outcome = leading.tick(TOPICS, wall_ms=3_000, now_ms=3_000)

    (target,) = outcome.records
    assert isinstance(target, TargetComputed)
    assert [sum(len(one.partitions) for one in change.partitions) for change in target.changed] == [
        2,
        2,
    ]


def test_the_partitions_of_a_fenced_member_are_reassigned_at_once() -> None:
    leading = GroupManager(ConsumerGroups(), 0)
    join(leading, "a", 0)
    join(leading, "b", 2_000)
    leading.tick(TOPICS, wall_ms=3_000, now_ms=3_000)

    outcome = tick(leading, 3_000, 45_000)

    assert [one.member_id for one in outcome.reply] == ["a"]
    assert isinstance(outcome.records[-1], TargetComputed)
    assert [change.member_id for change in outcome.records[-1].changed] == ["b"]


def test_a_new_coordinator_gives_every_member_a_full_session() -> None:
    old = GroupManager(ConsumerGroups(), 0)
    join(old, "a", 0)
    old.tick(TOPICS, wall_ms=3_000, now_ms=3_000)
    state = ConsumerGroups.restore(old.state.snapshot())

    new = GroupManager(state, 44_000)

    assert tick(new, 44_000, 44_000 + 44_999).records == []
    assert len(tick(new, 44_000 + 44_999, 44_000 + 45_000).reply) == 1


def test_a_paused_coordinator_fences_no_member() -> None:
    leading = GroupManager(ConsumerGroups(), 0)
    join(leading, "a", 0)
    tick(leading, 0, 10_000)

    awake = leading.tick(TOPICS, wall_ms=600_000, now_ms=600_000)

    assert awake.reply == []
    assert tick(leading, 600_000, 600_000 + 29_999).reply == []
    assert len(tick(leading, 600_000 + 29_999, 600_000 + 30_000).reply) == 1


def test_a_new_coordinator_computes_a_missing_target_assignment() -> None:
    old = GroupManager(ConsumerGroups(), 0)
    join(old, "a", 0)
    new = GroupManager(ConsumerGroups.restore(old.state.snapshot()), 10_000)

    assert tick(new, 10_000, 12_999).records == []
    assert len(tick(new, 12_999, 13_000).records) == 1


def test_a_static_member_has_a_session_to_restart() -> None:
    leading = GroupManager(ConsumerGroups(), 0)
    request = GroupHeartbeatRequest(
        "g", "a", 0, owned=[], subscription=WANTED, instance_id="one", incarnation=1
    )
    leading.heartbeat(request, wall_ms=0, now_ms=0)
    leading.tick(TOPICS, wall_ms=3_000, now_ms=3_000)
    away = GroupHeartbeatRequest("g", "a", -2, instance_id="one", incarnation=1)

    tick(leading, 3_000, 10_000)
    leading.heartbeat(away, wall_ms=10_000, now_ms=10_000)

    assert tick(leading, 10_000, 54_999).reply == []
    assert len(tick(leading, 54_999, 55_000).reply) == 1


def test_a_deleted_group_is_due_no_more() -> None:
    leading = GroupManager(ConsumerGroups(), 0)
    join(leading, "a", 0)
    leading.heartbeat(GroupHeartbeatRequest("g", "a", -1), wall_ms=1, now_ms=1)

    leading.apply(leading.state.delete_group("g").records, 2)

    assert tick(leading, 2, 99_000).records == []
    assert leading.state.groups == {}


# A rolling deploy: 50 members of 500 partitions are replaced one after the other.

MEMBERS = 50
PARTITIONS = 500


def running_group(*, is_static: bool) -> World:
    world = World(1, {"orders": PARTITIONS}, is_idle=True)
    for number in range(MEMBERS):
        world.start(instance_id=f"i{number}" if is_static else None)
    world.run(30_000)
    world.checks.look()
    world.checks.converged()
    world.checks.target_count = world.checks.moved_count = 0
    return world


@pytest.mark.parametrize(("restart_ms", "pause_ms"), [(3_000, 7_000), (1_000, 500)])
def test_a_rolling_deploy_of_dynamic_members_moves_each_partition_once(
    restart_ms: int, pause_ms: int
) -> None:
    world = running_group(is_static=False)

    for process in list(world.processes):
        world.leave(process)
        world.run(restart_ms)
        world.start()
        world.run(pause_ms)
    world.run(30_000)

    world.checks.look()
    world.checks.converged()
    # Each process ends, so each partition must move; a storm would move them again and again.
    assert world.checks.moved_count <= 1.1 * PARTITIONS
    assert world.checks.target_count <= MEMBERS + 1
    if pause_ms < 5_000:
        assert world.checks.target_count <= MEMBERS * (restart_ms + pause_ms) / 5_000 + 3


def test_a_rolling_deploy_of_static_members_moves_nothing() -> None:
    world = running_group(is_static=True)

    for process in list(world.processes):
        world.leave(process, is_restart=True)
        world.run(5_000)
        assert process.core.is_over
        world.start(instance_id=process.settings.instance_id)
        world.run(2_000)
    world.run(30_000)

    world.checks.look()
    world.checks.converged()
    assert (world.checks.moved_count, world.checks.target_count) == (0, 0)


def test_static_members_that_are_killed_and_come_back_in_time_move_nothing() -> None:
    world = running_group(is_static=True)

    for process in list(world.processes):
        world.crash(process)
        world.run(1_000)
        world.start(instance_id=process.settings.instance_id)
    world.run(30_000)

    world.checks.look()
    world.checks.converged()
    assert (world.checks.moved_count, world.checks.target_count) == (0, 0)


def test_fifty_members_that_join_within_ten_seconds_need_three_targets() -> None:
    world = World(1, {"orders": PARTITIONS}, is_idle=True)
    for _ in range(MEMBERS):
        world.start()
        world.run(200)
    world.run(30_000)

    world.checks.look()
    world.checks.converged()
    assert world.checks.target_count == 3


def test_a_target_record_has_only_changed_members() -> None:
    world = running_group(is_static=False)
    written: list[GroupRecord] = []
    world.listeners.append(written.append)

    world.start()
    world.run(30_000)

    world.checks.look()
    world.checks.converged()
    # 500 over 51: nine members give one each to the new one.
    (target,) = [record for record in written if isinstance(record, TargetComputed)]
    assert len(target.changed) == 10
    assert sum(isinstance(record, AssignmentChanged) for record in written) <= 9 * 2 + 9
