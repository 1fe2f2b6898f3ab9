"""High watermark and acknowledgements, as the leader's own log grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.isr.leader_fixture import LeaderFixture
from tidelog.isr.durability import Durability, ack_level
from tidelog.isr.followers import Followers
from tidelog.isr.leader import PartitionLeader
from tidelog.isr.replica_set import BrokerView, ReplicaSet
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


def test_under_fsync_only_durable_records_are_committed() -> None:
    leader = leader_of(Durability.FSYNC, log_end=5, durable_end=3)

    assert leader.high_watermark == 3

    leader.progressed(log_end_offset=9, durable_end_offset=5)

    assert leader.high_watermark == 5


def test_under_replicated_appended_records_are_committed() -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    assert leader.high_watermark == 5

    leader.progressed(log_end_offset=9, durable_end_offset=3)

    assert leader.high_watermark == 9


@ACKS
def test_an_acknowledgement_under_fsync_waits_for_the_disk(acks: Acks) -> None:
    leader = leader_of(Durability.FSYNC, log_end=5, durable_end=3)

    assert leader.acknowledged_offset(acks) == 3


@ACKS
def test_an_acknowledgement_under_replicated_does_not_wait_for_the_disk(acks: Acks) -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    assert leader.acknowledged_offset(acks) == 5


def test_committed_records_stay_committed_when_the_durability_becomes_fsync() -> None:
    leader = leader_of(Durability.REPLICATED, log_end=5, durable_end=3)

    leader.durability = Durability.FSYNC
    leader.progressed(log_end_offset=6, durable_end_offset=3)

    assert leader.high_watermark == 5


@ACKS
def test_an_acknowledgement_follows_the_present_durability(acks: Acks) -> None:
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
def test_acks_all_is_refused_below_min_insync_replicas() -> None:
    led = LeaderFixture(1, minimum=2)

    led.leader.require_enough_in_sync(Acks.LEADER)
    with pytest.raises(NotEnoughReplicasError, match="1 of 3 replicas are in sync, and 2 must be"):
        led.leader.require_enough_in_sync(Acks.ALL)


@pytest.mark.invariant("I38")
def test_the_high_watermark_stands_below_min_insync_replicas() -> None:
    """I38: strict, also for producers with acks of the leader."""
    led = LeaderFixture(1, minimum=2)
    led.append(10)
    assert led.high_watermark == 0
    assert led.leader.acknowledged_offset(Acks.ALL) == 0
    assert led.leader.acknowledged_offset(Acks.LEADER) == 10

    led.agree(1, minimum=1)
    assert led.high_watermark == 10


def test_committed_records_are_acknowledged_below_min_insync_replicas() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(2)

    led.agree(1)
    led.append(5)

    assert led.leader.acknowledged_offset(Acks.ALL) == 10


def test_a_new_leader_starts_with_the_high_watermark_of_the_follower() -> None:
    led = LeaderFixture(log_end=10)
    assert not led.leader.has_caught_up

    led.report(2)
    led.report(3)

    assert led.leader.has_caught_up


@pytest.mark.parametrize(("known", "expected"), [(3, 3), (10, 10), (12, 10), (None, 0)])
def test_a_new_leader_with_followers_knows_no_more_to_be_committed_than_its_log_has(
    known: int | None, expected: int
) -> None:
    view = BrokerView(1, lambda _: None)
    leader = PartitionLeader(
        leader_epoch=7,
        durability=Durability.REPLICATED,
        log_end_offset=10,
        durable_end_offset=10,
        high_watermark=known,
        followers=Followers(
            ReplicaSet((1, 2), (1, 2), 0, 2), view, epoch_start_offset=10, now_ms=0
        ),
    )

    assert leader.high_watermark == expected


def test_a_wait_for_all_replicas_ends_below_min_insync_replicas() -> None:
    led = LeaderFixture(1, 2, minimum=2)
    led.leader.require_enough_in_sync(Acks.ALL)
    assert led.leader.why_not_to_wait(Acks.ALL) is None

    led.agree(1)

    assert led.leader.why_not_to_wait(Acks.LEADER) is None
    error = led.leader.why_not_to_wait(Acks.ALL)
    assert error is not None
    assert "1 of 3 replicas are in sync, and 2 must be (min_insync_replicas)" in str(error)


def test_the_high_watermark_waits_for_replicas_in_sync_and_no_others() -> None:
    led = LeaderFixture(1, 2)

    assert [led.leader.is_hw_limiting(node) for node in (1, 2, 3, 4)] == [False, True, False, False]


def test_a_follower_cannot_have_more_records_than_its_leader() -> None:
    led = LeaderFixture()
    led.append(10)

    with pytest.raises(AssertionError, match="a follower has more than its leader"):
        led.report(2, 11)


def test_min_insync_replicas_is_inclusive() -> None:
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
def test_ack_levels_follow_acks_and_durability(
    acks: Acks, durability: Durability, level: AckLevel
) -> None:
    assert ack_level(acks, durability) is level


def test_acks_none_has_no_ack_level() -> None:
    with pytest.raises(AssertionError, match="acks none has no acknowledgement"):
        ack_level(Acks.NONE, Durability.FSYNC)
