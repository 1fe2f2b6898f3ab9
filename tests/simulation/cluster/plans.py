"""Plans of runs of clusters, as plain data; see `tests.simulation.broker.plans`."""

from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from tests.simulation.broker.plans import (
    Fault,
    NetworkPlan,
    ProducerPlan,
    ReadingPlan,
    RunPlan,
    draw_cleanup,
    draw_formats,
    draw_producer,
    is_compacted,
    throw,
)
from tests.simulation.machine.random_streams import RandomStreams

FAULT_GAPS_S: Final = {
    "kill": 10.0,
    "cut_power": 10.0,
    "cut_all": 25.0,
    "stop": 15.0,
    "pause": 10.0,
    "stall_loop": 12.0,
    "stall_disk": 12.0,
    "slow_disk": 15.0,
    "fail_sync": 20.0,
    "damage_voter": 60.0,
    "jump_clock": 12.0,
    "partition": 8.0,
    "isolate": 10.0,
    "slow_link": 10.0,
    "break_connections": 10.0,
    "kill_leader": 10.0,
    "cut_leader": 12.0,
    "pause_leader": 6.0,
    "isolate_leader": 5.0,
    "crash_on_commit": 6.0,
    "cut_all_on_commit": 10.0,
    "crash_on_election": 8.0,
    "crash_on_vote": 8.0,
    "crash_in_write": 8.0,
    "crash_partition_leader": 6.0,
    "pause_partition_leader": 6.0,
    "isolate_partition_leader": 6.0,
    "crash_on_takeover": 4.0,
    "crash_after_append": 3.0,
    "fail_log_sync": 12.0,
    "fill_disk": 12.0,
    "wipe_disk": 10.0,
    "rot_replicas": 30.0,
    "cut_files": 20.0,
    "stale_files": 20.0,
    "stale_after_cut": 4.0,
    "damage_all_files": 20.0,
    "tail_damage": 3.0,
    "directory_back": 4.0,
    "strike_on_join": 4.0,
    "part_on_return": 8.0,
    "kill_client": 15.0,
    "leave_group": 4.0,
    "replay_frames": 1.0,
}
"""Mean seconds between two faults of a kind, in a run that has the kind."""

_ONLY_FOR_REPLICAS = {
    "wipe_disk",
    "rot_replicas",
    "cut_files",
    "stale_files",
    "stale_after_cut",
    "damage_all_files",
    "strike_on_join",
    "part_on_return",
    "tail_damage",
    "directory_back",
}
"""Kinds for replicated topics only: a single disk loses its records, and has no joiner."""
_ONLY_ON_DISK = {"tail_damage", "directory_back"}
"""Kinds for durable topics only: an outage of all nodes loses what is in memory alone."""
_LONG_WAIT = {"recovery_election_wait_ms": "1h"}
"""After the wait a replica may lead that lacks records; faults keep others away for a minute."""
_OF_FIVE = {"min_insync_replicas": "3"}
_FIVE = 5
_REPLICATION_FACTORS = (1, 3, 3)
_MEMBER_COUNTS = (0, 0, 2, 3)
_LAST_ATTEMPTS = 8
_REPLICATED = 0.3
_MOVES = 0.4
_GROWS = 0.4
_HAS_KEYS = 0.7
"""Probability of keys in a compacted topic."""
_QUIET = 0.5
_STAGES = 0.4
_HAS_FAULT = 0.3
"""Probability of each kind; there are many, and a cluster must recover to reach states."""
_HAS_OFTEN = {
    "crash_on_takeover": 0.5,
    "crash_after_append": 0.5,
    "strike_on_join": 0.5,
    "wipe_disk": 0.5,
    "tail_damage": 0.6,
    "directory_back": 0.4,
    "replay_frames": 0.5,
}
"""Kinds with other probabilities."""


class ClusterPlan(RunPlan[Fault], frozen=True):
    """One run of a cluster."""

    node_count: int
    partition_count: int
    replication_factor: int
    topic_settings: dict[str, str]
    broker_settings: dict[str, int | str]
    sync_mean_s: float
    restart_mean_s: float
    outage_rate: float
    """Fraction of crashes that keep a machine down for many seconds."""
    network: NetworkPlan
    buggify_rate: float
    producers: list[ProducerPlan]
    consumer_count: int
    """Clients that read all partitions with the library."""
    member_count: int
    """Members of a consumer group that process all partitions."""
    churn_pause_s: float | None
    """Mean seconds between two commands of a client that creates, alters and deletes topics."""
    visit_pause_s: float | None
    """Mean seconds between two requests of a client that sends to leaders and other brokers."""
    move_pause_s: float | None = None
    """Mean seconds between two commands of a client that moves leaderships and replicas."""
    grow_pause_s: float | None = None
    """Mean seconds between two commands of a client that adds partitions to the topic."""
    clock_jump_s: float = 7200.0
    """Seconds from the largest jump of a clock back to the largest jump forward."""
    clock_error_s: float = 0.0
    """Maximum error of the clock of each machine, in seconds."""
    clock_drift: float = 0.0
    """Maximum fraction of time that a clock gains or loses."""
    has_older_readers: bool = False
    """Whether readers are clients of a version that knows format version 1 of batches only."""
    reads_from_followers: bool = False
    """Whether clients that read with the library prefer followers to leaders."""
    quiet_after_s: float | None = None
    """Seconds after which no client writes to the last partition; `None` for never."""
    stage_pause_s: float | None = None
    """Mean seconds between two transactions of a client."""
    cluster_settings: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Dynamic config of the cluster."""

    @property
    def is_durable(self) -> bool:
        """Whether all acknowledged records are on disk."""
        return self.topic_settings["durability"] == "fsync"

    @property
    def is_compacted(self) -> bool:
        """Whether compaction removes records that have a later record of the same key."""
        return is_compacted(self.topic_settings, self.producers)

    @property
    def node_ids(self) -> range:
        """The nodes of the cluster."""
        return range(1, self.node_count + 1)


def draw_plan(seed: int, seconds: float) -> ClusterPlan:
    """Return the plan of a seed; each part of it has its own random stream."""
    streams = RandomStreams(f"cluster plan {seed}")
    random = streams.stream("clients")
    replication_factor = streams.stream("replicas").choice(_REPLICATION_FACTORS)
    producers = [
        _fit(draw_producer(random), replication_factor) for _ in range(random.randint(1, 2))
    ]
    consumer_count = random.randint(0, 1)
    churn_pause_s = 10 ** random.uniform(-1.2, 0.3) if random.random() < 0.8 else None
    visit_pause_s = 10 ** random.uniform(-1.3, -0.3) if random.random() < 0.8 else None
    durability = _draw_durability(streams.stream("durability"), replication_factor)
    # A committed offset may be for lost records, and members would wait for them.
    member_count = streams.stream("members").choice(_MEMBER_COUNTS) * (durability == "fsync")
    cleanup = draw_cleanup(streams.stream("cleanup"))
    keys = _draw_keys(streams.stream("keys"), cleanup)
    producers, reading = draw_formats(streams.stream("formats"), producers, ReadingPlan())
    random = streams.stream("configuration")
    node_count = random.choice([3, 3, 4, 5])
    if replication_factor > 1 and node_count == _FIVE:
        replication_factor = streams.stream("five replicas").choice([replication_factor, _FIVE])
    faults = _draw_faults(streams, seconds, replication_factor, durability=durability)
    return ClusterPlan(
        seed=str(seed),
        seconds=seconds,
        node_count=node_count,
        partition_count=random.randint(2, 6),
        replication_factor=replication_factor,
        topic_settings={
            "durability": durability,
            "segment_bytes": random.choice(["4096", "32KiB", "1MiB"]),
            **cleanup,
        },
        broker_settings={
            "log_flush_interval_ms": random.choice([50, 500]),
            "maintenance_interval_ms": random.choice([200, 1000]),
            "scrub_interval_ms": streams.stream("scrub").choice([1000, 5000]),
            "replica_lag_time_max_ms": streams.stream("lag").choice([10_000, 2000, 1000]),
        },
        sync_mean_s=10 ** streams.stream("disk").uniform(-4, -2),
        restart_mean_s=random.choice([0.1, 0.5, 2.0]),
        outage_rate=random.choice([0.0, 0.1, 0.3]),
        network=_draw_network(streams.stream("network")),
        buggify_rate=random.choice([0.0, 0.25, 1.0]),
        producers=[msgspec.structs.replace(each, **keys) for each in producers],
        consumer_count=consumer_count,
        member_count=member_count,
        churn_pause_s=churn_pause_s,
        visit_pause_s=visit_pause_s,
        faults=faults,
        move_pause_s=_draw_moves(streams.stream("moves"), replication_factor),
        clock_jump_s=streams.stream("clock jumps").choice([60.0, 7200.0, 20 * 86_400.0]),
        clock_error_s=random.choice([0.0, 0.0, 5.0, 600.0]),
        clock_drift=random.choice([0.0, 0.0, 0.0005, 0.1]),
        has_older_readers=reading.is_older,
        reads_from_followers=streams.stream("readers").random() < 0.5,
        quiet_after_s=_draw_quiet(streams.stream("quiet"), seconds),
        grow_pause_s=_draw_growth(streams.stream("growth")),
        stage_pause_s=_draw_staging(streams.stream("staging"), durability),
        cluster_settings=_settings_for(faults, replication_factor),
    )


def _draw_network(random: Random) -> NetworkPlan:
    return NetworkPlan(
        delay_mean_s=10 ** random.uniform(-3.5, -2),
        loss=random.choice([0.0, 0.0, 0.01, 0.03]),
        split=random.choice([0.0, 0.1]),
        reset=random.choice([0.0, 0.0, 0.001]),
        bytes_per_s=random.choice([None, None, None, 1e6]),
    )


def _settings_for(faults: list[Fault], replication_factor: int) -> dict[str, str]:
    settings = _LONG_WAIT if any(fault.kind in _ONLY_ON_DISK for fault in faults) else {}
    # Two disks of five may be damaged: a third replica must have all committed records.
    return settings | (_OF_FIVE if replication_factor == _FIVE else {})


def _draw_staging(random: Random, durability: str) -> float | None:
    # The checker would have to tell records lost in memory from others.
    is_drawn = random.random() < _STAGES and durability == "fsync"
    return 10 ** random.uniform(-1.5, 0.0) if is_drawn else None


def _draw_moves(random: Random, replication_factor: int) -> float | None:
    is_moved = replication_factor > 1 and random.random() < _MOVES
    return 10 ** random.uniform(-0.5, 0.7) if is_moved else None


def _draw_keys(random: Random, cleanup: dict[str, str]) -> dict[str, bool]:
    """Return settings of a compacted topic's producers; `cleanup` gets the horizon."""
    if not cleanup or random.random() >= _HAS_KEYS:
        return {}
    cleanup["delete_retention_ms"] = random.choice(["0", "1s", "1d", "1d"])
    return {"has_keys": True, "has_tombstones": True}


def _draw_growth(random: Random) -> float | None:
    return 10 ** random.uniform(0.0, 1.0) if random.random() < _GROWS else None


def _draw_durability(random: Random, replication_factor: int) -> str:
    # Records in one broker's memory are lost with it; the runs of a single broker cover that.
    is_replicated = replication_factor > 1 and random.random() < _REPLICATED
    return "replicated" if is_replicated else "fsync"


def _draw_quiet(random: Random, seconds: float) -> float | None:
    return random.uniform(0.0, seconds / 2) if random.random() < _QUIET else None


def _fit(plan: ProducerPlan, replication_factor: int) -> ProducerPlan:
    """Return a producer whose limits suit a cluster.

    After it abandons records while partitions have no leader, it may learn their outcome partition
    by partition, after a second each.
    """
    return msgspec.structs.replace(
        plan,
        kind="library",
        pause_s=max(plan.pause_s, 0.05),
        last_attempts=_LAST_ATTEMPTS,
        believes_leader=replication_factor == 1,
    )


def _draw_faults(
    streams: RandomStreams, seconds: float, replication_factor: int, *, durability: str
) -> list[Fault]:
    faults: list[Fault] = []
    for kind, gap_s in FAULT_GAPS_S.items():
        if kind in _ONLY_FOR_REPLICAS and replication_factor == 1:
            continue
        if kind in _ONLY_ON_DISK and durability != "fsync":
            continue
        random = streams.stream(f"fault {kind}")
        if random.random() < _HAS_OFTEN.get(kind, _HAS_FAULT):
            faults += draw_kind(random, kind, gap_s * 2 ** random.uniform(-0.5, 2), seconds=seconds)
    return sorted(faults, key=lambda fault: (fault.at, fault.kind))


def draw_kind(random: Random, kind: str, mean_gap_s: float, *, seconds: float) -> list[Fault]:
    """Return faults of one kind, with this mean gap."""
    faults: list[Fault] = []
    at = random.expovariate(1 / mean_gap_s)
    while at < seconds:
        # Some last longer than a broker's session.
        duration = min(random.expovariate(1 / random.choice([0.8, 0.8, 8.0])), 20.0)
        faults.append(Fault(round(at, 4), kind, round(duration, 4), throw(random)))
        at += random.expovariate(1 / mean_gap_s)
    return faults
