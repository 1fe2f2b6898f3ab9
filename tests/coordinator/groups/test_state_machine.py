"""Consumer groups as a replicated state machine: only records change it, snapshots restore it."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.groups.conversation import (
    BOTH,
    GROUP,
    NOW_MS,
    ORDERS,
    PAYMENTS,
    Conversation,
)
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.groups.state_machine import ConsumerGroups, GroupsSnapshot
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.errors import BrokerError, GroupNotEmptyError, UnknownGroupError
from tidelog.wire.messages.groups import GroupHeartbeatRequest, PartitionCommit, Subscription

records_decoder = msgspec.msgpack.Decoder(list[GroupRecord])

members = st.sampled_from(["a", "b", "c", "d"])
numbers = st.integers(0, 5)
steps = st.one_of(
    st.tuples(st.just("join"), members, st.sampled_from([BOTH, Subscription(pattern="ord*")])),
    st.tuples(st.just("join static"), members, st.integers(1, 3)),
    st.tuples(st.just("leave"), members, st.booleans()),
    st.tuples(st.just("say"), members, st.just(0)),
    st.tuples(st.just("revoke"), members, st.just(0)),
    st.tuples(st.just("fence"), members, st.just(0)),
    st.tuples(st.just("target"), members, st.just(0)),
    st.tuples(st.just("commit"), members, numbers),
    st.tuples(st.just("topics"), members, numbers),
    st.tuples(st.just("forget"), members, st.just(0)),
    st.tuples(st.just("reset"), members, numbers),
    st.tuples(st.just("alter"), members, numbers),
    st.tuples(st.just("delete"), members, st.just(0)),
)


def take_step(talk: Conversation, name: str, member_id: str, *, value: object) -> None:
    match name, value:
        case "join", Subscription():
            talk.join(member_id, value)
        case "join static", int():
            # The same instance under different member ids, with different incarnations.
            talk.join(member_id, instance_id="one", incarnation=value)
        case "leave", bool():
            talk.leave(member_id, is_restart=value)
        case "say", _:
            talk.say(member_id)
        case "revoke", _:
            talk.say(member_id, owned=talk.owned.get(member_id, []))
        case "target", _:
            talk.target()
        case "commit", int():
            talk.epochs.setdefault(member_id, 0)
            talk.commit(member_id, (value % 4, 10 + value), (value, 20))
        case _, int():
            talk.carry_out(administered(talk, name, member_id, value=value))
        case _:
            raise AssertionError(name)


def administered(
    talk: Conversation, name: str, member_id: str, *, value: int
) -> Sequence[GroupRecord]:
    match name:
        case "fence":
            return talk.state.fence(GROUP, member_id, NOW_MS).records
        case "topics":
            talk.topics["payments"] = TopicShape(PAYMENTS, value)
            return talk.state.topics_changed(["payments"]).records
        case "forget":
            return talk.state.forget_topic(ORDERS).records
        case "reset":
            offsets = [("orders", PartitionCommit(ORDERS, value % 4, 15))]
            return talk.state.reset_offsets(GROUP, offsets, talk.ranges(), now_ms=NOW_MS).records
        case "alter":
            change = {"alert_lag_records": str(value)} if value else {}
            reset = [] if value else ["alert_lag_records"]
            return talk.state.alter_group(GROUP, change, reset, now_ms=NOW_MS).records
        case _:
            return talk.state.delete_group(GROUP).records


def restored(state: ConsumerGroups) -> ConsumerGroups:
    """Return a replica restored from the encoded snapshot only."""
    saved = msgspec.msgpack.encode(state.snapshot())
    return ConsumerGroups.restore(msgspec.msgpack.decode(saved, type=GroupsSnapshot))


@given(st.lists(steps, max_size=40))
def test_replicas_from_records_and_snapshots_agree(taken: list[tuple[str, str, object]]) -> None:
    """A replica fed with records, one restored at every step, and the controller agree."""
    talk, other = Conversation(), Conversation()
    replica = ConsumerGroups()
    for name, member_id, value in taken:
        before = len(talk.records)
        answers: list[str] = []
        for one in (talk, other):
            try:
                take_step(one, name, member_id, value=value)
            except BrokerError as error:
                answers.append(f"{type(error).__name__}: {error}")
        assert len(set(answers)) <= 1
        assert len(answers) in {0, 2}
        assert talk.records == other.records
        for record in records_decoder.decode(msgspec.msgpack.encode(talk.records[before:])):
            replica.apply(record)
        assert replica.snapshot() == talk.state.snapshot()
        other.state = restored(other.state)
        assert other.state.snapshot() == talk.state.snapshot()


@given(st.lists(steps, max_size=40))
def test_the_invariants_of_a_group_hold(taken: list[tuple[str, str, object]]) -> None:
    talk = Conversation()
    epochs = (0, 0)
    for name, member_id, value in taken:
        try:
            take_step(talk, name, member_id, value=value)
        except BrokerError:
            continue
        group = talk.state.groups.get(GROUP)
        if group is None:
            epochs = (0, 0)
            continue
        held = [one for member in group.members.values() for one in member.held]
        assert len(held) == len(set(held))
        assert set(held) == group.owner.keys()
        assert all(one in group.owner[one].held for one in held)
        wanted = [one for member_id in group.members for one in group.target(member_id)]
        assert len(wanted) == len(set(wanted))
        assert epochs[0] <= group.group_epoch
        assert epochs[1] <= group.target_epoch <= group.group_epoch
        epochs = (group.group_epoch, group.target_epoch)
        for member in group.members.values():
            assert member.revoking <= member.held.keys()
            assert member.member_epoch <= group.group_epoch
            if member.instance_id is not None:
                assert group.by_instance[member.instance_id] is member


def test_a_command_changes_nothing_before_its_records_are_applied() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    talk.commit("a", (0, 50))
    state, before = talk.state, talk.state.snapshot()

    state.heartbeat(GroupHeartbeatRequest(GROUP, "b", 0, subscription=BOTH), NOW_MS)
    state.heartbeat(GroupHeartbeatRequest(GROUP, "a", -1), NOW_MS)
    state.fence(GROUP, "a", NOW_MS)
    state.topics_changed(["orders"])
    state.forget_topic(ORDERS)
    state.commit_offsets([talk.commit_request("a", (0, 60))], talk.ranges(), NOW_MS)

    assert state.snapshot() == before


def test_offsets_of_a_deleted_topic_are_dropped() -> None:
    talk = Conversation()
    talk.join("a")
    talk.settle()
    talk.commit("a", (0, 50))

    talk.carry_out(talk.state.forget_topic(ORDERS).records)

    assert talk.committed(0) is None
    assert talk.state.forget_topic(ORDERS).records == []


def test_a_new_coordinator_catches_up_with_changed_topics() -> None:
    talk = Conversation(2)
    talk.join("a", BOTH)
    talk.settle()
    talk.commit("a", (0, 50))
    assert talk.state.catch_up(talk.topics).records == []

    del talk.topics["orders"]
    talk.topics["payments"] = TopicShape(PAYMENTS, 2)
    talk.carry_out(talk.state.catch_up(talk.topics).records)
    talk.settle()

    assert talk.group.target("a") == {(PAYMENTS, 0), (PAYMENTS, 1)}
    assert talk.committed(0) is None
    assert talk.state.catch_up(talk.topics).records == []


def test_a_group_with_members_is_not_deleted() -> None:
    talk = Conversation()
    talk.join("a")

    with pytest.raises(GroupNotEmptyError, match="has 1 members"):
        talk.state.delete_group(GROUP)


def test_a_repeated_group_deletion_succeeds() -> None:
    talk = Conversation()
    talk.join("a")
    talk.leave("a")

    first = talk.state.delete_group(GROUP)
    talk.carry_out(first.records)

    assert first.reply is True
    assert talk.state.delete_group(GROUP).reply is False


def test_an_unknown_group_is_named_in_the_error() -> None:
    with pytest.raises(UnknownGroupError, match="there is no group 'billing'"):
        ConsumerGroups().group(GROUP)
