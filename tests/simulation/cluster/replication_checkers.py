"""What replicas promise: what is committed is on all that are in sync, and logs are one log."""

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
    """What is committed is on every replica that is in sync, or eligible to lead (I35).

    Definition: whenever a leader shows a high watermark, and whenever the metadata of a partition
    change, everybody who is in sync or eligible, as the cluster has agreed by then, has all records
    below the highest that was shown, of the same leader epochs: on the disk, or with `durability =
    replicated` in its log. So nobody may show one who was deposed without knowing it, unless those
    who took over have all of it.
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
                    f"{_who(shown)} {shown.high_watermark} of {_name(shown.partition)}, and node"
                    f" {node_id}, one of {list(shown.must_have_all)}, has {end}"
                    f" ({log.end_offset} in its log)"
                )
            last = shown.high_watermark - 1
            # Who wrote what is damaged may be known from the others only.
            is_known = not log.is_damaged or log.epoch_of(last) is not None
            is_there = last >= log.log_start_offset and shown.epoch is not None and is_known
            if is_there and log.epoch_of(last) != shown.epoch:
                self.fail(
                    f"{_who(shown)} {shown.high_watermark} of {_name(shown.partition)}, the last"
                    f" record below is of leader epoch {shown.epoch}, and on node {node_id} of"
                    f" {log.epoch_of(last)}"
                )


@pytest.mark.invariant("I1", "I45")
@final
class LogsMatch(NodeChecker):
    """Where two replicas have a record of one leader epoch, their logs agree up to there (I48).

    Definition: whenever a leader shows a high watermark, and whenever the metadata of a partition
    change: the last leader epoch of which two replicas have records begins at the same offset in
    both, and so do all before it. Leader epochs rise with offsets. What the records are, the end
    of a run compares. Replicas that are damaged are not looked at before they are mended, nor one
    whose disk has gone back to what another leader had written, as long as nobody counts on it.
    """

    def __init__(self) -> None:
        """Know of no such disk."""
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
        """Know of none."""
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
                f" in leader epoch {shown.leader[1]}, and has shown {known}"
            )
        self._shown[key] = shown.high_watermark


@final
class TooFewIsSaid(NodeChecker):
    """With too few in sync nothing is appended that has to wait for them (KIP-966).

    Definition: if a leader knew all the time, from the question to the answer, that fewer than
    `min_insync_replicas` are in sync, a produce with acks of all was not appended; nor does any
    wait for the others at a leader that knows so when it was appended.
    """

    def __init__(self) -> None:
        """Know of no leader."""
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
                f"node {appended.node_id} has appended to {_name(appended.partition)} what was sent"
                f" at {appended.asked_at:.3f} s; since {since:.3f} s too few were in sync"
            )


@pytest.mark.invariant("I41")
@final
class JoinersHaveAll(NodeChecker):
    """Whom a leader asks the cluster to take for in sync has all that is committed (I41).

    Definition: when a leader that was not deposed is about to ask, and the process that it names is
    the one that the cluster knows, that one has all below the highest high watermark ever shown. By
    the time of the answer it may have caught up, so that nobody would notice.
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
                    f" which has {end}, and {asked.high_watermark} is committed"
                )


@pytest.mark.invariant("I42")
@final
class JoinersAreKnown(NodeChecker):
    """Who joins those in sync is the process whose reports a leader has seen (I42, KIP-903).

    Definition: when the cluster takes a node for in sync, unless it is to lead, some leader has
    asked for the very process that the cluster knows.
    """

    def __init__(self) -> None:
        """Know of no question."""
        self._asked: set[tuple[cluster_history.Partition, int, int]] = set()

    def asked(self, asked: Asked) -> None:
        """See `NodeChecker`."""
        for node_id, epoch in asked.in_sync:
            self._asked.add((asked.partition, node_id, epoch))

    def joined(self, joined: Joined) -> None:
        """See `NodeChecker`."""
        if (joined.partition, joined.node_id, joined.broker_epoch) not in self._asked:
            self.fail(
                f"node {joined.node_id} is in sync in {_name(joined.partition)}, and no leader"
                f" asked for its process of broker epoch {joined.broker_epoch}"
            )


@pytest.mark.invariant("I52")
@final
class CommittedIsNotCut(NodeChecker):
    """A follower cuts off nothing that it takes for committed (I52).

    Definition: the offset from which on it removes its records, for its leader's log is another one
    there, is not below its own high watermark. So none may rise before the log is in order. What
    was lost, and somebody has accepted that, may be cut off by who has it.
    """

    def __init__(self) -> None:
        """Know of no loss."""
        self._lost_from: dict[cluster_history.Partition, int] = {}

    def lost(self, lost: Lost) -> None:
        """See `NodeChecker`."""
        known = self._lost_from.get(lost.partition, lost.end_offset)
        self._lost_from[lost.partition] = min(known, lost.end_offset)

    def cut(self, cut: Cut) -> None:
        """See `NodeChecker`."""
        if cut.offset < min(cut.high_watermark, self._lost_from.get(cut.partition, inf)):
            self.fail(
                f"node {cut.node_id} removes {_name(cut.partition)} from {cut.offset} on, and takes"
                f" it for committed up to {cut.high_watermark}"
            )


@pytest.mark.invariant("I15")
@final
class ReplicaStays(NodeChecker):
    """A replica that is opened has everything that was on its disk.

    Definition: the log of a replica ends no earlier than what the process before took to be on the
    disk, unless that one had it truncated, or the disk is another one. If the process before was
    killed and nothing else, it ends no earlier than that one's.
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
                f"node {opened.node_id} had {_name(opened.partition)} on its disk up to {kept}, and"
                f" finds {opened.log.end_offset}"
            )


@final
class LossIsAccepted(NodeChecker):
    """Committed records are lost only if all who had them have lost their memory.

    Definition: when somebody has accepted that a partition goes on with fewer records than a leader
    has shown to be committed, its `durability` is `replicated`, and of those who were in sync or
    eligible last, none has the process that had these records. What the new leader's process before
    had on its disk it has still, and if it was only killed, all: that is up to `ReplicaStays`.
    """

    def lost(self, lost: Lost) -> None:
        """See `NodeChecker`."""
        if lost.is_durable:
            self.fail(
                f"{_name(lost.partition)} was on disks, and is lost from {lost.end_offset} on"
            )
        if lost.passed_over:
            self.fail(
                f"{_name(lost.partition)} is lost from {lost.end_offset} on, and"
                f" {list(lost.passed_over)} have it"
            )


@pytest.mark.invariant("I47")
@final
class LatestRises(NodeChecker):
    """Who asks for the end of a partition is never told less than anybody was told before it asked.

    Definition: the offset is at least the largest that was told, and the end of all that was
    acknowledged to any client, before the question left. What somebody says who does not lead any
    more counts for nothing; how long that may be is up to `OneLeader`.
    """

    def __init__(self) -> None:
        """Know of none."""
        self._leaders: dict[cluster_history.Partition, int | None] = {}
        self._known: dict[cluster_history.Partition, list[tuple[float, int]]] = {}
        """By partition: ends and when they were told, both rise."""

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
                        f" {told.end_offset}; {end} was known at {at:.3f} s, and that was asked at"
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


def _who(shown: Shown) -> str:
    if shown.leader is None:
        return "the metadata change, a leader has shown"
    return f"node {shown.leader[0]} shows, in leader epoch {shown.leader[1]},"


def _name(partition: cluster_history.Partition) -> str:
    return f"{partition[0].hex()[:8]}/{partition[1]}"
