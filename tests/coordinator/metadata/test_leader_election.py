"""Leader election: each rule, and the invariants of all of them."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.metadata.leader_election import (
    NO_EVENT,
    Assignment,
    Election,
    ElectionContext,
    PartitionEvent,
    elect,
)
from tidelog.coordinator.metadata.records import BrokerRegistration, PartitionRegistration

HEALTHY = PartitionRegistration((1, 2, 3), (1, 2, 3), leader=1, leader_epoch=5, partition_epoch=7)


def context(
    *, dead: Collection[int] = (), stopping: Collection[int] = (), minimum: int = 2
) -> ElectionContext:
    brokers = {
        node: BrokerRegistration(
            node,
            f"disk-{node}",
            f"process-{node}",
            node,
            "host",
            8433,
            "",
            is_fenced=node in dead,
            is_shutting_down=node in stopping,
        )
        for node in range(1, 6)
    }
    return ElectionContext(brokers, lambda factor: min(minimum, factor))


def test_an_election_without_an_event_changes_nothing() -> None:
    assert elect(HEALTHY, NO_EVENT, context()) is HEALTHY


@pytest.mark.parametrize(
    ("dead", "leader", "in_sync", "eligible"),
    [
        ((2,), 1, (1, 3), ()),
        ((1,), 2, (2, 3), ()),
        ((1, 2), 3, (3,), (1, 2)),
        ((2, 3), 1, (1,), (2, 3)),
        ((1, 2, 3), None, (), (1, 2, 3)),
    ],
)
def test_the_first_live_replica_in_sync_leads(
    dead: tuple[int, ...],
    leader: int | None,
    in_sync: tuple[int, ...],
    *,
    eligible: tuple[int, ...],
) -> None:
    after = elect(HEALTHY, NO_EVENT, context(dead=dead))

    assert after.leader == leader
    assert after.in_sync_replicas == in_sync
    assert after.eligible_leader_replicas == eligible
    assert after.leader_epoch == 5 + (leader != 1)
    assert after.partition_epoch == 8
    assert after.last_known_leader == (1 if leader is None else None)


@pytest.mark.invariant("I60")
def test_an_isr_member_leads_before_an_eligible_replica() -> None:
    partition = PartitionRegistration((1, 2, 3), (3,), (1, 2), leader=3)

    assert elect(partition, NO_EVENT, context()).leader == 3
    assert elect(partition, NO_EVENT, context(dead=(3,))).leader == 1


def test_an_elected_eligible_replica_is_alone_in_the_isr() -> None:
    partition = PartitionRegistration((1, 2, 3), (), (2, 3), last_known_leader=1)

    after = elect(partition, NO_EVENT, context(dead=(2,)))

    assert (after.leader, after.in_sync_replicas) == (3, (3,))
    assert after.eligible_leader_replicas == (2,)
    assert after.last_known_leader is None


def test_an_eligible_replica_takes_over_from_a_leader_in_shutdown() -> None:
    partition = PartitionRegistration((1, 2), (1,), (2,), leader=1)

    after = elect(partition, NO_EVENT, context(stopping=(1,)))

    assert (after.leader, after.in_sync_replicas) == (2, (2,))
    assert after.eligible_leader_replicas == (1,)


def test_if_all_replicas_are_in_shutdown_the_leader_stays_until_it_is_fenced() -> None:
    both = context(stopping=(1, 2), minimum=1)
    partition = PartitionRegistration((1, 2), (1, 2), leader=1)
    assert elect(partition, NO_EVENT, both) is partition

    after = elect(partition, NO_EVENT, context(stopping=(1, 2), dead=(1,), minimum=1))

    assert (after.leader, after.in_sync_replicas) == (2, (2,))


@pytest.mark.invariant("I60")
def test_with_a_large_enough_isr_no_replica_is_eligible() -> None:
    partition = PartitionRegistration((1, 2, 3), (1,), (2, 3), leader=1)

    after = elect(partition, PartitionEvent(in_sync_replicas=(1, 3)), context())

    assert after.eligible_leader_replicas == ()


@pytest.mark.invariant("I60")
def test_a_replica_with_lost_records_is_neither_in_the_isr_nor_eligible() -> None:
    partition = PartitionRegistration((1, 2, 3), (1,), (2, 3), leader=1)

    after = elect(partition, PartitionEvent(lost=(1, 3)), context(dead=(1, 3)))

    assert after.in_sync_replicas == (2,)
    assert after.eligible_leader_replicas == ()


def test_a_live_replica_with_lost_records_does_not_lead() -> None:
    partition = PartitionRegistration((1, 2, 3), (1,), (2, 3), leader=1)

    after = elect(partition, PartitionEvent(lost=(1, 2)), context())

    assert (after.leader, after.in_sync_replicas) == (3, (3,))
    assert after.eligible_leader_replicas == ()


def test_the_leader_stays_if_the_whole_isr_is_in_shutdown() -> None:
    partition = PartitionRegistration((1, 2), (1, 2), leader=2)

    assert elect(partition, NO_EVENT, context(stopping=(1, 2), minimum=1)) is partition


@pytest.mark.invariant("I60")
def test_a_last_known_leader_without_a_replica_is_not_elected() -> None:
    partition = PartitionRegistration((1, 2), (), (), last_known_leader=5)

    after = elect(partition, PartitionEvent(election=Election.UNCLEAN), context())

    assert after.leader == 1


def test_replicas_that_are_only_being_added_do_not_raise_the_minimum() -> None:
    partition = PartitionRegistration((1, 2, 3), (1, 2), leader=1, adding_replicas=(2, 3))

    after = elect(partition, PartitionEvent(in_sync_replicas=(1,)), context(minimum=2))

    assert after.eligible_leader_replicas == (), "an ISR of one is large enough"


@pytest.mark.invariant("I60")
@pytest.mark.parametrize(("dead", "leader"), [((), 2), ((2,), 1), ((1, 2), 3), ((1, 2, 3), None)])
def test_an_unclean_election_takes_the_last_known_leader_or_the_first_live_replica(
    dead: tuple[int, ...], leader: int | None
) -> None:
    partition = PartitionRegistration((1, 2, 3), (), (), last_known_leader=2, leader_epoch=4)

    after = elect(partition, PartitionEvent(election=Election.UNCLEAN), context(dead=dead))

    assert after.leader == leader
    assert after.data_loss_epoch == (None if leader is None else 5)


def test_the_preferred_leader_is_elected_only_in_the_isr_and_not_in_shutdown() -> None:
    preferred = PartitionEvent(election=Election.PREFERRED)
    partition = PartitionRegistration((1, 2, 3), (1, 2), leader=2)
    behind = PartitionRegistration((1, 2, 3), (2, 3), leader=2)

    assert elect(partition, preferred, context()).leader == 1
    assert elect(behind, preferred, context()).leader == 2
    assert elect(partition, preferred, context(stopping=(1,))).leader == 2


@st.composite
def partitions(draw: st.DrawFn) -> PartitionRegistration:
    """Draw a valid partition, as it is between two changes."""
    replicas = draw(st.permutations(range(1, 6)))[:4]
    in_sync = tuple(node for node in replicas if draw(st.booleans()))
    eligible = tuple(node for node in replicas if node not in in_sync and draw(st.booleans()))
    return PartitionRegistration(
        replicas=tuple(replicas),
        in_sync_replicas=in_sync,
        eligible_leader_replicas=eligible if len(in_sync) < 2 else (),
        leader=draw(st.sampled_from(in_sync)) if in_sync else None,
        adding_replicas=tuple(node for node in replicas[1:] if draw(st.booleans())),
    )


NODES = st.sets(st.integers(1, 5))


@pytest.mark.invariant("I60")
@given(partitions(), NODES, NODES, st.sampled_from(Election))
def test_a_replica_with_an_offline_log_leads_only_after_a_restart(
    partition: PartitionRegistration, dead: set[int], offline: set[int], election: Election
) -> None:
    now = context(dead=dead)

    after = elect(partition, PartitionEvent(offline=offline, election=election), now)

    assert not offline & set(after.in_sync_replicas)
    assert after.leader not in offline
    assert set(after.offline_replicas) == offline & set(after.eligible_leader_replicas)
    assert elect(after, NO_EVENT, now) is after
    again = elect(after, PartitionEvent(started=offline), now)
    assert again.offline_replicas == ()
    if after.leader is None and not set(after.eligible_leader_replicas) <= dead:
        assert again.leader in after.eligible_leader_replicas


@given(partitions(), NODES, NODES, NODES, st.sampled_from(Election), st.integers(1, 3))
def test_a_second_election_changes_nothing(
    partition: PartitionRegistration,
    dead: set[int],
    stopping: set[int],
    lost: set[int],
    election: Election,
    minimum: int,
) -> None:
    now = context(dead=dead | lost, stopping=stopping, minimum=minimum)

    after = elect(partition, PartitionEvent(lost=lost, election=election), now)

    assert elect(after, PartitionEvent(election=election), now) is after
    assert not set(after.in_sync_replicas) & (dead | lost)
    assert (after.leader is None) == (not after.in_sync_replicas)
    assert not set(after.in_sync_replicas) & set(after.eligible_leader_replicas)


def test_a_reassignment_is_complete_when_all_staying_replicas_are_in_sync() -> None:
    assignment = Assignment((4, 2, 3, 1), (4,), (1,))
    moving = elect(HEALTHY, PartitionEvent(assignment=assignment), context())
    assert moving.replicas == (4, 2, 3, 1)
    assert moving.leader_epoch == 5

    done = elect(moving, PartitionEvent(in_sync_replicas=(1, 2, 3, 4)), context())

    assert done.replicas == done.in_sync_replicas == (4, 2, 3)
    assert (done.leader, done.leader_epoch) == (4, 6)
