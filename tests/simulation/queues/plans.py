"""Plans of runs of clusters with queues; see `tests.simulation.cluster.plans`.

The plan is drawn as for a cluster and then made fit for queues: their leaders use the wall clock,
so clocks are wrong by seconds and not by hours.
"""

from random import Random
from typing import Any, Final

import msgspec

from tests.simulation.broker.plans import Fault
from tests.simulation.cluster.plans import ClusterPlan, draw_kind
from tests.simulation.cluster.plans import draw_plan as draw_cluster
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.random_streams import RandomStreams

JUMP: Final = "jump_clock"
RECORD_BYTES: Final = 2048
"""Maximum bytes of a batch in runs with large messages; the smallest limit is 1 KiB."""
TAIL_S: Final = 300.0
"""Maximum seconds of clock drift after the faults."""

_FIFO = 0.6
_FAN_OUT = 0.4
_ON_STREAM = 0.3
_CLUSTER_WORK = 0.2
"""Fraction of runs with additional clients that create topics, move replicas or stray."""
_IN_MEMORY = 0.15
_GENTLE: Final = {
    "pause",
    "stall_loop",
    "stall_disk",
    "slow_disk",
    "jump_clock",
    "partition",
    "isolate",
    "slow_link",
    "break_connections",
    "pause_leader",
    "isolate_leader",
    "pause_partition_leader",
    "isolate_partition_leader",
    "kill_client",
}
"""Faults that lose no memory. Where topics are `replicated` there are no others: records that all
replicas lose together are gone, and the expected contents of a queue are unknown."""
_REDRIVEN = 0.5
_RECREATED = 0.3
_LARGE = 0.35
_CRASHES_ON_ENTRIES = 0.5
_BY_CONTENT = 0.4
_LIMITED_SENDS = 0.15
_HISTORIES = ("1d", "2s", "0")
CRASH_ON_ENTRY: Final = "crash_on_entry"
"""A fault of these runs only; see `tests.simulation.queues.entry_faults`."""


class QueueSetup(msgspec.Struct, frozen=True):
    """One queue."""

    name: str
    topic: str
    partition_count: int
    """Number of partitions of its topic."""
    is_fifo: bool = False
    settings: dict[str, str] = {}
    is_sent_to: bool = False
    """Whether the run's senders send to it; other queues get the records of their topic anyway."""
    is_passing: bool = False
    """Whether it is recreated; other queues exist during the whole run."""
    is_looked_after: bool = False
    """Whether a caretaker purges it, and seeks back in it."""

    @property
    def dead_letter_queue(self) -> str | None:
        """Name of its dead-letter queue."""
        return self.settings.get("dead_letter_queue")

    @property
    def is_fenced(self) -> bool:
        """Whether only the last receipt of a message settles it."""
        return self.is_fifo or self.settings.get("require_latest_receipt") == "on"

    @property
    def is_strict(self) -> bool:
        """Whether leases and receive counts survive a change of leader."""
        has_dead_letters = self.dead_letter_queue is not None
        default = "all" if self.is_fifo or has_dead_letters else "leader"
        return self.settings.get("receive_acks", default) == "all"

    @property
    def max_deliveries(self) -> int | None:
        """Maximum receive count of a message."""
        text = self.settings.get("max_receive_count")
        return int(text) if text and self.dead_letter_queue else None

    @property
    def is_known_by_content(self) -> bool:
        """Whether messages are deduplicated by content, without an id."""
        return self.settings.get("content_based_deduplication") == "on"

    @property
    def lane_count(self) -> int:
        """Number of priorities; 0 for none."""
        priorities = self.settings.get("priority_weights")
        return len(priorities.split(",")) if priorities else 0


class QueuePlan(ClusterPlan, frozen=True, kw_only=True):
    """One run of a cluster with queues."""

    queues: list[QueueSetup]
    """All queues; a dead-letter queue comes before the queues that use it."""
    sender_count: int
    worker_count: int
    send_pause_s: float
    """Mean seconds between two batches of a sender."""
    send_batch_max: int
    group_count: int
    """Number of message groups of FIFO queues."""
    visibility_s: float
    """Default visibility timeout of workers, in seconds."""
    work_mean_s: float
    """Mean processing time of a message, in seconds."""
    library_worker_count: int = 0
    """Number of library workers, in addition to the others."""
    mood: str = "plain"
    """Behaviour of workers; see `tests.simulation.queues.users`."""
    redrive_pause_s: float | None = None
    """Mean seconds between two commands of a client that redrives dead letters."""
    recreation_pause_s: float | None = None
    """Mean seconds until a deleted queue is created again."""
    large_rate: float = 0.0
    """Fraction of sends with one message above the topic's `max_message_bytes`."""

    @property
    def sources_of_dead_letters(self) -> list[QueueSetup]:
        """The queues that have dead-letter queues."""
        return [setup for setup in self.queues if setup.dead_letter_queue is not None]

    @property
    def record_settings(self) -> dict[str, str]:
        """Settings of the topics of queues."""
        limit = {"max_message_bytes": str(RECORD_BYTES)} if self.large_rate else {}
        return self.topic_settings | limit

    @property
    def clock_lead_s(self) -> float:
        """Maximum difference of any clock from the true time, in seconds."""
        jumps = sum(abs(jump_of(self, fault)) for fault in self.faults if fault.kind == JUMP)
        drift = self.clock_drift * (self.seconds + TAIL_S)
        return self.clock_error_s + jumps + drift


def jump_of(plan: ClusterPlan, fault: Fault) -> float:
    """Return the jump of a clock by a fault, in seconds."""
    return (fault.dice * 1000 % 1 - 0.5) * plan.clock_jump_s


def draw_plan(seed: int, seconds: float) -> QueuePlan:
    """Return the plan of a seed; each part of it has its own random stream."""
    cluster = draw_cluster(seed, seconds)
    streams = RandomStreams(f"queue plan {seed}")
    random = streams.stream("cluster")
    has_other_work = random.random() < _CLUSTER_WORK
    random_of_clocks = streams.stream("clocks")
    base: dict[str, Any] = msgspec.structs.asdict(cluster) | {
        "partition_count": min(cluster.partition_count, 2),
        "topic_settings": {
            "durability": "fsync",
            "segment_bytes": cluster.topic_settings["segment_bytes"],
        },
        # A tombstone would be a message without a value.
        "producers": [
            msgspec.structs.replace(each, has_keys=False, has_tombstones=False)
            for each in cluster.producers[:1]
        ],
        "grow_pause_s": None,
        "consumer_count": min(cluster.consumer_count, 1),
        "member_count": 0,
        "churn_pause_s": cluster.churn_pause_s if has_other_work else None,
        "visit_pause_s": cluster.visit_pause_s if has_other_work else None,
        "clock_error_s": random_of_clocks.choice([0.0, 0.0, 0.0, 1.0, 10.0]),
        "clock_drift": random_of_clocks.choice([0.0, 0.0, 0.0, 0.0005, 0.05]),
        "clock_jump_s": random_of_clocks.choice([4.0, 4.0, 40.0]),
    }
    is_gentle = cluster.replication_factor > 1 and streams.stream("memory").random() < _IN_MEMORY
    if is_gentle:
        base["topic_settings"] |= {"durability": "replicated"}
        base["faults"] = [fault for fault in cluster.faults if fault.kind in _GENTLE]
    else:
        base["faults"] = sorted(
            [*cluster.faults, *_draw_faults(streams.stream("faults"), seconds)],
            key=lambda fault: (fault.at, fault.kind),
        )
    queues = _draw_queues(streams.stream("queues"), base["partition_count"])
    has_dead_letters = any(setup.dead_letter_queue for setup in queues)
    moods = streams.stream("moods")
    redrives = streams.stream("redrives")
    is_redriven = has_dead_letters and redrives.random() < _REDRIVEN
    random = streams.stream("people")
    return QueuePlan(
        **base,
        queues=queues,
        library_worker_count=moods.choice([0, 0, 1, 2]),
        mood=moods.choice(["plain", "plain", "careless", "gloomy"]),
        recreation_pause_s=10 ** moods.uniform(-1.0, 0.5) if moods.random() < _RECREATED else None,
        large_rate=0.2 if moods.random() < _LARGE else 0.0,
        redrive_pause_s=10 ** redrives.uniform(-0.3, 0.7) if is_redriven else None,
        sender_count=random.randint(1, 2),
        worker_count=random.randint(1, 3),
        send_pause_s=10 ** random.uniform(-0.8, 0.2),
        send_batch_max=random.choice([1, 3, 6]),
        group_count=random.choice([1, 3, 10]),
        visibility_s=random.choice([1.0, 3.0, 10.0]),
        work_mean_s=10 ** random.uniform(-2, -0.5),
    )


def _draw_faults(random: Random, seconds: float) -> list[Fault]:
    if random.random() > _CRASHES_ON_ENTRIES:
        return []
    return draw_kind(random, CRASH_ON_ENTRY, 2.0 * 2 ** random.uniform(-0.5, 2), seconds=seconds)


def _draw_queues(random: Random, stream_partition_count: int) -> list[QueueSetup]:
    queues: list[QueueSetup] = []
    is_fifo = random.random() < _FIFO
    if not is_fifo or random.random() < _FIFO:
        queues += _draw_standard(random)
    if is_fifo:
        queues += _draw_fifo(random)
    if random.random() < _ON_STREAM:
        queues.append(
            QueueSetup("taps", TOPIC, stream_partition_count, is_looked_after=random.random() < 0.5)
        )
    return queues


def _draw_standard(random: Random) -> list[QueueSetup]:
    count = random.randint(1, 3)
    settings = _draw_common(random)
    if random.random() < 0.4:
        settings["require_latest_receipt"] = "on"
    order = random.choice(["", "", "priority_weights", "fair_delivery"])
    if order:
        settings[order] = "4,2,1" if order == "priority_weights" else "on"
    queues: list[QueueSetup] = []
    if random.random() < 0.7:
        queues.append(QueueSetup("jobs-dead", "jobs-dead", random.randint(1, 2)))
        settings |= _draw_dead_letters(random, "jobs-dead")
    elif random.random() < 0.7:
        settings["receive_acks"] = "all"
    queues.append(QueueSetup("jobs", "jobs", count, settings=settings, is_sent_to=True))
    if random.random() < _FAN_OUT:
        durability = {"receive_acks": random.choice(["all", "leader"])}
        queues.append(QueueSetup("audit", "jobs", count, settings=durability, is_looked_after=True))
    return queues


def _draw_fifo(random: Random) -> list[QueueSetup]:
    # Longer than any clock jump: every repeated send is a duplicate.
    settings = _draw_common(random) | {"deduplication_window_ms": "7d"}
    if random.random() < _BY_CONTENT:
        settings["content_based_deduplication"] = "on"
    queues: list[QueueSetup] = []
    if random.random() < 0.6:
        queues.append(QueueSetup("steps-dead", "steps-dead", 1, is_fifo=True))
        settings |= _draw_dead_letters(random, "steps-dead")
    steps = QueueSetup(
        "steps", "steps", random.randint(1, 2), is_fifo=True, settings=settings, is_sent_to=True
    )
    return [*queues, steps]


def _draw_common(random: Random) -> dict[str, str]:
    settings: dict[str, str] = {}
    backoff = random.choice(["", "", "200ms,1s", "exponential(100ms,2,2s,jitter)"])
    if backoff:
        settings["retry_backoff"] = backoff
    if random.random() < 0.2:
        settings["max_in_flight"] = str(random.choice([3, 20]))
    if random.random() < _LIMITED_SENDS:
        settings["send_rate"] = str(random.choice([2, 10]))
    # Not drawn: plans of earlier seeds stay the same.
    settings["history_retention_ms"] = _HISTORIES[len(repr(settings)) % len(_HISTORIES)]
    return settings


def _draw_dead_letters(random: Random, name: str) -> dict[str, str]:
    return {"dead_letter_queue": name, "max_receive_count": str(random.choice([1, 2, 3, 5]))}
