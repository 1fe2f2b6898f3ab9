"""Checkers of replication: committed records are on all in-sync replicas, and logs match."""

from math import inf
from typing import final

import pytest

from tests.simulation.cluster import cluster_history
from tests.simulation.cluster.cluster_history import NodeChecker
from tests.simulation.cluster.replica_log import (
    Appended,
    Asked,
    Cut,
    Joined,
    Lost,
    Opened,
    ReplicaLog,
    Shown,
    ToldEnd,
    Waits,
)


@pytest.mark.invariant("I35", "I46", "I62")
@final
class CommittedIsEverywhere(NodeChecker):
    """Committed records are on every replica that is in sync, or eligible to lead (I35).

    Definition: it is checked whenever a leader shows a high watermark, and whenever the metadata of
    a partition change. Every replica in the ISR or eligible, by the metadata committed by then, has
    all records below the highest high watermark shown, of the same leader epochs: on the disk, or
    with `durability = replicated` in its log. So a leader that was deposed without knowing it shows
    none, unless its successors have all of these records.
    """

    def shown(self, shown: Shown) -> None:
        """See `NodeChecker`."""
        for node_id in shown.must_have_all:
            log = shown.logs.get(node_id, ReplicaLog(0, 0))
            end = log.end_offset
            if shown.is_durable:
                end = min(end, log.durable_end_offset)
            if end < shown.high_watermark:
                self.fail(
                    f"{_cause(shown)} {shown.high_watermark} of {_name(shown.partition)}, and node"
                    f" {node_id}, one of {list(shown.must_have_all)}, has {end}"
                    f" ({log.end_offset} in its log)"
                )
            last = shown.high_watermark - 1
            # The epochs of a damaged replica may be known from the other replicas only.
            is_known = not log.is_damaged or log.epoch_of(last) is not None
            is_there = last >= log.log_start_offset and shown.epoch is not None and is_known
            if is_there and log.epoch_of(last) != shown.epoch:
                self.fail(
                    f"{_cause(shown)} {shown.high_watermark} of {_name(shown.partition)}, the last"
                    f" record below is of leader epoch {shown.epoch}, and on node {node_id} of"
                    f" {log.epoch_of(last)}"
                )


@pytest.mark.invariant("I1", "I45")
@final
class LogsMatch(NodeChecker):
    """If two replicas have a record of one leader epoch, their logs agree up to there (I48).

    Definition: whenever a leader shows a high watermark, and whenever the metadata of a partition
    change: the last leader epoch of which two replicas have records begins at the same offset in
    both, and so do all before it. Leader epochs rise with offsets. The records themselves are
    compared at the end of a run. Damaged replicas are not checked before their repair. Nor is a
    replica whose disk went back to records of another leader, as long as it is not in the ISR.
    """

    def __init__(self) -> None:
        """Start without stale disks."""
        self._gone_back: set[tuple[cluster_history.Partition, int]] = set()

    def opened(self, opened: Opened) -> None:
        """See `NodeChecker`."""
        self._gone_back.discard((opened.partition, opened.node_id))
        before = opened.before
        if before is not None and opened.log.end_offset > before.log_start_offset:
            end = min(opened.log.end_offset, before.end_offset)
            if opened.log.agreed_end(before) < end:
                self._gone_back.add((opened.partition, opened.node_id))

    def cut(self, cut: Cut) -> None:
        """See `NodeChecker`."""
        self._gone_back.discard((cut.partition, cut.node_id))

    def shown(self, shown: Shown) -> None:
        """See `NodeChecker`."""
        in_sync_or_eligible = {*shown.must_have_all, shown.agreed_leader}
        logs = [
            (node, log)
            for node, log in shown.logs.items()
            if not log.is_held
            and not log.is_damaged
            and (node in in_sync_or_eligible or (shown.partition, node) not in self._gone_back)
        ]
        for node_id, log in logs:
            epochs = [epoch for epoch, _ in log.leader_epochs]
            if epochs != sorted(set(epochs)):
                self.fail(f"node {node_id} has {_name(shown.partition)} of epochs {epochs}")
        first_id, first = logs[0] if logs else (0, ReplicaLog(0, 0))
        for at, (node_id, log) in enumerate(logs):
            for other_id, other in [(first_id, first), *logs[at + 1 :]]:
                if not _do_match(log, other):
                    self.fail(
                        f"{_name(shown.partition)} is of epochs {log.leader_epochs} on node"
                        f" {node_id}, and of {other.leader_epochs} on node {other_id}"
                    )


@pytest.mark.invariant("I37")
@final
class HighWatermarkStays(NodeChecker):
    """In one leader epoch no leader shows a lower high watermark than before (I37)."""

    def __init__(self) -> None:
        """Start without high watermarks."""
        self._shown: dict[tuple[cluster_history.Partition, tuple[int, int]], int] = {}

    def shown(self, shown: Shown) -> None:
        """See `NodeChecker`."""
        if shown.leader is None:
            return
        key = (shown.partition, shown.leader)
        known = self._shown.get(key, 0)
        if shown.high_watermark < known:
            self.fail(
                f"node {shown.leader[0]} shows {shown.high_watermark} of {_name(shown.partition)}"
                f" in leader epoch {shown.leader[1]}, but has shown {known}"
            )
        self._shown[key] = shown.high_watermark


@final
class TooFewIsSaid(NodeChecker):
    """With too few in-sync replicas no record is appended that has to wait for them (KIP-966).

    Definition: if a leader knew from request to reply that fewer than `min_insync_replicas` are in
    sync, a produce request with acks=all was not appended. Nor does an append wait for other
    replicas at a leader that knew this when it appended.
    """

    def __init__(self) -> None:
        """Start without leaders."""
        self._short_since: dict[tuple[cluster_history.Partition, int], float] = {}

    def shown(self, shown: Shown) -> None:
        """See `NodeChecker`."""
        if shown.leader is None:
            return
        key = (shown.partition, shown.leader[0])
        if shown.has_enough:
            self._short_since.pop(key, None)
        else:
            self._short_since.setdefault(key, self.now())

    def waits(self, waits: Waits) -> None:
        """See `NodeChecker`."""
        if not waits.has_enough:
            self.fail(
                f"node {waits.node_id} has appended to {_name(waits.partition)} though too few are"
                " in sync"
            )

    def appended(self, appended: Appended) -> None:
        """See `NodeChecker`."""
        since = self._short_since.get((appended.partition, appended.node_id), inf)
        if since < appended.asked_at:
            self.fail(
                f"node {appended.node_id} has appended to {_name(appended.partition)} a request"
                f" sent at {appended.asked_at:.3f} s; since {since:.3f} s too few were in sync"
            )


@pytest.mark.invariant("I41")
@final
class JoinersHaveAll(NodeChecker):
    """A replica that a leader proposes for the ISR has all committed records (I41).

    Definition: when a leader that was not deposed is about to request the change, and the process
    that it names is the registered one, that replica has all records below the highest high
    watermark ever shown. By the time of the reply the replica may have caught up, and a check
    would miss the error.
    """

    def asked(self, asked: Asked) -> None:
        """See `NodeChecker`."""
        for node_id, log in asked.logs.items():
            end = (
                min(log.end_offset, log.durable_end_offset) if asked.is_durable else log.end_offset
            )
            if end < asked.high_watermark:
                self.fail(
                    f"node {asked.node_id} asks for node {node_id} in {_name(asked.partition)},"
                    f" which has {end}, but {asked.high_watermark} is committed"
                )


@pytest.mark.invariant("I42")
@final
class JoinersAreKnown(NodeChecker):
    """A replica joins the ISR with the process whose fetches the leader has seen (I42, KIP-903).

    Definition: when a node joins the committed ISR without becoming leader, some leader has
    proposed the very process that is registered.
    """

    def __init__(self) -> None:
        """Start without proposals."""
        self._asked: set[tuple[cluster_history.Partition, int, int]] = set()

    def asked(self, asked: Asked) -> None:
        """See `NodeChecker`."""
        for node_id, epoch in asked.in_sync:
            self._asked.add((asked.partition, node_id, epoch))

    def joined(self, joined: Joined) -> None:
        """See `NodeChecker`."""
        if (joined.partition, joined.node_id, joined.broker_epoch) not in self._asked:
            self.fail(
                f"node {joined.node_id} is in sync in {_name(joined.partition)}, but no leader"
                f" asked for its process of broker epoch {joined.broker_epoch}"
            )


@pytest.mark.invariant("I52")
@final
class CommittedIsNotCut(NodeChecker):
    """A follower never truncates below its high watermark (I52).

    Definition: the offset of a truncation, where the leader's log differs, is not below the
    follower's own high watermark. So no high watermark may rise before the log matches. After an
    accepted loss, replicas may truncate the lost records.
    """

    def __init__(self) -> None:
        """Start without losses."""
        self._lost_from: dict[cluster_history.Partition, int] = {}

    def lost(self, lost: Lost) -> None:
        """See `NodeChecker`."""
        known = self._lost_from.get(lost.partition, lost.end_offset)
        self._lost_from[lost.partition] = min(known, lost.end_offset)

    def cut(self, cut: Cut) -> None:
        """See `NodeChecker`."""
        if cut.offset < min(cut.high_watermark, self._lost_from.get(cut.partition, inf)):
            self.fail(
                f"node {cut.node_id} truncates {_name(cut.partition)} at {cut.offset}, below its"
                f" high watermark {cut.high_watermark}"
            )


@pytest.mark.invariant("I15")
@final
class ReplicaStays(NodeChecker):
    """A replica that is opened has everything that was on its disk.

    Definition: the log of a replica ends no earlier than the durable end in the process before,
    unless that process truncated it, or the disk is another one. If the process before was killed
    and no other fault came, the log ends no earlier than that process's log.
    """

    def opened(self, opened: Opened) -> None:
        """See `NodeChecker`."""
        before = opened.before
        if before is None or before.is_held:
            return
        kept = before.end_offset
        if not opened.has_kept_cache:
            kept = min(kept, before.durable_end_offset)
        if opened.log.end_offset < kept:
            self.fail(
                f"node {opened.node_id} had {_name(opened.partition)} on its disk up to {kept}, but"
                f" finds {opened.log.end_offset}"
            )


@final
class LossIsAccepted(NodeChecker):
    """Committed records are lost only if all replicas that had them have lost their memory.

    Definition: an administrator accepts that a partition continues with fewer records than were
    committed. Then its `durability` is `replicated`, and no replica that was last in the ISR or
    eligible still has the process that had these records. The new leader keeps the records that its
    earlier process had on disk, and all records if that was only killed; `ReplicaStays` checks
    that.
    """

    def lost(self, lost: Lost) -> None:
        """See `NodeChecker`."""
        if lost.is_durable:
            self.fail(
                f"{_name(lost.partition)} was on disks, but is lost from {lost.end_offset} on"
            )
        if lost.passed_over:
            self.fail(
                f"{_name(lost.partition)} is lost from {lost.end_offset} on, but"
                f" {list(lost.passed_over)} have it"
            )


@pytest.mark.invariant("I47")
@final
class LatestRises(NodeChecker):
    """A reply never has a lower end offset than an earlier reply to any client.

    Definition: the offset is at least the largest end offset in any reply, and the end of all
    records acknowledged to any client, before the request was sent. Replies of a deposed leader do
    not count; `OneLeader` limits how long there may be any.
    """

    def __init__(self) -> None:
        """Start without end offsets."""
        self._leaders: dict[cluster_history.Partition, int | None] = {}
        self._known: dict[cluster_history.Partition, list[tuple[float, int]]] = {}
        """By partition: times and end offsets of replies; both rise."""

    def shown(self, shown: Shown) -> None:
        """See `NodeChecker`."""
        if shown.leader is None:
            self._leaders[shown.partition] = shown.agreed_leader

    def told_end(self, told: ToldEnd) -> None:
        """See `NodeChecker`."""
        if self._leaders.get(told.partition, told.node_id) != told.node_id:
            return
        for at, end in reversed(self._known.get(told.partition, ())):
            if at < told.asked_at:
                if told.end_offset < end:
                    self.fail(
                        f"node {told.node_id} says that {_name(told.partition)} ends at"
                        f" {told.end_offset}; {end} was known at {at:.3f} s, before the request at"
                        f" {told.asked_at:.3f} s"
                    )
                break
        self.known_end(told.partition, told.end_offset)

    def lost(self, lost: Lost) -> None:
        """See `NodeChecker`."""
        self._known.pop(lost.partition, None)

    def known_end(self, partition: cluster_history.Partition, end_offset: int) -> None:
        """See `NodeChecker`."""
        known = self._known.setdefault(partition, [])
        if not known or known[-1][1] < end_offset:
            known.append((self.now(), end_offset))


def _do_match(one: ReplicaLog, other: ReplicaLog) -> bool:
    start = max(one.log_start_offset, other.log_start_offset)
    if min(one.end_offset, other.end_offset) <= start:
        return True
    left, right = one.epochs_from(start), other.epochs_from(start)
    common = {epoch for epoch, _ in left} & {epoch for epoch, _ in right}
    last = max(common, default=-1)
    return [entry for entry in left if entry[0] <= last] == [
        entry for entry in right if entry[0] <= last
    ]


def _cause(shown: Shown) -> str:
    if shown.leader is None:
        return "the metadata change, a leader has shown"
    return f"node {shown.leader[0]} shows, in leader epoch {shown.leader[1]},"


def _name(partition: cluster_history.Partition) -> str:
    return f"{partition[0].hex()[:8]}/{partition[1]}"
