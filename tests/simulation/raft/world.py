"""Simulated Raft cluster at protocol level: a heap of events, no threads, no trio.

One plan gives one run, event for event. The network delays, loses, repeats and reorders messages.
Disks sync late and tear writes that a crash interrupts. The clocks of the nodes run at speeds of
their own.
"""

# Some faults wait for states that only the private log of a core shows.
# pyright: reportPrivateUsage=false

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import final

import msgspec

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.raft.checks import Checks
from tests.simulation.raft.forger import Forger
from tests.simulation.raft.node import RaftNode
from tests.simulation.raft.plans import BYZANTINE_KINDS, Fault, Plan
from tidelog.coordinator.raft.errors import DamagedLogError, ProposalRefusedError
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import Message, SnapshotMeta, SnapshotRequest, decode, encode
from tidelog.coordinator.raft.ready import AddLearner, MembershipChange, Promote, Remove, Write

TICK_MS = 100
EVENTS_PER_SECOND_MAX = 3000
_LONELY_MS = 300
_LATEST = 30
"""Messages that a node with a defect repeats, or forges others from."""

Event = Callable[[], None]


@final
class World:
    """The nodes of a plan, and their events."""

    def __init__(self, plan: Plan, show: Callable[[str], None] | None = None) -> None:
        """Begin at time 0 with all nodes started."""
        self.plan = plan
        self.dice = Random(plan.seed)
        self.checks = Checks()
        self.now_ms = 0.0
        self.event_count = 0
        self.sometimes: dict[str, int] = {}
        """Counts of the probes that a good swarm must reach."""
        self.damaged: set[str] = set()
        self._heap: list[tuple[float, int, Event]] = []
        self._show = show
        self._number = 0
        self._blocked: dict[tuple[int, int], float] = {}
        self._armed: list[Fault] = []
        self.is_healed = False
        self._latest: deque[Message] | None = None
        """The latest messages, if a fault needs them."""
        if any(fault.kind in BYZANTINE_KINDS for fault in plan.faults):
            self._latest = deque(maxlen=_LATEST)
        node_count = plan.voter_count + plan.spare_count
        self.nodes = {node_id: self._make(node_id) for node_id in range(1, node_count + 1)}
        voters = [self.nodes[node_id].identity for node_id in range(1, plan.voter_count + 1)]
        learners = tuple(node.identity for node in self.nodes.values()) if plan.has_learners else ()
        learners = tuple(learner for learner in learners if learner not in voters)
        first = SnapshotMeta(0, 0, Membership(tuple(voters), learners))
        for node in self.nodes.values():
            if node.identity in first.membership.members:
                node.disk.snapshot = first
            node.start()
            self._tick_for_ever(node, TICK_MS * self.dice.uniform(0.6, 1.5))

    def _make(self, node_id: int) -> RaftNode:
        plan = self.plan
        snapshots = (plan.snapshot_every, plan.keep_entries)
        return RaftNode(self, node_id, Membership(), config=plan.config, snapshots=snapshots)

    # Time.

    def at(self, time_ms: float, event: Event) -> None:
        """Schedule an event at a time."""
        self._number += 1
        heapq.heappush(self._heap, (time_ms, self._number, event))

    def after(self, delay_ms: float, event: Event) -> None:
        """Schedule an event after a delay."""
        self.at(self.now_ms + delay_ms, event)

    def run_until(self, time_ms: float) -> None:
        """Run all events before a time."""
        heap = self._heap
        while heap and heap[0][0] < time_ms:
            self.now_ms, _, event = heapq.heappop(heap)
            self.event_count += 1
            event()
        self.now_ms = time_ms
        if self.event_count > EVENTS_PER_SECOND_MAX * (1 + self.now_ms / 1000):
            raise ViolationError("EventBudget", f"{self.event_count} events in {time_ms} ms")

    def say(self, line: str) -> None:
        """Record an event."""
        if self._show is not None:
            self._show(f"{self.now_ms:10.3f} {line}")

    def count(self, probe: str) -> None:
        """Count a probe."""
        self.sometimes[probe] = self.sometimes.get(probe, 0) + 1

    def _tick_for_ever(self, node: RaftNode, interval_ms: float) -> None:
        def tick() -> None:
            if node.paused_until_ms <= self.now_ms:
                node.tick()
            self.after(interval_ms, tick)

        self.after(self.dice.uniform(0, interval_ms), tick)

    # Network and disk.

    def transmit(self, message: Message) -> None:
        """Send a message; it may arrive in any order, once, twice or never."""
        if self._show is not None:
            self.say(f"{message.sender} -> {message.target} {message}")
        if self._latest is not None:
            self._latest.append(message)
        plan = self.plan
        if not self.is_healed and self.dice.random() < plan.loss:
            self._report_loss(message)
            return
        delay_ms = (1 if self.is_healed else plan.delay_ms) * (1 + self.dice.random())
        if isinstance(message, SnapshotRequest):
            self.count("snapshot sent")
            delay_ms *= 10
        if not self.is_healed:
            if self.dice.random() < 0.01:
                delay_ms *= 20
            if self.dice.random() < plan.duplication:
                self.after(delay_ms * 3, lambda: self._deliver(message))
        self.after(delay_ms, lambda: self._deliver(message))

    def _report_loss(self, message: Message) -> None:
        """Report the loss of a snapshot to its sender, sometimes; otherwise a timeout does."""
        sender = self.nodes[message.sender.node_id]
        if isinstance(message, SnapshotRequest) and self.dice.random() < 0.5 and sender.core:
            sender.core.report_failure(message.target.node_id)
            self.count("snapshot lost")

    def _deliver(self, message: Message) -> None:
        node = self.nodes[message.target.node_id]
        if self._blocked.get((message.sender.node_id, node.node_id), 0) > self.now_ms:
            return
        if node.paused_until_ms > self.now_ms:
            late_ms = self.dice.uniform(0, TICK_MS)
            self.at(node.paused_until_ms + late_ms, lambda: self._deliver(message))
            return
        node.receive(decode(encode(message)) if self.plan.is_encoded else message)

    def forge(self, node: RaftNode, random: Random) -> None:
        """Send messages of a node that no correct node sends; they must change nothing."""
        identities = [each.identity for each in self.nodes.values()]
        for genuine in self._latest or ():
            target = self.nodes[random.choice([*self.nodes])]
            if target is node or target.core is None:
                continue
            self.count("forge")
            forger = Forger(random, node.identity, target, core=target.core)
            accepted = forger.send(genuine, identities)
            self.checks.forged(target.identity, accepted)
            if accepted is not None:
                target.pump()

    def repeat(self) -> None:
        """Deliver the latest messages again, as a node with a defect would send them."""
        for message in [*(self._latest or ())]:
            self.count("repeat")
            self._deliver(message)

    def begin_write(self, node: RaftNode, boot: int, write: Write) -> None:
        """Begin a write; it is synced later, much later on a slow disk."""
        delay_ms = self.plan.sync_ms * (0.5 + self.dice.random())
        if node.slow_until_ms > self.now_ms:
            delay_ms += self.dice.uniform(0, node.slow_until_ms - self.now_ms)
        if self._show is not None:
            self.say(f"{node.identity} writes {write}")
        if write.snapshot is not None:
            self.count("snapshot installed")

        def end() -> None:
            if node.paused_until_ms > self.now_ms:
                self.at(node.paused_until_ms, end)
            else:
                node.end_write(boot, write)

        self.after(delay_ms, end)

    # Faults of nodes.

    def crash(self, node: RaftNode, restart_after_ms: float) -> None:
        """Crash a node, and restart it."""
        if node.core is None:
            return
        self.say(f"{node.identity} crashes")
        self.count("crash")
        node.crash()
        self.after(restart_after_ms, lambda: self.restart(node))

    def restart(self, node: RaftNode) -> None:
        """Start a node if it is off."""
        if node.core is not None:
            return
        self.say(f"{node.identity} starts")
        try:
            node.start()
        except DamagedLogError as error:
            raise ViolationError("StartsAfterCrash", str(error)) from error

    def block(self, sender: int, target: int, duration_ms: float) -> None:
        """Drop the messages from one node to another."""
        self._blocked[sender, target] = self.now_ms + duration_ms

    def heal_network(self) -> None:
        """Unblock all links."""
        self._blocked.clear()

    def arm(self, fault: Fault) -> None:
        """Let a fault wait for its moment."""
        self._armed.append(fault)

    def is_struck(self, node: RaftNode, moment: str) -> bool:
        """Return whether a fault waits for this moment; if so, the node has crashed."""
        if not self._armed or self.is_healed:
            return False
        for fault in self._armed:
            if self._is_moment(fault, node, moment):
                self._armed.remove(fault)
                self.count(fault.kind)
                if fault.kind in {"mute_on_election", "lonely_leader"}:
                    self._mute(node, fault)
                    return False
                self.crash(node, fault.duration_ms)
                return True
        return False

    def _is_moment(self, fault: Fault, node: RaftNode, moment: str) -> bool:
        core = node.core
        assert core is not None
        log = core._log
        is_electing = core.commit_index < core.last.index and core.last.term == core.term
        moments: dict[tuple[str, str], bool] = {
            ("crash_on_sync", "sync"): fault.node == node.node_id,
            ("crash_in_write", "write"): fault.node == node.node_id,
            ("crash_in_install", "install"): True,
            ("crash_on_vote", "vote"): True,
            ("crash_on_election", "sync"): node.is_leader and is_electing,
            ("crash_on_commit", "leading"): core.commit_index > node.applied_index,
            ("crash_in_change", "leading"): log.membership_index > log.commit_index,
            ("mute_on_election", "leading"): is_electing,
            ("lonely_leader", "leading"): is_electing,
        }
        return moments.get((fault.kind, moment), False)

    def _mute(self, node: RaftNode, fault: Fault) -> None:
        """Let a leader reach only the nodes of the mask, or none, until it crashes."""
        is_lonely = fault.kind == "lonely_leader"
        if is_lonely:
            self._armed.append(msgspec.structs.replace(fault, kind="crash_on_election"))
        for other in self.nodes:
            if is_lonely or not fault.mask >> (other - 1) & 1:
                duration_ms = _LONELY_MS if is_lonely else fault.duration_ms
                self.block(node.node_id, other, duration_ms)

    def lead(self, action: Callable[[RaftNode], object]) -> None:
        """Execute an action on every node that believes that it leads; it may refuse."""
        for node in self.nodes.values():
            if node.is_leader and node.paused_until_ms <= self.now_ms:
                try:
                    action(node)
                except ProposalRefusedError as error:
                    self.say(f"{node.identity} refuses: {error}")
                node.pump()

    def change(self, change: MembershipChange) -> None:
        """Propose a membership change, unless it would leave no healthy majority."""

        def act(node: RaftNode) -> None:
            assert node.core is not None
            if isinstance(change, Remove):
                left = [
                    voter
                    for voter in node.core.membership.voters
                    if voter.node_id != change.node_id
                ]
                healthy = [voter for voter in left if not self.is_lost(voter.disk_id)]
                if 2 * len(healthy) <= len(left):
                    return
            node.core.change_membership(change)
            self.count(type(change).__name__)
            self.say(f"{node.identity} appends {change}")

        self.lead(act)

    def is_lost(self, disk_id: bytes) -> bool:
        """Return whether a disk is gone for good."""
        return disk_id.decode() in self.damaged

    def damage(self, node: RaftNode, silent_ms: float) -> None:
        """Let a node find its disk damaged; later it comes back with another one."""
        identity = node.identity
        if self.is_lost(identity.disk_id):
            return
        for other in self.nodes.values():
            voters = other.disk.snapshot.membership.voters
            memberships = [voters, *(self.memberships_of(other))]
            for members in memberships:
                healthy = [
                    voter
                    for voter in members
                    if voter != node.identity and not self.is_lost(voter.disk_id)
                ]
                if members and 2 * len(healthy) <= len(members):
                    return
        self.count("damage")
        self.say(f"{node.identity} is damaged")
        if node.core is not None:
            node.crash()
        self.damaged.add(node.identity.disk_id.decode())
        node.disk.lose_end(self.dice)
        node.is_damaged = True
        node.start()

        def replace() -> None:
            assert node.identity == identity
            node.crash()
            node.new_disk(Membership())
            self.restart(node)

        self.after(silent_ms, replace)

    def memberships_of(self, node: RaftNode) -> list[tuple[Identity, ...]]:
        """Return the voters of all memberships that a node has in its log."""
        if node.core is None:
            log = RaftLog(node.disk.snapshot, node.disk.entries)
        else:
            log = node.core._log
        return [membership.voters for _, membership in log._memberships]

    def replace_lost(self) -> None:
        """Act as an operator: remove nodes with lost disks, add them again, promote them."""
        for node in self.nodes.values():
            if not node.is_leader:
                continue
            assert node.core is not None
            for member in node.core.membership.members:
                present = self.nodes[member.node_id].identity
                if self.is_lost(member.disk_id):
                    self.change(Remove(member.node_id))
                    return
                if member in node.core.membership.learners and present == member:
                    self.change(Promote(member.node_id))
                    return
            for name in sorted(self.damaged):
                lost_id = int(name[1:].split(".")[0])
                present = self.nodes[lost_id].identity
                if node.core.membership.identity_of(lost_id) is None and not self.is_lost(
                    present.disk_id
                ):
                    self.change(AddLearner(present))
                    return
