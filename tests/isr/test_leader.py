"""What is committed, and what may be acknowledged, as the leader's own log goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isr.durability import Durability
from isr.leader import PartitionLeader
from wire.produce import Acks

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
