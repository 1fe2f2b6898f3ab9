"""Shell of the Raft core in the simulator: one node with its disk and its state machine."""

# pyright: reportPrivateUsage=false

from random import Random
from typing import Protocol, final

import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.raft.checks import Checks
from tests.simulation.raft.disk import RaftDisk
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import Entry, Message, VoteReply, VoteRequest
from tidelog.coordinator.raft.ready import Ready, Write
from tidelog.coordinator.raft.role import Role


class NodeContext(Protocol):
    """Services that a node uses of its world."""

    checks: Checks
    dice: Random

    def transmit(self, message: Message) -> None: ...
    def begin_write(self, node: "RaftNode", boot: int, write: Write) -> None: ...
    def is_struck(self, node: "RaftNode", moment: str) -> bool: ...


@final
class RaftNode:
    """One node id, with its current disk."""

    def __init__(
        self,
        context: NodeContext,
        node_id: int,
        membership: Membership,
        *,
        config: RaftConfig,
        snapshots: tuple[int, int],
    ) -> None:
        """Start off, with an empty disk; `snapshots`: entries between them, and kept."""
        self.node_id = node_id
        self._world = context
        self._config = config
        self._snapshot_every, self._keep_entries = snapshots
        self._disk_count = 0
        self.is_damaged = False
        """Whether the present disk has lost data, and the node has detected it."""
        self.identity = Identity(node_id, b"")
        self.disk = RaftDisk(membership)
        self.new_disk(membership)
        self.core: RaftCore | None = None
        self.boot = 0
        self.applied_index = 0
        self.paused_until_ms = 0
        self.slow_until_ms = 0
        self._under_way: Write | None = None
        self._now_ticks = 0
        self._heard_at_ticks: dict[Identity, int] = {}

    def new_disk(self, membership: Membership) -> None:
        """Replace the disk, and get a new identity."""
        self._disk_count += 1
        self.is_damaged = False
        self.identity = Identity(self.node_id, f"d{self.node_id}.{self._disk_count}".encode())
        self.disk = RaftDisk(membership)

    def start(self) -> None:
        """Start with the state of the disk."""
        assert self.core is None
        self.boot += 1
        self._under_way = None
        self.core = RaftCore(
            self.identity,
            self.disk.stored(),
            self._config,
            random=Random(f"{self._world.dice.random()}"),
            is_damaged=self.is_damaged,
        )
        self.applied_index = self.disk.snapshot.index
        self.pump()

    def crash(self) -> None:
        """Lose the memory, and a part of the write in progress."""
        self.core = None
        if self._under_way is not None:
            self.disk.tear(self._under_way, self._world.dice)
            self._under_way = None

    @property
    def is_leader(self) -> bool:
        """Return whether the node believes that it leads."""
        return self.core is not None and self.core.role is Role.LEADER

    def tick(self) -> None:
        """Advance the clock by a tick."""
        if self.core is not None:
            self._now_ticks += 1
            self.core.tick()
            self._check_quorum(self.core)
            self.pump()

    @pytest.mark.invariant("I74")
    def _check_quorum(self, core: RaftCore) -> None:
        """Check that a leader without a majority steps down within an election timeout."""
        if core.role is not Role.LEADER:
            self._heard_at_ticks = dict.fromkeys(core.membership.voters, self._now_ticks)
            return
        alive = [
            voter
            for voter in core.membership.voters
            if self._now_ticks - self._heard_at_ticks.setdefault(voter, self._now_ticks)
            <= self._config.election_ticks + 1
        ]
        if not core.membership.is_majority([*alive, self.identity]):
            problem = f"{self.identity} still leads, but hears only of {alive}"
            raise ViolationError("IsolatedLeaderStepsDown", problem)

    def receive(self, message: Message) -> None:
        """Receive a message."""
        if self.core is not None:
            self._heard_at_ticks[message.sender] = self._now_ticks
            self.core.step(message)
            self.pump()

    def end_write(self, boot: int, write: Write) -> None:
        """Complete a sync."""
        if self.core is None or boot != self.boot:
            return
        self._under_way = None
        self.disk.carry_out(write)
        if self._world.is_struck(self, "sync"):
            return
        self.core.synced(write)
        self.pump()

    def pump(self) -> None:
        """Execute the core's ready actions, as a shell must."""
        core = self.core
        checks = self._world.checks
        while core is not None:
            checks.observe(core, self.boot)
            if core.role is Role.LEADER and self._world.is_struck(self, "leading"):
                return
            ready = core.ready()
            if ready.is_empty:
                self._check_nothing_left(core)
                return
            if self._carry_out(core, ready):
                return

    def _check_nothing_left(self, core: RaftCore) -> None:
        """Check that a core which reports no change has none."""
        core.is_dirty = True
        left = core.ready()
        if not left.is_empty:
            raise ViolationError("EmptyReadyIsComplete", f"{self.identity} kept back {left}")

    def _carry_out(self, core: RaftCore, ready: Ready) -> bool:
        """Execute the ready actions; return whether the node has crashed in them."""
        checks = self._world.checks
        for message in ready.messages:
            checks.send(core, self.disk, message)
            self._world.transmit(message)
        if _is_vote(ready) and self._world.is_struck(self, "vote"):
            return True
        if ready.write is not None:
            checks.write(self.identity, self.disk, ready.write)
            self._under_way = ready.write
            self._world.begin_write(self, self.boot, ready.write)
            moment = "write" if ready.write.snapshot is None else "install"
            if self._world.is_struck(self, moment):
                return True
        if ready.snapshot is not None:
            checks.restore(self.identity, self.applied_index, ready.snapshot)
            self.applied_index = ready.snapshot.index
        for entry in ready.committed:
            self._apply(entry)
        for read in ready.reads:
            checks.answer(read.context, read.index)
        if ready.committed:
            self._make_snapshot(core)
        return False

    def _apply(self, entry: Entry) -> None:
        self._world.checks.apply(self.identity, self.applied_index, entry)
        self.applied_index = entry.index

    def _make_snapshot(self, core: RaftCore) -> None:
        # Not during a write: a shell would execute the two in sequence.
        if self._under_way is None and (
            self.applied_index - core._log.snapshot.index >= self._snapshot_every
        ):
            snapshot = core.snapshot_meta(self.applied_index)
            self.disk.compact(snapshot, self._keep_entries)
            core.compact(snapshot, keep_entries=self._keep_entries)


def _is_vote(ready: Ready) -> bool:
    return any(
        isinstance(message, VoteRequest) or (isinstance(message, VoteReply) and message.is_granted)
        for message in ready.messages
    )
