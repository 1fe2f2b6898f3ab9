"""Administration of groups: list, describe, reset, delete, expire."""

import pytest
import trio

from tests.coordinator.group_cluster import GROUP, ORDERS, GroupCluster, play
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import Host
from tidelog.coordinator import node
from tidelog.coordinator.controller import broker_lifecycle
from tidelog.coordinator.controller.log_entries import decode_snapshot
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator import admin
from tidelog.coordinator.groups import expiry
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.metadata.commands import SetFeatureLevel
from tidelog.wire.errors import (
    ErrorCode,
    GroupNotEmptyError,
    InvalidConfigError,
    InvalidRequestError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.features import OWN_LEVELS, SupportedLevels
from tidelog.wire.messages.groups import (
    AlterGroupRequest,
    DeleteGroupRequest,
    ListGroupsRequest,
    PartitionReset,
    PartitionWasReset,
    ResetOffsetsReply,
    ResetOffsetsRequest,
    ResetTo,
)
from tidelog.wire.messages.offset_ranges import PartitionOffsets
from tidelog.wire.protocol import api


async def reset(
    cluster: GroupCluster, *resets: PartitionReset, validate_only: bool = False
) -> list[PartitionWasReset]:
    request = ResetOffsetsRequest(GROUP, list(resets), validate_only)
    reply: ResetOffsetsReply = await cluster.caller.insist(api.RESET_OFFSETS, request)
    return reply.results


def test_a_served_group_description_has_the_lag() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, _ = await cluster.leader_and_another()
        now_ms = leader.machine.wall_clock.now_ms()
        cluster.offsets.logs[ORDERS, 0] = PartitionOffsets(
            0, 100, 100, timestamp_ms=now_ms - 60_000
        )
        await cluster.commit(0, 40)

        (progress,) = (await cluster.described()).partitions

        assert (progress.lag_records, progress.high_watermark) == (60, 100)
        assert progress.lag_ms is not None
        assert 60_000 <= progress.lag_ms < 62_000
        assert cluster.offsets.questions[-1].at_offset == 40

    play(story)


def test_a_reset_sets_all_partitions_or_none() -> None:
    async def story(cluster: GroupCluster) -> None:
        cluster.offsets.logs[ORDERS, 0] = PartitionOffsets(10, 100, 120, offset=55)
        cluster.offsets.logs[ORDERS, 1] = PartitionOffsets(10, 100, 120)
        latest = PartitionReset(ORDERS, 1, int(ResetTo.LATEST))
        since = PartitionReset(ORDERS, 0, int(ResetTo.TIMESTAMP), 1_700_000_000_000)
        beyond = PartitionReset(ORDERS, 0, int(ResetTo.OFFSET), 101)
        unknown = PartitionReset(b"elsewhere".ljust(16), 0, int(ResetTo.EARLIEST))

        tried = await reset(cluster, latest, since, validate_only=True)
        assert await cluster.committed(1) is None
        refused = await reset(cluster, latest, beyond, unknown)
        assert await cluster.committed(1) is None
        done = await reset(cluster, latest, since)

        assert tried == done == [PartitionWasReset(None, 100), PartitionWasReset(None, 55)]
        assert [one.error and one.error.code for one in refused] == [
            None,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        assert [await cluster.committed(number) for number in (0, 1)] == [55, 100]
        assert cluster.offsets.questions[-1].at_timestamp_ms == 1_700_000_000_000

    play(story)


def test_a_group_with_members_is_neither_reset_nor_deleted() -> None:
    async def story(cluster: GroupCluster) -> None:
        reply = await cluster.heartbeat("a")
        earliest = PartitionReset(ORDERS, 0, int(ResetTo.EARLIEST))

        with pytest.raises(GroupNotEmptyError, match="stop them first"):
            await reset(cluster, earliest)
        with pytest.raises(GroupNotEmptyError, match="stop them first"):
            await cluster.caller.insist(api.DELETE_GROUP, DeleteGroupRequest(GROUP))
        await cluster.heartbeat("a", -1)
        assert reply.member_epoch > 0
        await reset(cluster, earliest)
        first = await cluster.caller.insist(api.DELETE_GROUP, DeleteGroupRequest(GROUP))
        again = await cluster.caller.insist(api.DELETE_GROUP, DeleteGroupRequest(GROUP))

        assert (first.was_there, again.was_there) == (True, False)
        assert await cluster.committed(0) is None
        error = (await cluster.described()).error
        assert error is not None
        assert error.code == ErrorCode.UNKNOWN_GROUP

    play(story)


def test_settings_of_a_group_outlive_leaders_and_go_with_the_group() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, other = await cluster.leader_and_another()
        await until(lambda: level_of(other) == OWN_LEVELS.max_level)
        texts = {"owner": "billing", "alert_lag_ms": "1h30m"}

        altered = await cluster.caller.insist(
            api.ALTER_GROUP, AlterGroupRequest(GROUP, texts, ["alert_lag_records"])
        )
        leader.cut_power()
        found = await cluster.described()

        settings = {"owner": "billing", "alert_lag_ms": "90min", "alert_lag_records": "none"}
        assert altered.config == found.config == settings
        assert (found.state, found.config_overrides) == ("empty", ["alert_lag_ms", "owner"])
        listed = await cluster.caller.insist(api.LIST_GROUPS, ListGroupsRequest())
        assert [each.overrides for each in listed.groups] == [
            {"owner": "billing", "alert_lag_ms": "90min"}
        ]
        await cluster.caller.insist(api.DELETE_GROUP, DeleteGroupRequest(GROUP))
        await cluster.commit(0, 1)
        assert (await cluster.described()).config_overrides == []

    play(story)


@pytest.mark.parametrize(
    ("group_id", "texts", "resets", "reason"),
    [
        (GROUP, {"colour": "red"}, [], "no group setting 'colour'; there are alert_lag_ms, "),
        (GROUP, {}, ["colour"], "no group setting 'colour'"),
        (GROUP, {"owner": "a"}, ["owner"], "owner cannot be set and reset at the same time"),
        (GROUP, {"alert_lag_ms": "999"}, [], "at least 1000"),
        (GROUP, {"alert_lag_records": "-1"}, [], "must be a number"),
        ("", {"owner": "a"}, [], "cannot be the id of a group"),
    ],
)
def test_an_illegal_setting_of_a_group_is_refused(
    group_id: str, texts: dict[str, str], resets: list[str], reason: str
) -> None:
    with pytest.raises((InvalidConfigError, InvalidRequestError), match=reason):
        ConsumerGroups().alter_group(group_id, texts, resets, now_ms=0)


def test_settings_of_groups_need_their_feature_level_and_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (node, broker_lifecycle):
        monkeypatch.setattr(module, "OWN_LEVELS", SupportedLevels(0, 5))

    async def story(cluster: GroupCluster) -> None:
        leader, other = await cluster.leader_and_another()
        await until(lambda: level_of(other) == 5)
        await cluster.submit(leader, SetFeatureLevel(2, [1, 2, 3]))
        owner = AlterGroupRequest(GROUP, {"owner": "billing"}, [])

        with pytest.raises(InvalidRequestError, match="feature level 3 is needed, and the cluster"):
            await cluster.caller.insist(api.ALTER_GROUP, owner)
        await cluster.submit(leader, SetFeatureLevel(3, [1, 2, 3]))
        await cluster.caller.insist(api.ALTER_GROUP, owner)

        with pytest.raises(InvalidRequestError, match="the metadata has records of level 3"):
            await cluster.submit(leader, SetFeatureLevel(2, [1, 2, 3]))
        await until(lambda: used_level_of(other) == 3)
        assert isinstance(other.state, ReplicatedState)
        restored, groups = decode_snapshot(other.state.snapshot())
        assert restored.state.used_level == 3
        assert groups.group(GROUP).overrides == {"owner": "billing"}

    play(story)


def level_of(host: Host) -> int:
    assert isinstance(host.state, ReplicatedState)
    return host.state.state.feature_level


def used_level_of(host: Host) -> int:
    assert isinstance(host.state, ReplicatedState)
    return host.state.state.used_level


def test_an_unused_group_without_lag_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "CONFIRMATION_MS", 20_000)
    monkeypatch.setattr(admin, "_EXPIRY_LOOK_S", 5.0)

    async def story(cluster: GroupCluster) -> None:
        cluster.offsets.logs[ORDERS, 0] = PartitionOffsets(0, 50, 50)
        cluster.offsets.logs[ORDERS, 1] = PartitionOffsets(0, 50, 50)
        await cluster.commit(0, 50)
        await cluster.commit(1, 49)
        await trio.sleep(80)
        assert await cluster.committed(0) == 50, "it has lag"

        await cluster.commit(1, 50)
        await trio.sleep(40)
        assert await cluster.committed(0) == 50, "it was used a moment ago"
        await trio.sleep(40)

        assert await cluster.committed(0) is None

    play(story, config=GroupConfig(offsets_retention_ms=30_000))


def test_a_topic_deleted_during_a_log_lookup_gets_no_offsets() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, _ = await cluster.leader_and_another()
        coordinator = cluster.coordinators[leader.node_id]
        cluster.offsets.is_slow = True
        codes: list[int | None] = []

        async def commit() -> None:
            (done,) = (await cluster.commit(0, 7)).results
            codes.append(None if done.error is None else done.error.code)

        async def move() -> None:
            earliest = PartitionReset(ORDERS, 0, int(ResetTo.EARLIEST))
            with pytest.raises(UnknownTopicIdError, match="was deleted meanwhile"):
                await coordinator.administration.reset_offsets(
                    ResetOffsetsRequest(GROUP, [earliest])
                )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            nursery.start_soon(move)
            await trio.sleep(0.1)
            await cluster.submit(leader, DeleteTopic("orders"))
            cluster.offsets.go_on()

        assert codes == [ErrorCode.UNKNOWN_TOPIC_ID]
        listed = await cluster.caller.insist(api.LIST_GROUPS, ListGroupsRequest())
        assert listed.groups == []

    play(story)
