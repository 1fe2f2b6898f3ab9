"""Tests of the observer of replicas: it sees their state, and finds differences."""

# Reads private state of the observer.
# pyright: reportPrivateUsage=false

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio

from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, make_topic, produce
from tests.coordinator.raft_clients import until
from tests.isr.leader_fixture import LeaderFixture
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.cluster_history import ClusterHistory, NodeChecker
from tests.simulation.cluster.replica_log import Asked, Cut, Opened, Shown
from tests.simulation.cluster.replica_witness import batches_of, not_overtaken, watching_replicas
from tests.simulation.cluster.replicas import Replicas
from tests.simulation.cluster.witness import witnessing
from tests.simulation.machine.world import Simulation, World
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.fetcher import ReplicaFetcher
from tidelog.broker.replication.isr_updater import IsrUpdater, _PendingChange
from tidelog.client.client import Client
from tidelog.isr.followers import IsrChange, IsrMember


class Notes(NodeChecker):
    """Records its calls."""

    def __init__(self) -> None:
        self.opened_by: list[int] = []
        self.had_kept_cache = False
        self.shown_last: dict[tuple[bytes, int], Shown] = {}
        self.cuts: list[Cut] = []

    def opened(self, opened: Opened) -> None:
        self.opened_by.append(opened.node_id)
        self.had_kept_cache = opened.has_kept_cache

    def shown(self, shown: Shown) -> None:
        self.shown_last[shown.partition] = shown

    def cut(self, cut: Cut) -> None:
        self.cuts.append(cut)


@dataclass(slots=True)
class Watched:
    """Three brokers, and the observed events."""

    brokers: ThreeBrokers
    cluster_history: ClusterHistory
    replicas: Replicas
    notes: Notes
    asked: list[Asked]


def watching(seed: int, story: Callable[[Client, Watched], Awaitable[None]]) -> None:
    """Run a story with three brokers and a topic under observation."""

    async def main(world: World) -> None:
        notes, asked = Notes(), list[Asked]()
        cluster_history = ClusterHistory([notes], world.clock.current_time, world.clock.fail)
        cluster_history.on_asked.append(asked.append)
        replicas = Replicas(cluster_history)
        with witnessing(cluster_history), watching_replicas(replicas), trio.fail_after(120):
            brokers = ThreeBrokers(world)
            brokers.start()
            await brokers.serve()

            async def work(client: Client) -> None:
                await make_topic(client)
                await story(client, Watched(brokers, cluster_history, replicas, notes, asked))

            await brokers.with_client(work)

    Simulation(seed).run(main)


def watched(look: Callable[[Replicas, Notes], None]) -> None:
    """Let three brokers store five records, then call `look`."""

    async def story(client: Client, seen: Watched) -> None:
        await produce(client, 5)
        await until(seen.replicas.are_in_sync)
        await until(seen.replicas.are_level)
        look(seen.replicas, seen.notes)

    watching(1, story)


def test_a_high_watermark_is_seen_with_the_logs_of_all_replicas() -> None:
    def look(replicas: Replicas, notes: Notes) -> None:
        assert sorted(notes.opened_by) == [*NODES]
        ((partition, last),) = notes.shown_last.items()
        assert last.high_watermark == replicas.high_watermark(partition) == 5
        assert sorted(last.must_have_all) == sorted(last.logs) == [*NODES]
        assert all(log.durable_end_offset == 5 for log in last.logs.values())
        assert last.is_durable

    watched(look)


def test_equal_replicas_pass_the_comparison() -> None:
    watched(lambda replicas, _: replicas.compare())


def test_an_additional_record_is_found() -> None:
    def look(replicas: Replicas, _: Notes) -> None:
        (partition,) = replicas._opened
        replica = replicas._opened[partition][2]
        assert len(batches_of(replica.log, 0)) == 5
        replica.log.truncate(4)

        assert not replicas.are_level()
        with pytest.raises(ViolationError, match=r"ReplicasAgree: .* from batch 4 of 5 and 4 on"):
            replicas.compare()

    watched(look)


def always(count: int) -> Callable[[int], int]:
    return lambda _: count


def test_a_cache_that_was_lost_while_a_log_was_closed_is_not_kept() -> None:
    """Later processes of its node were started, and left the idle log closed (seed 880026)."""

    def look(replicas: Replicas, notes: Notes) -> None:
        (partition,) = replicas._opened
        replica = replicas._opened[partition][2]
        replicas.page_caches.is_kept = lambda _: True
        found: list[bool] = []
        for lost_count in (0, 1, 1):
            replicas.page_caches.lost_count = always(lost_count)
            replicas.opened(2, replica)
            found.append(notes.had_kept_cache)
        assert found == [True, False, True]

    watched(look)


def test_isr_proposals_and_truncations_are_seen() -> None:
    """A replica that comes back finds that its leader has deleted the records that it lacks."""

    async def story(client: Client, seen: Watched) -> None:
        brokers, notes, asked = seen.brokers, seen.notes, seen.asked
        await produce(client, 10)
        follower, leader = brokers.followers()[0], brokers.leader()
        brokers.kill(follower)
        await until(lambda: follower not in brokers.in_sync())
        await produce(client, 30)
        await client.admin.delete_records(TOPIC, 0, 25)
        brokers.start(follower)
        await brokers.all_in_sync()

        cut = notes.cuts[-1]
        assert (cut.node_id, cut.offset) == (follower, 25)
        assert cut.high_watermark <= 10
        assert (asked[-1].node_id, [*asked[-1].joining]) == (leader, [follower])

    watching(2, story)


def test_a_proposal_for_an_old_partition_epoch_is_ignored() -> None:
    """The proposal is in flight, and refused when it arrives (seed 6100455)."""
    led, partition = LeaderFixture(1, 3), cast("Any", None)
    now, before = (
        _PendingChange(
            partition, led.leader, IsrChange(epoch, (IsrMember(1, 11), IsrMember(2, 12)))
        )
        for epoch in (led.replicas.partition_epoch, led.replicas.partition_epoch - 1)
    )

    assert not_overtaken([before, now]) == [now]


def test_a_replica_removed_while_its_node_is_down_is_unknown() -> None:
    """The node may open its log before it learns of the removal, or it has the replica again."""

    async def story(client: Client, seen: Watched) -> None:
        brokers, cluster_history, replicas, notes = (
            seen.brokers,
            seen.cluster_history,
            seen.replicas,
            seen.notes,
        )
        await produce(client, 5)
        await brokers.all_in_sync()
        gone = brokers.followers()[0]
        (key,) = replicas._opened
        replica = replicas._opened[key][gone]
        brokers.kill(gone)
        await brokers.reassign([node for node in NODES if node != gone])
        await until(lambda: gone not in cluster_history.image.state.partitions(key[0])[0].replicas)

        replicas.opened(gone, replica)

        assert notes.opened_by[-1] == gone
        assert gone not in replicas._assigned_of(key)

        await brokers.reassign(list(NODES))
        await until(lambda: gone in cluster_history.image.state.partitions(key[0])[0].replicas)

        assert replicas._assigned_of(key)[gone] is replica

    watching(3, story)


def test_a_proposal_for_a_stopped_process_with_a_new_disk_is_ignored() -> None:
    """The leader has not learned of the stop; the cluster refuses the change (seed 8200025)."""

    async def story(client: Client, seen: Watched) -> None:
        brokers, cluster_history, replicas, asked = (
            seen.brokers,
            seen.cluster_history,
            seen.replicas,
            seen.asked,
        )
        await produce(client, 5)
        await brokers.all_in_sync()
        gone, leader_id = brokers.followers()[0], await brokers.leads()
        (key,) = replicas._opened
        brokers.kill(gone)
        await until(lambda: gone not in brokers.in_sync())
        replica = replicas._opened[key][leader_id]
        leader = replica.leader
        assert leader is not None
        epoch = cluster_history.image.state.brokers[gone].broker_epoch
        change = [(leader_id, 0), (gone, epoch)]

        replicas.asks(leader_id, replica, leader, in_sync=change)
        cluster_history.on_disk_changed[0](gone)
        replicas.asks(leader_id, replica, leader, in_sync=change)

        assert [[*each.logs] for each in asked[-2:]] == [[gone], []]

        brokers.start(gone)
        await brokers.all_in_sync()

        assert [*asked[-1].logs] == [gone]

    watching(4, story)


def test_the_observer_is_removed_at_the_end() -> None:
    owners = (Partition, ReplicaFetcher, IsrUpdater)
    before = [dict(owner.__dict__) for owner in owners]

    watched(lambda replicas, _: replicas.compare())

    assert [dict(owner.__dict__) for owner in owners] == before
