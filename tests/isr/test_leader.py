"""What is committed, and what may be acknowledged, as the leader's own log goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.isr.leader_fixture import LeaderFixture
from tidelog.isr.durability import Durability, ack_level
from tidelog.isr.leader import PartitionLeader
from tidelog.isr.replica_set import ReplicaSet
from tidelog.wire.errors import NotEnoughReplicasError
from tidelog.wire.messages.produce import AckLevel, Acks

ACKS = pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])


def leader_of(durability: Durability, *, log_end: int, durable_end: int) -> PartitionLeader:
    return PartitionLeader(
        leader_epoch=0,
        durability=durability,
        log_end_offset=log_end,
        durable_end_offset=durable_end,
    )


def test_with_fsync_only_what_is_on_disk_is_committed() -> None:
    leader = leader_of(Durability.FSYNC, log_end=5, durable_end=3)

    assert leader.high_watermark == 3

    leader.progressed(log_end_offset=9, durable_end_offset=5)

    assert leader.high_watermark == 5


def test_with_replicated_what_is_appended_is_committed() -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    assert leader.high_watermark == 5

    leader.progressed(log_end_offset=9, durable_end_offset=3)

    assert leader.high_watermark == 9


@ACKS
def test_an_acknowledgement_under_fsync_waits_for_the_disk(acks: Acks) -> None:
    leader = leader_of(Durability.FSYNC, log_end=5, durable_end=3)

    assert leader.acknowledged_offset(acks) == 3


@ACKS
def test_an_acknowledgement_under_replicated_does_not(acks: Acks) -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    assert leader.acknowledged_offset(acks) == 5


def test_what_is_committed_stays_committed_when_the_durability_becomes_fsync() -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    leader.durability = Durability.FSYNC
    leader.progressed(log_end_offset=6, durable_end_offset=3)

    assert leader.high_watermark == 5


@ACKS
def test_an_acknowledgement_is_true_under_the_durability_of_now(acks: Acks) -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    leader.durability = Durability.FSYNC

    assert leader.acknowledged_offset(acks) == 3


@pytest.mark.invariant("I19", "I37")
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 10), st.sampled_from(Durability)), max_size=30
    )
)
def test_the_high_watermark_never_falls_and_never_passes_the_log_end(
    steps: list[tuple[int, int, Durability]],
) -> None:
    leader = leader_of(Durability.FSYNC, log_end=0, durable_end=0)
    log_end = durable_end = 0

    for appended, flushed, durability in steps:
        before = leader.high_watermark
        log_end += appended
        durable_end = min(durable_end + flushed, log_end)
        leader.durability = durability
        leader.progressed(log_end_offset=log_end, durable_end_offset=durable_end)

        assert before <= leader.high_watermark <= log_end
        assert durable_end <= leader.high_watermark
        for acks in (Acks.LEADER, Acks.ALL):
            assert leader.acknowledged_offset(acks) <= leader.high_watermark


@pytest.mark.invariant("I36")
def test_a_produce_that_all_must_have_is_refused_while_too_few_are_in_sync() -> None:
    led = LeaderFixture(1, minimum=2)

    led.leader.require_enough_in_sync(Acks.LEADER)
    with pytest.raises(NotEnoughReplicasError, match="1 of 3 replicas are in sync, and 2 must be"):
        led.leader.require_enough_in_sync(Acks.ALL)


@pytest.mark.invariant("I38")
def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    """I38: strict, also for those who do not wait for others."""
    led = LeaderFixture(1, minimum=2)
    led.append(10)
    assert led.high_watermark == 0
    assert led.leader.acknowledged_offset(Acks.ALL) == 0
    assert led.leader.acknowledged_offset(Acks.LEADER) == 10

    led.agree(1, minimum=1)
    assert led.high_watermark == 10


def test_what_was_committed_is_acknowledged_though_too_few_are_left() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(2)

    led.agree(1)
    led.append(5)

    assert led.leader.acknowledged_offset(Acks.ALL) == 10


def test_a_new_leader_begins_with_what_it_knew_and_has_then_to_catch_up() -> None:
    led = LeaderFixture(log_end=10)
    assert not led.leader.has_caught_up

    led.report(2)
    led.report(3)

    assert led.leader.has_caught_up


def test_there_are_enough_replicas_from_the_minimum_on() -> None:
    assert ReplicaSet((1, 2, 3), (1, 2), 0, 2).has_enough
    assert not ReplicaSet((1, 2, 3), (1,), 0, 2).has_enough


@pytest.mark.parametrize(
    ("acks", "durability", "level"),
    [
        (Acks.LEADER, Durability.FSYNC, AckLevel.LEADER_DURABLE),
        (Acks.ALL, Durability.FSYNC, AckLevel.DURABLE),
        (Acks.LEADER, Durability.REPLICATED, AckLevel.APPENDED),
        (Acks.ALL, Durability.REPLICATED, AckLevel.REPLICATED),
    ],
)
def test_acks_say_whose_and_durability_says_how(
    acks: Acks, durability: Durability, level: AckLevel
) -> None:
    assert ack_level(acks, durability) is level


def test_nothing_is_said_of_records_that_nobody_acknowledges() -> None:
    with pytest.raises(AssertionError, match="nothing is acknowledged"):
        ack_level(Acks.NONE, Durability.FSYNC)
