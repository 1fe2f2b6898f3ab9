"""Plans of simulated runs of a Raft cluster: plain data, drawn from a seed."""

from random import Random

from tests.simulation.broker.plans import PlannedFault, RunPlan
from tidelog.coordinator.raft.config import RaftConfig

SECONDS = 6.0
"""Duration of the faults of a run, in seconds."""

KINDS = (
    "crash",
    "crash_leader",
    "crash_all",
    "crash_on_commit",
    "crash_on_sync",
    "crash_in_write",
    "crash_on_election",
    "crash_in_change",
    "crash_in_install",
    "crash_on_vote",
    "mute_on_election",
    "lonely_leader",
    "partition",
    "one_way",
    "isolate_leader",
    "pause",
    "pause_leader",
    "slow_disk",
    "damage",
    "damage_and_crash_leader",
    "transfer",
    "add",
    "promote",
    "remove",
    "remove_leader",
    "remove_two",
)
"""Kinds of faults; `run.py` and `world.py` define each of them."""

BYZANTINE_KINDS = ("forge", "repeat")
"""Kinds with random numbers of their own, so that plans are the same without them."""


class Fault(PlannedFault, frozen=True):
    """One fault of a run."""

    node: int
    """A node id; its meaning depends on the kind."""
    mask: int
    """For partitions: the nodes of one side, one bit each."""

    @property
    def at_ms(self) -> int:
        """Time in simulated milliseconds."""
        return round(self.at * 1000)

    @property
    def duration_ms(self) -> int:
        """Duration in milliseconds."""
        return round(self.duration * 1000)


class Plan(RunPlan[Fault], frozen=True):
    """One run."""

    voter_count: int
    spare_count: int
    """Number of nodes that run and are no voters at first."""
    has_learners: bool
    """Whether the spare nodes are learners from the beginning, instead of non-members."""
    election_ticks: int
    entries_max: int
    """Maximum entries of one message."""
    window_messages: int
    snapshot_every: int
    """Entries between snapshots."""
    keep_entries: int
    """Entries that compaction keeps."""
    delay_ms: int
    """Usual delay: a message takes 1 to twice as many milliseconds, sometimes much longer."""
    loss: float
    duplication: float
    sync_ms: int
    propose_ms: int
    """Milliseconds between proposals."""
    read_ms: int
    is_encoded: bool
    """Whether messages are encoded and decoded."""
    has_return: bool
    """Whether, at the end, a follower is cut off for a while, and must not depose the leader."""

    @property
    def duration_ms(self) -> int:
        """Duration of the faults, in milliseconds."""
        return round(self.seconds * 1000)

    @property
    def config(self) -> RaftConfig:
        """The settings of the nodes."""
        return RaftConfig(
            heartbeat_ticks=max(1, self.election_ticks // 5),
            election_ticks=self.election_ticks,
            max_write_ticks=self.election_ticks * 3,
            max_append_entries=self.entries_max,
            max_inflight_messages=self.window_messages,
            snapshot_ticks=self.election_ticks * 3,
            max_promotion_lag_entries=20,
            max_uncommitted_bytes=4000,
            max_unsynced_bytes=1000,
            max_committed_bytes=500,
        )


_STYLES: tuple[tuple[str, ...], ...] = (
    # Several leaders in sequence that keep an entry to themselves, until one commits: figure 8.
    ("lonely_leader", "lonely_leader", "crash_on_commit"),
    # Votes that a node grants, and forgets if it can.
    ("crash_on_vote", "crash_on_vote", "crash_leader", "isolate_leader", "mute_on_election"),
    # Changes of the membership under partitions.
    ("add", "promote", "remove", "remove_leader", "remove_two", "partition", "crash_in_change"),
    # Nodes that are away until they need a snapshot, and crash during its installation.
    ("crash_in_install", "crash_in_install", "partition", "crash", "isolate_leader"),
    # Disks that are lost during leader changes.
    ("damage", "damage_and_crash_leader", "isolate_leader", "crash_leader", "partition"),
)


def draw_plan(seed: int, seconds: float = SECONDS) -> Plan:
    """Return the plan of a seed.

    Half of the plans have some faults of each kind, the others many faults of a few related kinds.
    """
    dice = Random(f"plan {seed}")
    duration_ms = round(seconds * 1000)
    entries_max = dice.choice((1, 1, 2, 8, 100))
    is_in_order = False  # otherwise the order is random
    if dice.random() < 0.5:
        kinds = [kind for kind in KINDS if dice.random() < 0.4] or ["crash_leader"]
        count = dice.randrange(2, 14)
    else:
        style = dice.randrange(len(_STYLES))
        kinds = list(_STYLES[style])
        is_in_order = style == 0
        entries_max = 1 if is_in_order else entries_max
        count = dice.randrange(8, 20)
    voter_count = dice.choice((1, 2, 3, 3, 3, 3, 4, 5, 5))
    spare_count = dice.choice((0, 0, 1, 2))
    node_count = voter_count + spare_count
    at_ms = 0
    faults: list[Fault] = []
    for number in range(count):
        at_ms += dice.randrange(50, 800)
        faults.append(
            Fault(
                at=(at_ms if is_in_order else dice.randrange(500, duration_ms)) / 1000,
                kind=kinds[number % len(kinds)] if is_in_order else dice.choice(kinds),
                node=dice.randrange(1, node_count + 1),
                duration=dice.choice((20, 50, 200, 700, 1500, 3000)) / 1000,
                mask=dice.randrange(1 << node_count),
            )
        )
    faults += _draw_byzantine(seed, duration_ms, node_count)
    faults.sort(key=lambda fault: fault.at)
    return Plan(
        seed=f"life {seed}",
        seconds=seconds,
        voter_count=voter_count,
        spare_count=spare_count,
        has_learners=dice.random() < 0.4,
        election_ticks=dice.choice((5, 5, 8, 10)),
        entries_max=entries_max,
        window_messages=dice.choice((1, 2, 4, 64)),
        snapshot_every=dice.choice((3, 3, 8, 30, 1000)),
        keep_entries=dice.choice((0, 0, 2, 10)),
        delay_ms=dice.choice((2, 5, 20, 60)),
        loss=dice.choice((0.0, 0.0, 0.02, 0.15)),
        duplication=dice.choice((0.0, 0.0, 0.05)),
        sync_ms=dice.choice((1, 5, 20, 80)),
        propose_ms=dice.choice((40, 100, 300)),
        read_ms=dice.choice((30, 150)),
        is_encoded=dice.random() < 0.1,
        has_return=dice.random() < 0.3,
        faults=faults,
    )


def _draw_byzantine(seed: int, duration_ms: int, node_count: int) -> list[Fault]:
    dice = Random(f"byzantine {seed}")
    kinds = ("forge", "forge", "forge", "repeat") if dice.random() < 0.2 else ("forge",)
    return [
        Fault(
            at=dice.randrange(500, duration_ms) / 1000,
            kind=dice.choice(kinds),
            node=dice.randrange(1, node_count + 1),
            duration=0.0,
            mask=dice.randrange(1 << 16),
        )
        for _ in range(dice.choice((0, 4, 8)))
    ]
