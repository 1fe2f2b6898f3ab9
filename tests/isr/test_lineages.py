"""Scenarios of diverging logs that must converge again: KIP-101, KIP-279 and similar ones."""

from typing import final

import pytest

from tests.simulation.mutations.isr import TRUNCATE_BY_HIGH_WATERMARK
from tidelog.isr.divergence import LogShape, find_divergence
from tidelog.isr.follower import Append, LeaderAnswer, PartitionFollower, Truncate
from tidelog.logstore.leader_epochs import LeaderEpochs


@final
class Copy:
    """A replica: a log and its high watermark."""

    def __init__(self) -> None:
        """Start with an empty log."""
        self.log: list[tuple[int, str]] = []
        self.high_watermark = 0
        self._epochs = LeaderEpochs()
        self._leader_epoch = 0
        self.follower: PartitionFollower | None = None

    @property
    def values(self) -> list[str]:
        return [value for _, value in self.log]

    def shape(self) -> LogShape:
        return LogShape(0, len(self.log), self._epochs)

    def lead(self, leader_epoch: int) -> None:
        """Become the leader."""
        self._leader_epoch = leader_epoch

    def write(self, *values: str) -> None:
        self._append([(self._leader_epoch, value) for value in values])

    def restart(self, *, lost: int = 0, high_watermark: int = 0) -> None:
        """Restart with the records on disk and an earlier high watermark."""
        kept = self.log[: len(self.log) - lost]
        self.log, self._epochs = [], LeaderEpochs()
        self._append(kept)
        self.high_watermark = min(high_watermark, len(kept))

    def follow(self, leader_epoch: int, *, data_loss_epoch: int | None = None) -> None:
        self._leader_epoch = leader_epoch
        self.follower = PartitionFollower(
            leader_id=1,
            leader_epoch=leader_epoch,
            high_watermark=self.high_watermark,
            data_loss_epoch=data_loss_epoch,
        )

    def fetch(self, leader: "Copy") -> str:
        """Fetch once from the leader; return the step."""
        follower = self.follower
        assert follower is not None
        position = follower.position(self.shape())
        diverging = find_divergence(
            leader.shape(),
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
        )
        answer = LeaderAnswer(self._leader_epoch, position, leader.high_watermark, 0, diverging)
        step = follower.answered(self.shape(), answer)
        if isinstance(step, Truncate):
            del self.log[step.offset :]
            self._epochs.truncate_end(step.offset)
            follower.truncated(step.offset)
        else:
            assert isinstance(step, Append)
            self._append(leader.log[position.fetch_offset :])
            follower.appended(answer, log_end_offset=len(self.log))
        self.high_watermark = follower.high_watermark
        return type(step).__name__

    def fetch_all(self, leader: "Copy") -> list[str]:
        """Fetch until there is nothing more; return all steps but the last."""
        steps: list[str] = []
        while self.log != leader.log:
            steps.append(self.fetch(leader))
            assert len(steps) < 10, "the fetches do not end"
        self.fetch(leader)
        return steps

    def _append(self, batches: list[tuple[int, str]]) -> None:
        for epoch, value in batches:
            self._epochs.assign(epoch, len(self.log))
            self.log.append((epoch, value))


@pytest.mark.invariant("I48")
def test_a_restart_with_an_old_high_watermark_truncates_nothing() -> None:
    """I48, KIP-101 scenario 1: m2 was acknowledged, and only the leader knew."""
    a, b = Copy(), Copy()
    b.lead(0)
    b.write("m1", "m2")
    a.follow(0)
    a.fetch(b)
    b.high_watermark = 2

    a.restart(high_watermark=1)
    a.follow(0)
    assert a.fetch(b) == "Append"
    assert a.values == ["m1", "m2"]
    a.restart(high_watermark=1)
    a.lead(1)

    b.follow(1)
    assert b.fetch(a) == "Append"
    assert (a.values, b.values) == (["m1", "m2"], ["m1", "m2"])


@pytest.mark.invariant("I48")
def test_after_a_power_failure_of_both_the_leaders_records_win() -> None:
    """I48, KIP-101 scenario 2: two records at one offset, and equal high watermarks.

    B lacks a committed record, so an administrator has accepted the loss before B leads.
    """
    a, b = Copy(), Copy()
    a.lead(0)
    a.write("m1", "m2")
    b.follow(0)
    b.fetch(a)
    a.restart(high_watermark=2)
    b.restart(lost=1, high_watermark=1)

    b.lead(1)
    b.write("m3")
    b.high_watermark = 2
    a.follow(1, data_loss_epoch=1)

    assert a.fetch_all(b) == ["Truncate", "Append"]
    assert (a.log, a.high_watermark) == (b.log, 2)
    assert a.values == ["m1", "m3"]


@pytest.mark.invariant("I49")
def test_after_two_fast_failovers_the_unknown_epoch_is_truncated() -> None:
    """I49, KIP-279, KAFKA-6361: A leads, B leads without a follower, A leads again."""
    a, b = Copy(), Copy()
    a.lead(0)
    a.write("m1")
    b.follow(0)
    b.fetch(a)
    b.lead(1)
    b.write("n1", "n2", "n3")
    a.lead(2)
    a.write("m2", "m3")

    b.follow(2)

    assert b.fetch_all(a) == ["Truncate", "Append"]
    assert (b.values, b.log) == (["m1", "m2", "m3"], a.log)


@pytest.mark.invariant("I49")
def test_logs_with_interleaved_epochs_converge_in_several_rounds() -> None:
    """I49: each answer leads to the next smaller epoch of the two logs."""
    a, b = Copy(), Copy()
    a.lead(0)
    a.write("m1")
    b.follow(0)
    b.fetch(a)
    for epoch in range(1, 7):
        copy = a if epoch % 2 else b
        copy.lead(epoch)
        copy.write(f"e{epoch}", f"e{epoch} again")
    b.lead(7)
    b.write("m2")

    a.follow(7)

    steps = a.fetch_all(b)
    assert steps.count("Truncate") > 1
    assert a.log == b.log


@pytest.mark.invariant("I51", "I56")
def test_an_epoch_without_records_causes_no_divergence() -> None:
    """I51, I56, KAFKA-10706: their epochs are in no log, and no follower asks for them."""
    a, b = Copy(), Copy()
    a.lead(0)
    a.write("m1")
    b.follow(0)
    b.fetch(a)
    for epoch in range(1, 5):
        (a if epoch % 2 else b).lead(epoch)
    b.lead(5)
    b.write("m2")
    a.follow(5)

    assert a.fetch_all(b) == ["Append"]
    assert a.log == b.log == [(0, "m1"), (5, "m2")]


@pytest.mark.invariant("I53")
def test_empty_answers_keep_the_fetch_position() -> None:
    """I53, KAFKA-15510: it still sends the epoch of its last record."""
    a, b = Copy(), Copy()
    a.lead(3)
    a.write("m1")
    b.follow(3)
    b.fetch(a)
    follower = b.follower
    assert follower is not None
    before = follower.position(b.shape())

    assert [b.fetch(a) for _ in range(3)] == ["Append"] * 3

    assert follower.position(b.shape()) == before
    assert before.last_fetched_epoch == 3


@pytest.mark.invariant("I52")
def test_records_above_the_divergence_are_not_committed() -> None:
    """I52, KAFKA-14704: the leader's high watermark counts only for a prefix of its log."""
    a, b = Copy(), Copy()
    a.lead(0)
    a.write("m1", "m2", "m3")
    b.follow(0)
    b.fetch(a)
    a.restart(lost=2)
    a.lead(1)
    a.write("n2", "n3")
    a.high_watermark = 3
    b.follow(1)

    assert b.fetch(a) == "Truncate"
    assert b.high_watermark <= 1
    b.fetch_all(a)
    assert (b.values, b.high_watermark) == (["m1", "n2", "n3"], 3)


def test_a_truncation_keeps_committed_records_above_the_followers_high_watermark() -> None:
    """I48: it may be the next leader before its next fetch."""
    a, b = Copy(), Copy()
    a.lead(0)
    a.write("m1", "m2")
    b.follow(0)
    b.fetch(a)
    b.restart(high_watermark=1)
    b.lead(1)
    b.write("n3")
    a.lead(2)
    a.write("m3")
    a.high_watermark = 2
    b.follow(2)

    assert b.fetch(a) == "Truncate"

    assert b.values == ["m1", "m2"]


def test_truncating_by_the_high_watermark_is_caught() -> None:
    with TRUNCATE_BY_HIGH_WATERMARK.applied(), pytest.raises(AssertionError):
        test_a_truncation_keeps_committed_records_above_the_followers_high_watermark()
