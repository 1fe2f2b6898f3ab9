"""Plans: the parameters and faults of one run, as plain data.

A seed expands to a plan, and a run depends only on its plan and the code. So a failure is kept as
its plan: the plan shows the relevant faults, it can be shrunk, and it still replays after the
expansion of seeds has changed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from tests.simulation.broker.keys import Superseded
from tests.simulation.checkers.run_history import ProducerRules
from tests.simulation.machine.random_streams import RandomStreams

FAULT_GAPS_S: Final = {
    "kill": 8.0,
    "cut_power": 8.0,
    "cut_power_while_syncing": 5.0,
    "cut_power_after_append": 6.0,
    "kill_after_append": 8.0,
    "crash_in_roll": 6.0,
    "crash_in_checkpoint": 6.0,
    "crash_in_swap": 6.0,
    "crash_in_topic_change": 5.0,
    "stop": 15.0,
    "pause": 10.0,
    "stall_loop": 10.0,
    "stall_disk": 10.0,
    "slow_disk": 15.0,
    "fail_sync": 10.0,
    "fail_write": 20.0,
    "fail_read": 15.0,
    "fail_names": 12.0,
    "fill_disk": 12.0,
    "rot": 20.0,
    "rot_checkpoint": 25.0,
    "rot_frame": 15.0,
    "lose_sector": 20.0,
    "partition": 8.0,
    "lose_replies": 8.0,
    "break_while_syncing": 8.0,
    "break_connections": 8.0,
    "jump_clock": 10.0,
    "kill_client": 12.0,
    "no_descriptors": 25.0,
    "delete_records": 8.0,
    "alter_topic": 8.0,
    "add_partitions": 8.0,
    "trespass": 10.0,
}
"""Mean seconds between two faults of a kind, in a run that has the kind."""

ENDLESS: Final = {"retention_bytes": "unlimited", "retention_ms": "7d"}
"""Topic settings without any retention within a run."""

_ALTERATIONS: Final = (
    (0.20, {"segment_bytes": "4096"}),
    (0.35, {"segment_bytes": "64KiB"}),
    (0.45, {"segment_ms": "1s"}),
    (0.55, {"segment_ms": "7d"}),
    (0.65, {"index_interval_bytes": "256"}),
    (0.75, {"index_interval_bytes": "4KiB"}),
    (0.79, {"retention_bytes": "8KiB"}),
    (0.83, {"retention_ms": "2s"}),
    (0.94, ENDLESS),
    (0.97, {"durability": "replicated"}),
    (1.00, {"durability": "fsync"}),
)
"""Settings of each `alter_topic`, with the upper bound of its dice."""

_ACKS_ALL = 2
_HAS_FAULT = 0.5
_HAS_ROT = 0.3
"""Probability of each kind of damage; lower, as some promises need a run without damage."""
_ROTS = {"rot", "rot_checkpoint", "lose_sector"}

ALWAYS_SET: Final = ("log_flush_interval_ms", "maintenance_interval_ms")
"""Broker settings in every plan, because their defaults are too long for a run."""

_CHURNS = 0.4
_IS_OLDER = 0.5
_KILLED_AT_END = 0.25
_LONG_POLLS_MAX = 8
"""Long polls of one consumer at a time: one for each partition of a topic that has grown."""
_DEEDS = {"delete_records", "alter_topic", "add_partitions"}


class PlannedFault(msgspec.Struct, frozen=True):
    """Fields of the faults of all kinds of runs."""

    at: float
    """Seconds from the beginning of the faults. An aimed fault waits from then on for its
    moment."""
    kind: str
    duration: float
    """Seconds that the fault lasts, for faults that last."""


FaultType = TypeVar("FaultType", bound=PlannedFault)


class Fault(PlannedFault, frozen=True):
    """One fault of a run."""

    dice: float
    """From 0 to 1; chooses the target, the amount and the direction of the fault."""


class RunPlan(msgspec.Struct, Generic[FaultType], frozen=True):
    """Fields of the plans of all kinds of runs."""

    seed: str
    """Seed of all random streams of the run."""
    seconds: float
    """Duration of the faults in seconds; a tail without faults follows."""
    faults: list[FaultType]


class ProducerPlan(msgspec.Struct, frozen=True):
    """One producer."""

    kind: str
    """`library`, or `raw`: without the library, with batches that it repeats without need."""
    acks: int
    is_idempotent: bool
    compression: str
    pause_s: float
    """Mean seconds between two bursts."""
    burst_max: int
    """Maximum records per burst."""
    max_value_bytes: int
    delivery_timeout_s: float
    linger_s: float = 0.0
    batch_size: int = 256 << 10
    max_in_flight: int = 5
    """Maximum batches of one partition in flight."""
    request_timeout_s: float = 4.0
    """Request timeout of the client, in seconds."""
    ack_timeout_ms: int = 1000
    """Maximum wait for an acknowledgement in a `raw` produce request, in milliseconds."""
    is_scattered: bool = False
    """Whether the library spreads the records of a burst over partitions, instead of one."""
    last_attempts: int = 2
    """Attempts for the last few records of a producer. A broker whose disk has failed may be
    restarted in between, once; attempts before that restart do not count."""
    has_keys: bool = False
    """Whether records have the keys that follow from their values."""
    has_tombstones: bool = False
    """Whether some of the records with a key are tombstones."""
    believes_leader: bool = True
    """Whether an acknowledgement of the leader alone counts. With several replicas, a replica that
    lacks the record may become leader."""

    batch_format: int = 1
    """Format version of batches that are sent without the library. With the library: 2 for batches
    of any length in format version 2, as soon as the cluster accepts that."""

    @property
    def is_told(self) -> bool:
        """Whether the producer receives the outcome of its records."""
        return self.acks == _ACKS_ALL or (self.acks != 0 and self.believes_leader)


class ReadingPlan(msgspec.Struct, frozen=True):
    """Sizes and waits of fetches."""

    raw_fetch_bytes: int = 4096
    """Maximum bytes from one partition, for readers without the library."""
    max_partition_fetch_bytes: int = 1 << 20
    """Maximum bytes from one partition, for readers with the library; so are the fields below."""
    prefetch_bytes: int = 16 << 20
    fetch_min_bytes: int = 1
    max_wait_s: float = 0.5
    read_from: Literal["leader", "followers"] = "leader"
    """Replicas that library readers of a cluster read from."""
    is_older: bool = False
    """Whether readers are clients of a version that knows format version 1 of batches only."""
    ends_older: bool = False
    """Whether the last reader is such a client."""


class KeyedPlan(Protocol):
    """Plan of a run in which a topic may be compacted."""

    @property
    def topic_settings(self) -> dict[str, str]:
        """Settings of the topic."""
        ...

    @property
    def producers(self) -> list[ProducerPlan]:
        """Producers of the topic."""
        ...

    @property
    def is_compacted(self) -> bool:
        """Whether compaction removes records that have a later record of the same key."""
        ...


class NetworkPlan(msgspec.Struct, frozen=True):
    """Network conditions during the faults."""

    delay_mean_s: float
    loss: float
    split: float
    reset: float
    bytes_per_s: float | None = None
    """`None` if the link is never the bottleneck."""
    window_bytes: int = 64 << 10
    """Maximum bytes in flight on a connection whose receiver does not read."""


class Plan(RunPlan[Fault], frozen=True):
    """One run of a single broker."""

    broker_count: int
    partition_count: int
    topic_settings: dict[str, str]
    broker_settings: dict[str, int]
    sync_mean_s: float
    restart_mean_s: float
    network: NetworkPlan
    buggify_rate: float
    producers: list[ProducerPlan]
    library_consumer_count: int
    churn_pause_s: float | None = None
    """Mean seconds between two commands of a client that creates and deletes its own topics."""
    is_killed_at_end: bool = True
    """Whether the broker is killed when the faults are over. If not, it must recover from them
    without a restart."""
    reading: ReadingPlan = ReadingPlan()
    clock_error_s: float = 0.0
    """Maximum error of the clock of each machine, in seconds."""
    clock_drift: float = 0.0
    """Maximum fraction of time that a clock gains or loses."""

    @property
    def is_durable(self) -> bool:
        """Whether committed records are always on the disk."""
        return all(
            settings.get("durability") != "replicated"
            for settings in (self.topic_settings, *self._alterations)
        )

    @property
    def has_retention(self) -> bool:
        """Return whether retention deletes segments.

        A segment that compaction has emptied is older than any time limit.
        """
        return self.is_compacted or any(
            settings.get(name, endless) != endless
            for settings in (self.topic_settings, *self._alterations)
            for name, endless in ENDLESS.items()
        )

    @property
    def is_compacted(self) -> bool:
        """Whether compaction removes records that have a later record of the same key."""
        return is_compacted(self.topic_settings, self.producers)

    @property
    def has_administrator(self) -> bool:
        """Whether there are commands for an administrator."""
        return any(fault.kind in _DEEDS for fault in self.faults)

    @property
    def _alterations(self) -> list[dict[str, str]]:
        return [alteration(fault) for fault in self.faults if fault.kind == "alter_topic"]


def is_compacted(topic_settings: Mapping[str, str], producers: Sequence[ProducerPlan]) -> bool:
    """Return whether compaction removes records that have a later record of the same key."""
    has_keys = any(producer.has_keys for producer in producers)
    return has_keys and "compact" in topic_settings.get("cleanup_policy", "")


def superseded_of(
    plan: "KeyedPlan", partitions: range, rules: Mapping[str, ProducerRules]
) -> Superseded:
    """Return the rules for superseded records of a run; no clock jumps for a day in it."""
    return Superseded(
        partitions if plan.is_compacted else (),
        has_tombstones=any(producer.has_tombstones for producer in plan.producers),
        loses_tombstones=plan.topic_settings.get("delete_retention_ms") != "1d",
        rules=rules,
    )


def alteration(fault: Fault) -> dict[str, str]:
    """Return the settings of an `alter_topic`."""
    return next(settings for below, settings in _ALTERATIONS if fault.dice <= below)


def draw_plan(seed: int, seconds: float) -> Plan:
    """Return the plan of a seed; each part of it has its own random stream."""
    streams = RandomStreams(f"plan {seed}")
    random = streams.stream("network")
    network = NetworkPlan(
        delay_mean_s=10 ** random.uniform(-3.5, -1.5),
        loss=random.choice([0.0, 0.0, 0.01, 0.05]),
        split=random.choice([0.0, 0.1, 0.5]),
        reset=random.choice([0.0, 0.0, 0.001, 0.01]),
        bytes_per_s=random.choice([None, None, None, 1e6, 1e5, 3e4]),
        window_bytes=random.choice([64 << 10, 64 << 10, 4 << 10, 512]),
    )
    random = streams.stream("disk")
    sync_mean_s = 10 ** random.uniform(-4, -1.7)
    random = streams.stream("clients")
    tuning = streams.stream("producers")
    producers = [tune_producer(draw_producer(random), tuning) for _ in range(random.randint(1, 3))]
    library_consumer_count = random.randint(0, 1)
    random = streams.stream("churn")
    churn_pause_s = 10 ** random.uniform(-1.0, 0.3) if random.random() < _CHURNS else None
    is_killed_at_end = streams.stream("end").random() < _KILLED_AT_END
    limits = _draw_limits(streams.stream("limits"))
    reading = _shorten_waits(_draw_reading(streams.stream("reading")), limits)
    producers, reading = draw_formats(streams.stream("formats"), producers, reading)
    random = streams.stream("clocks")
    clock_error_s = random.choice([0.0, 0.0, 0.1, 5.0, 600.0])
    clock_drift = random.choice([0.0, 0.0, 0.0005, 0.1])
    random = streams.stream("configuration")
    return Plan(
        seed=str(seed),
        seconds=seconds,
        broker_count=1,
        partition_count=random.randint(1, 3),
        topic_settings=_draw_topic_settings(random) | draw_cleanup(streams.stream("cleanup")),
        broker_settings={
            "log_flush_interval_ms": random.choice([50, 500, 5000]),
            "maintenance_interval_ms": random.choice([200, 1000, 5000]),
            **limits,
        },
        sync_mean_s=sync_mean_s,
        restart_mean_s=random.choice([0.1, 0.3, 1.0]),
        network=network,
        buggify_rate=random.choice([0.0, 0.25, 1.0]),
        producers=producers,
        library_consumer_count=library_consumer_count,
        faults=_draw_faults(streams, seconds),
        churn_pause_s=churn_pause_s,
        is_killed_at_end=is_killed_at_end,
        reading=reading,
        clock_error_s=clock_error_s,
        clock_drift=clock_drift,
    )


def _draw_topic_settings(random: Random) -> dict[str, str]:
    settings = {
        "durability": random.choice(["fsync", "fsync", "fsync", "replicated"]),
        "segment_bytes": random.choice(["4096", "4096", "8KiB", "32KiB", "1MiB"]),
        "index_interval_bytes": random.choice(["256", "1KiB", "4KiB"]),
    }
    if random.random() < 0.2:
        settings["retention_bytes"] = random.choice(["8KiB", "64KiB"])
    if random.random() < 0.1:
        settings["retention_ms"] = random.choice(["1s", "5s", "20s"])
    if random.random() < 0.2:
        settings["segment_ms"] = "2s"
    return settings


def draw_cleanup(random: Random) -> dict[str, str]:
    """Return settings that enable compaction, in some runs.

    Records have no keys there, so none is removed; but segments are rewritten and swapped.
    """
    if random.random() < 0.5:
        return {}
    return {
        "cleanup_policy": "delete,compact",
        "min_cleanable_dirty_ratio": random.choice(["0", "0", "0.5"]),
        "min_compaction_lag_ms": random.choice(["0", "0", "2s"]),
    }


def draw_producer(random: Random) -> ProducerPlan:
    """Return a producer with limits that it never reaches."""
    kind = random.choice(["library", "library", "raw"])
    acks = 2 if kind == "raw" else random.choice([2, 2, 2, 1, 0])
    return ProducerPlan(
        kind=kind,
        acks=acks,
        is_idempotent=kind == "raw" or (acks != 0 and random.random() < 0.75),
        compression=random.choice(["none", "none", "lz4", "zstd"]),
        pause_s=10 ** random.uniform(-1.7, -0.7),
        burst_max=random.choice([1, 4, 16]),
        max_value_bytes=random.choice([10, 100, 1500]),
        delivery_timeout_s=random.choice([2.0, 10.0, 30.0]),
    )


def draw_formats(
    random: Random, producers: Sequence[ProducerPlan], reading: ReadingPlan
) -> tuple[list[ProducerPlan], ReadingPlan]:
    """Return producers and readings of clients that know both formats of batches, or one."""
    formats = [random.choice([1, 2]) for _ in producers]
    mixed = [
        msgspec.structs.replace(each, batch_format=version)
        for each, version in zip(producers, formats, strict=True)
    ]
    older = [random.random() < _IS_OLDER for _ in range(2)]
    return mixed, msgspec.structs.replace(reading, is_older=older[0], ends_older=older[1])


def tune_producer(plan: ProducerPlan, random: Random) -> ProducerPlan:
    """Return the producer, in some runs with limits that are far too low."""
    return msgspec.structs.replace(
        plan,
        linger_s=random.choice([0.0, 0.0, 0.005, 0.05]),
        batch_size=random.choice([256 << 10, 256 << 10, 2000, 100]),
        max_in_flight=random.choice([5, 5, 2, 1]),
        request_timeout_s=random.choice([4.0, 4.0, 1.0, 0.3]),
        ack_timeout_ms=random.choice([1000, 1000, 50, 2]),
        is_scattered=random.random() < 0.4,
    )


def _draw_reading(random: Random) -> ReadingPlan:
    reading = ReadingPlan(
        raw_fetch_bytes=random.choice([4096, 4096, 1 << 20, 1]),
        max_partition_fetch_bytes=random.choice([1 << 20, 4096, 1]),
        prefetch_bytes=random.choice([16 << 20, 4096, 1]),
        fetch_min_bytes=random.choice([1, 1, 2000]),
        max_wait_s=random.choice([0.5, 0.5, 0.05, 2.0]),
    )
    if min(reading.max_partition_fetch_bytes, reading.prefetch_bytes) == 1:
        # A client that may hold one batch fetches the next only after the long poll at its other
        # partitions. With long waits it would not finish.
        return msgspec.structs.replace(reading, max_wait_s=0.01)
    return reading


def _shorten_waits(reading: ReadingPlan, limits: Mapping[str, int]) -> ReadingPlan:
    """Return `reading` with waits that a consumer's request timeout can cover.

    A consumer may have one long poll in flight for each partition. A broker that reads one request
    at a time answers them in sequence, so the last one waits for all others.
    """
    if limits["max_in_flight_requests_per_connection"] > _LONG_POLLS_MAX:
        return reading
    return msgspec.structs.replace(reading, max_wait_s=min(reading.max_wait_s, 0.5))


def _draw_limits(random: Random) -> dict[str, int]:
    """Return limits of a broker: the defaults, or low ones that a run reaches."""
    drawn = {
        "max_open_files": random.choice([512, 16]),
        "max_in_flight_requests_per_connection": random.choice([4096, 4096, 2, 1]),
        "max_connections": random.choice([10_000, 10_000, 8]),
        "stalled_request_timeout_ms": random.choice([30_000, 30_000, 300]),
        "shutdown_grace_ms": random.choice([10_000, 200, 0]),
        "max_queued_response_bytes": random.choice([8 << 20, 1 << 16]),
    }
    if random.random() < 0.3:
        drawn |= {"socket_request_max_bytes": 2 << 20, "queued_max_request_bytes": 4 << 20}
    return drawn


def _draw_faults(streams: RandomStreams, seconds: float) -> list[Fault]:
    faults: list[Fault] = []
    for kind, gap_s in FAULT_GAPS_S.items():
        random = streams.stream(f"fault {kind}")
        if random.random() >= (_HAS_ROT if kind in _ROTS else _HAS_FAULT):
            continue
        mean_gap_s = gap_s * 2 ** random.uniform(-1, 1)
        at = random.expovariate(1 / mean_gap_s)
        while at < seconds:
            duration = min(random.expovariate(1 / 0.8), 8.0)
            faults.append(Fault(round(at, 4), kind, round(duration, 4), throw(random)))
            at += random.expovariate(1 / mean_gap_s)
    return sorted(faults, key=lambda fault: (fault.at, fault.kind))


def throw(random: Random) -> float:
    """Return a random number below 1 with few digits."""
    return min(round(random.random(), 4), 0.9999)


def to_json(plan: RunPlan[Any]) -> str:
    """Return a plan as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2).decode() + "\n"


def load_plan(path: Path) -> Plan:
    """Return the plan in a file.

    Raises:
        OSError: The file cannot be read.
        msgspec.MsgspecError: The file has no valid plan.
    """
    return msgspec.json.decode(path.read_bytes(), type=Plan)
