"""A running node of a Raft cluster: its core, its disk, its messages.

Shell: drives the clock, moves messages, and makes writes durable. The core decides. It is only
called synchronously: a tick, a message or a proposal, followed by `_pump`, which executes
everything that needs no waiting. One task waits for the disk.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, final

import trio

from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import (
    AppendRequest,
    Entry,
    EntryId,
    EntryKind,
    Message,
    SnapshotMeta,
    SnapshotRequest,
    size_of,
)
from tidelog.coordinator.raft.ready import MembershipChange, Ready, Write
from tidelog.coordinator.raft.role import Role
from tidelog.coordinator.raft_node.interfaces import StateMachine, Transport
from tidelog.coordinator.raft_node.pending_proposals import PendingProposal, PendingProposals
from tidelog.coordinator.raft_node.pending_reads import PendingReads
from tidelog.coordinator.raft_node.storage import RaftStorage, Stored, StoredSnapshot, Vote
from tidelog.logstore.config import MiB
from tidelog.logstore.disk.disk import PASSING_ERRNOS
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    DataDirectoryError,
    DiskFullError,
    LogOfflineError,
    NotLeaderError,
    OverloadedError,
    TidelogError,
)

TICK_S: Final = 0.1
_DISK_FULL_RETRY_S: Final = 1.0
_BRIEF_BYTES: Final = 64 << 10
"""Maximum bytes of a write that may block the loop (decision 0022)."""
SNAPSHOT_AFTER_BYTES: Final = 20 * MiB
STOP_SNAPSHOT_BYTES: Final = 1 * MiB
"""With more entries than this behind the snapshot, a stop takes one. A smaller log is applied in
some 30 ms."""
KEPT_ENTRIES: Final = 1000
"""Entries that stay behind a snapshot, for followers that are a little behind."""


@final
class RaftNode:
    """A voter or a learner.

    Invariant: when no call is under way, everything that the core requested has been executed,
    except writes to the disk.
    """

    def __init__(
        self,
        env: Env,
        core: RaftCore,
        storage: RaftStorage,
        *,
        stored: Stored,
    ) -> None:
        """Run `core`, which started from `stored` in `storage`."""
        self._env = env
        self._core = core
        self._storage = storage
        self._snapshot = stored.snapshot
        self._vote = stored.vote
        self._machine: StateMachine | None = None
        self._links: Transport | None = None
        self._incoming: dict[SnapshotMeta, bytes] = {}
        """Data of snapshots that the core has and that are not durable yet."""
        self._write: Write | None = None
        self._has_work = trio.Event()
        self._applied_index = stored.snapshot.meta.index
        self._has_applied = trio.Event()
        self._is_applied_wanted = False
        """Whether a task waits for `_has_applied`."""
        self._bytes_since_snapshot = 0
        self._waiting = PendingProposals()
        self._is_pumping = False
        self._reads = PendingReads()
        self._role_seen = (Role.FOLLOWER, 0)
        self._leader_seen: tuple[int | None, int] = (None, 0)
        """The last known leader, and its term."""
        self._begun_term = 0
        self._has_changed_role = trio.Event()
        self._has_company = trio.Event()
        self._on_role_changed: list[Callable[[], None]] = []
        self._membership_seen = core.membership
        self._on_membership_changed: list[Callable[[], None]] = []
        self._failure: str | None = None
        self._end: TidelogError | None = None
        """Error with which `run` ends."""

    # Read access.

    @property
    def identity(self) -> Identity:
        """This node and its disk."""
        return self._core.identity

    @property
    def data_directory(self) -> str:
        """The path of the data directory."""
        return self._storage.data_directory

    @property
    def cluster_id(self) -> str:
        """The cluster of this node."""
        return self._vote.cluster_id

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return self._core.role is Role.LEADER and self._failure is None

    @property
    def is_active_leader(self) -> bool:
        """Whether this node leads, and its state machine has all that earlier leaders committed."""
        core = self._core
        is_leader = core.role is Role.LEADER and self._failure is None
        return is_leader and self._begun_term == core.term

    @property
    def leader_id(self) -> int | None:
        """The leader, if this node has heard from it recently."""
        leader = self._core.leader
        return None if leader is None else leader.node_id

    @property
    def term(self) -> int:
        """The highest term that this node has met."""
        return self._core.term

    @property
    def applied_index(self) -> int:
        """The last entry that the state machine has applied."""
        return self._applied_index

    @property
    def commit_index(self) -> int:
        """The last entry that this node knows to be committed.

        It is above `applied_index` while the disk here accepts no writes: others may have it.
        """
        return self._core.commit_index

    @property
    def membership(self) -> Membership:
        """The membership in force on this node."""
        return self._core.membership

    @property
    def is_only_voter(self) -> bool:
        """Whether this node is the only voter."""
        return self._core.membership.voters == (self.identity,)

    def on_role_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever role or term changed; it must not wait or raise."""
        self._on_role_changed.append(listener)

    def on_membership_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever another membership is in force; it must not wait or raise."""
        self._on_membership_changed.append(listener)

    # Operation.

    async def run(self, machine: StateMachine, links: Transport) -> None:
        """Take part in the cluster until cancelled, or until the disk fails.

        Raises:
            LogOfflineError: The disk failed: no message of this node would be safe from now on.
            DataDirectoryError: The log is of a newer version.
        """
        self._machine = machine
        self._links = links
        if self._snapshot.data:
            machine.restore(self._snapshot.data)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tick)
                self._pump()
                # Not below this task: each frame of a coroutine costs a call at each resumption.
                nursery.start_soon(self._write_all, nursery.cancel_scope)
        finally:
            self._failure = self._failure or "the node has stopped"
            self._wake_all()
        if self._end is not None:
            raise self._end

    def require_running(self) -> None:
        """Check that this node takes part.

        Raises:
            LogOfflineError: The disk failed, or the node has stopped.
        """
        if self._failure is not None:
            raise LogOfflineError(f"the metadata is offline: {self._failure}")

    def has_room_for(self, byte_count: int) -> bool:
        """Return whether the disk has room for entries of this size, as far as is known."""
        return self._storage.free_bytes >= byte_count

    async def aclose(self) -> None:
        """Close the storage after `run` has ended, so that the next start need not scan it.

        If much log is behind the snapshot, there is a new one: a start loads it faster than it
        applies the log, whose commands may have changed the same things many times.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        is_urged = self._bytes_since_snapshot > 0 and self._env.buggify("snapshot at stop")
        # After a failure the state may have a part of an entry.
        if self._end is None and (is_urged or self._bytes_since_snapshot >= STOP_SNAPSHOT_BYTES):
            snapshot, now_ms = self._new_snapshot(), self._env.clock.now_ms()
            # Without room, the old snapshot and the log behind it are enough.
            with suppress(OSError, DiskFullError):
                await self._env.run_in_thread(
                    lambda: self._storage.compact(
                        snapshot, keep_entries=KEPT_ENTRIES, now_ms=now_ms
                    )
                )
        await self._env.run_in_thread(self._storage.close)

    def received(self, message: Message, data: bytes | None = None) -> None:
        """Process a message, with the data of the snapshot if it has one.

        Raises:
            ImpossibleMessageError: No correct node sends the message now; nothing has changed.
        """
        if self._failure is not None or self._machine is None:
            return
        self._core.step(message)
        if isinstance(message, SnapshotRequest):
            assert data is not None
            if message.snapshot.index > self._applied_index:  # The core ignores older ones.
                self._incoming[message.snapshot] = data
        self._pump()

    def check(self, message: Message, data: bytes | None = None) -> None:
        """Check that this node can read all that a message would write, before `received`.

        An entry or a snapshot that no node can read would stop this one at every start.

        Raises:
            WireFormatError: It cannot.
        """
        if self._machine is None:
            return
        if data is not None:
            self._machine.check_snapshot(data)
        elif isinstance(message, AppendRequest):
            for entry in message.entries:
                if entry.kind is EntryKind.COMMAND:
                    self._machine.check_entry(entry.payload)

    async def wait_role_changed(self) -> None:
        """Wait until role or term change, or the node stops."""
        await self._has_changed_role.wait()

    async def wait_applied(self) -> None:
        """Wait until the state machine has applied another entry."""
        self._is_applied_wanted = True
        await self._has_applied.wait()

    async def propose(self, command: bytes) -> int:
        """Commit a command and apply it here; return its index.

        If cancelled, the command may be applied, or not.

        Raises:
            ProposalRefusedError: Nothing was appended.
            LostProposalError: The command will never be applied.
            OvertakenProposalError: The command may be applied, or not.
            LogOfflineError: The disk failed; the command may be applied, or not.
        """
        waiting = self.propose_nowait(command)
        return await waiting.wait()

    def propose_nowait(self, command: bytes, decoded: object | None = None) -> PendingProposal:
        """Append a command; see `propose`. The result tells the outcome.

        `decoded`, if given, equals the decoded `command`, and must not change any more. The local
        state machine gets it with the command. Another entry in its place drops it.
        """
        self.require_running()
        return self._expect(self._core.propose(command), decoded)

    async def change_membership(self, change: MembershipChange) -> None:
        """Change the membership.

        Raises:
            ProposalRefusedError: Nothing was changed; the text says why.
            LostProposalError: The change will never be applied.
        """
        await self._expect(self._core.change_membership(change)).wait()

    def transfer_leadership(self, node_id: int) -> None:
        """Transfer the leadership to another voter as soon as it has all entries.

        Raises:
            ProposalRefusedError: The transfer is not possible.
        """
        self._core.transfer_leadership(node_id)
        self._pump()

    async def wait_current(self) -> None:
        """Wait until the state machine here has all that was committed before this call.

        Raises:
            NotLeaderError: This node does not lead, or does not any more.
        """
        read = self._reads.add()
        term = self._core.term
        try:
            self._core.read(read.context)
            self._pump()
            await read.is_over.wait()
        except ProposalRefusedError as error:
            raise NotLeaderError(str(error)) from error
        finally:
            self._reads.remove(read)
        if not self.is_leader or self._core.term != term:
            raise NotLeaderError("this node lost its leadership before the read was confirmed")

    def _expect(self, entry_id: EntryId, decoded: object | None = None) -> PendingProposal:
        waiting = self._waiting.add(entry_id, decoded)
        self._pump()
        return waiting

    async def _tick(self) -> None:
        while True:
            if self._leads_alone():
                # A single node has no timeouts and no heartbeats, so it needs no ticks.
                self._has_company = trio.Event()
                await self._has_company.wait()
            await trio.sleep(TICK_S)
            self._core.tick()
            self._pump()

    def _pump(self) -> None:
        """Execute everything that needs no waiting."""
        if self._machine is None or self._end is not None:
            return
        # A state machine or a listener may propose meanwhile; then this is the inner one of two.
        is_inner, self._is_pumping = self._is_pumping, True
        try:
            self._pump_all()
        except DataDirectoryError as error:
            # A node that skips an entry would diverge.
            self._end = error
            self._failure = str(error)
            self._has_work.set()
        finally:
            self._is_pumping = is_inner
        if self._waiting.untold and not is_inner:
            self._waiting.tell()

    def _leads_alone(self) -> bool:
        core = self._core
        if core.role is not Role.LEADER or self._failure is not None:
            return False
        membership = core.membership
        return membership.voters == (core.identity,) and not membership.learners

    def _pump_all(self) -> None:
        core = self._core
        applied_before = self._applied_index
        while core.is_dirty:
            self._execute(core.ready())
        if self._applied_index > applied_before:
            if self._is_snapshot_due():
                self._has_work.set()
            if self._is_applied_wanted:
                self._is_applied_wanted = False
                applied, self._has_applied = self._has_applied, trio.Event()
                applied.set()
        if (core.role, core.term) != self._role_seen:
            self._note_role()
        if core.leader is not None and (core.leader.node_id, core.term) != self._leader_seen:
            self._note_leader(core.leader.node_id)
        if core.membership is not self._membership_seen:
            self._note_membership()

    def _execute(self, ready: Ready) -> None:
        if ready.write is not None:
            self._write = ready.write
            self._has_work.set()
        if ready.messages:
            self._send(ready.messages)
        if ready.snapshot is not None:
            self._restore(ready.snapshot)
        for entry in ready.committed:
            self._apply(entry)
        for read in ready.reads:
            self._reads.confirmed(read.context, index=read.index)
        if self._reads.open:
            # This disk may lag behind the majority, and so may the state machine.
            self._reads.applied(self._applied_index)

    def _send(self, messages: Sequence[Message]) -> None:
        assert self._links is not None
        ordinary: list[Message] = []
        for message in messages:
            if isinstance(message, SnapshotRequest):
                failed = partial(self._snapshot_failed, message.target.node_id)
                self._links.send_snapshot(message, self._snapshot.data, on_failed=failed)
            else:
                ordinary.append(message)
        if ordinary:
            self._links.send(ordinary)

    def _snapshot_failed(self, node_id: int) -> None:
        # The consequence goes out with the next tick: the link may fail for long.
        self._core.report_failure(node_id)

    def _apply(self, entry: Entry) -> None:
        assert self._machine is not None
        entry_id = EntryId(entry.index, entry.term)
        if entry.kind is EntryKind.COMMAND:
            decoded = self._waiting.decoded(entry_id)
            self._machine.apply(entry.index, entry.payload, decoded)
        elif entry.kind is EntryKind.TERM_START:
            self._begun_term = entry.term
        self._applied_index = entry.index
        self._bytes_since_snapshot += size_of((entry,))
        self._waiting.applied(entry_id)

    def _restore(self, meta: SnapshotMeta) -> None:
        assert self._machine is not None
        self._machine.restore(self._snapshot.data)
        self._applied_index = meta.index
        self._bytes_since_snapshot = 0
        self._waiting.overtaken(meta.index)

    def _note_leader(self, leader_id: int) -> None:
        """Report another controller; a time without one is not reported."""
        self._env.probe(
            "controller_changed",
            controller_id=leader_id,
            previous_controller_id=self._leader_seen[0],
            term=self.term,
        )
        self._leader_seen = (leader_id, self.term)

    def _note_role(self) -> None:
        was_leader = self._role_seen[0] is Role.LEADER
        self._env.probe(
            "raft_role_changed",
            severity="info" if was_leader or self.is_leader else "debug",
            role=self._core.role.value,
            previous_role=self._role_seen[0].value,
            term=self._core.term,
            node_id=self.identity.node_id,
            leader_id=self.leader_id,
        )
        self._role_seen = (self._core.role, self._core.term)
        if was_leader:
            self._reads.wake_all()
        self._note_company()
        self._tell_role()

    def _note_membership(self) -> None:
        self._membership_seen = self._core.membership
        self._note_company()
        for listener in self._on_membership_changed:
            listener()

    def _note_company(self) -> None:
        if not self._leads_alone():
            self._has_company.set()

    def _tell_role(self) -> None:
        changed, self._has_changed_role = self._has_changed_role, trio.Event()
        changed.set()
        for listener in self._on_role_changed:
            listener()

    # The disk.

    async def _write_all(self, scope: trio.CancelScope) -> None:
        """Write and take snapshots until the node ends, then end `scope`."""
        try:
            while self._end is None:
                if self._write is not None:
                    await self._carry_out(self._write)
                elif self._is_snapshot_due():
                    await self._take_snapshot()
                else:
                    self._has_work = trio.Event()
                    await self._has_work.wait()
        except LogOfflineError as error:
            self._end = error  # `run` raises it, outside of an exception group.
        scope.cancel()

    async def _carry_out(self, write: Write) -> None:
        snapshot = None
        if write.snapshot is not None:
            snapshot = StoredSnapshot(write.snapshot, self._incoming[write.snapshot])
        if write.hard_state is not None:
            self._vote = Vote(self.identity, self.cluster_id, write.hard_state)
        vote = None if write.hard_state is None else self._vote
        now_ms = self._env.clock.now_ms()
        await self._on_disk(
            lambda: self._store(vote, snapshot, write, now_ms=now_ms),
            is_brief=self._is_brief(write),
        )
        if snapshot is not None:
            self._snapshot = snapshot
            # A later one may have arrived meanwhile.
            for meta in [meta for meta in self._incoming if meta.index <= snapshot.meta.index]:
                del self._incoming[meta]
        self._write = None
        self._core.synced(write)
        self._pump()

    def _is_brief(self, write: Write) -> bool:
        """Return whether a write may block the loop, as it takes no longer than waking a thread.

        No other node can take this one for dead meanwhile: it leads alone.
        """
        is_plain = write.hard_state is None and write.snapshot is None
        return is_plain and size_of(write.entries) <= _BRIEF_BYTES and self._leads_alone()

    def _store(
        self, vote: Vote | None, snapshot: StoredSnapshot | None, write: Write, *, now_ms: int
    ) -> None:
        if vote is not None:
            self._storage.save_vote(vote)
        if snapshot is not None:
            self._storage.install(snapshot, now_ms=now_ms)
        if write.entries:
            self._storage.append(write.entries, now_ms=now_ms)

    def _is_snapshot_due(self) -> bool:
        is_urged = self._bytes_since_snapshot > 0 and self._env.buggify("snapshot early")
        return is_urged or self._bytes_since_snapshot >= SNAPSHOT_AFTER_BYTES

    async def _take_snapshot(self) -> None:
        keep_entries = 0 if self._env.buggify("no entries kept") else KEPT_ENTRIES
        snapshot = self._new_snapshot()
        self._bytes_since_snapshot = 0
        now_ms = self._env.clock.now_ms()
        await self._on_disk(
            lambda: self._storage.compact(snapshot, keep_entries=keep_entries, now_ms=now_ms)
        )
        self._snapshot = snapshot
        self._core.compact(snapshot.meta, keep_entries=keep_entries)
        self._pump()

    def _new_snapshot(self) -> StoredSnapshot:
        assert self._machine is not None
        meta = self._core.snapshot_meta(self._applied_index)
        return StoredSnapshot(meta, self._machine.snapshot())

    async def _on_disk(self, work: Callable[[], None], *, is_brief: bool = False) -> None:
        """Run work in a thread, or in the loop if it is brief.

        Retry while the disk is full or no more files can be open.
        """
        is_done = False
        while not is_done:
            try:
                await self._env.run_in_thread(work, is_brief=is_brief)
                is_done = True
            except (OSError, DiskFullError, OverloadedError) as error:
                if isinstance(error, OSError) and error.errno not in PASSING_ERRNOS:
                    raise self._failed(f"writing failed: {error}") from error
                self._env.probe("metadata_disk_full", severity="error", reason=str(error))
                await trio.sleep(_DISK_FULL_RETRY_S)
            except LogOfflineError as error:
                raise self._failed(str(error)) from error

    def _failed(self, reason: str) -> LogOfflineError:
        self._failure = reason
        self._env.probe("metadata_offline", severity="error", reason=reason)
        return LogOfflineError(f"the metadata is offline: {reason}")

    def _wake_all(self) -> None:
        self._waiting.fail(LogOfflineError(f"the outcome is unknown: {self._failure}"))
        self._waiting.tell()
        self._reads.wake_all()
        self._tell_role()
