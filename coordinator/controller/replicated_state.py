"""The replicated state of a cluster on one of its nodes, and the way to change it.

Shell around two copies of one state machine. The *image* applies committed entries; every node has
one, and acts on nothing else. The leader has a *controller* besides, copied from the image when its
term has begun. It applies the leader's own records as soon as they are proposed. So commands do not
wait for each other, and there is nothing to undo. A node that stops leading drops it. The image
gets the leader's own records as they were proposed, without decoding. Consumer groups are part of
the image; their controller is in `coordinator.group_coordinator.leadership`.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Final, final

import msgspec
import trio

from tidelog.coordinator.controller.log_entries import (
    STATE_ERRORS,
    EntryRecords,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from tidelog.coordinator.groups.records import group_records_level
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.metadata.commands import (
    AnyCommand,
    Command,
    CreateQueues,
    QueueAnswer,
    QueueResult,
    QueueResults,
    Reply,
    TopicCommand,
)
from tidelog.coordinator.metadata.features import check_level
from tidelog.coordinator.metadata.log_events import log_events
from tidelog.coordinator.metadata.records import Record
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.metadata.transaction_commands import expire
from tidelog.coordinator.metadata.transactions import TRANSACTION_RECORDS
from tidelog.coordinator.raft.errors import PayloadTooLargeError, ProposalRefusedError
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.pending_proposals import (
    LostProposalError,
    OvertakenProposalError,
    PendingProposal,
)
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    BrokerNotReadyError,
    DataDirectoryError,
    DiskFullError,
    InvalidConfigError,
    InvalidRequestError,
    NotControllerError,
    NotLeaderError,
    RequestTimedOutError,
    WireFormatError,
)

COMMIT_TIMEOUT_S: Final = 10.0
"""A command that is not committed by then times out; it may still be carried out."""

_ROOM_BYTES: Final = 1 << 20
"""With less room than this on the disk, new commands are refused."""
_RELIEF_BYTES: Final = 64 << 10
"""The same for commands that free space."""

Listener = Callable[[BrokerDelta], None]
"""Gets the effect of committed records on this node, when the image has them. Synchronous and
quick: it must neither wait nor raise."""


@final
class ReplicatedState:
    """The image, and the way to change it.

    Invariant: while there is a controller, it is the image plus all records proposed since.
    """

    def __init__(self, env: Env, node: RaftNode) -> None:
        """Become the state machine of `node`."""
        self._env = env
        self._node = node
        self._image = MetadataStateMachine()
        self.state = self._image.state
        """The committed state, as far as this node knows; read-only."""
        self._groups = ConsumerGroups()
        self._controller: MetadataStateMachine | None = None
        self._controller_term = -1
        self._last: PendingProposal | None = None
        """The last entry proposed in this term."""
        self._listeners: list[Listener] = []
        self._transaction_listeners: list[Listener] = []
        """Those of them that hear of transactions."""

    @property
    def groups(self) -> ConsumerGroups:
        """The committed consumer groups, as far as this node knows; read-only."""
        return self._groups

    def newest_state(self) -> ClusterState:
        """Return the state after all records proposed here; read-only.

        Raises:
            NotControllerError: Another node decides.
        """
        return self._controller_of_this_term().state

    def use_level(self, level: int) -> None:
        """Check and keep the feature level for records of groups that this node proposes next.

        The level cannot fall below it from then on.

        Raises:
            NotControllerError: Another node decides.
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            InvalidRequestError: The feature level of the cluster is too low.
        """
        if not level:
            return
        state = self._controller_of_this_term().state
        if state.feature_level < level and state.is_first_level_open:
            raise BrokerNotReadyError(
                "settings of groups need a feature level, and the new cluster has none yet; try"
                " again when all of its first nodes have started"
            )
        check_level(level, state.feature_level)
        state.use_level(level)

    def are_transactions_due(self) -> bool:
        """Return whether a transaction has timed out, or a name can be forgotten.

        Raises:
            NotControllerError: Another node decides.
        """
        state = self._controller_of_this_term().state
        return bool(expire(state, now_ms=self._env.clock.now_ms()).records)

    def check(self, command: Command) -> None:
        """Check a command against the state here; nothing changes.

        Raises:
            BrokerError: The command would be refused.
        """
        self._image.handle(command, now_ms=self._env.clock.now_ms())

    def subscribe(self, listener: Listener, *, hears_transactions: bool = True) -> None:
        """Call `listener` for all records committed from now on.

        Unless it `hears_transactions`, it is not called for an entry of transactions alone: each
        commit is one.
        """
        self._listeners.append(listener)
        if hears_transactions:
            self._transaction_listeners.append(listener)

    @property
    def applied_index(self) -> int:
        """The last entry that `state` has applied."""
        return self._node.applied_index

    async def wait_applied(self, index: int) -> None:
        """Wait until the image has all entries up to `index`, inclusive."""
        while self.applied_index < index:
            await self._node.wait_applied()

    async def decide(
        self, command: AnyCommand, *, fenced_because: str = "", is_bounded: bool = False
    ) -> Reply:
        """Carry out a command; it is committed, and visible in `state` here, on return.

        If cancelled, the command may be carried out, or not.

        Args:
            command: The command.
            fenced_because: Cause for the log, if the command fences a broker.
            is_bounded: Whether the caller cancels the wait in time.

        Raises:
            NotControllerError: Another node decides; nothing was done.
            RequestTimedOutError: The command may be carried out, or not.
            DiskFullError: The disk here is full; nothing was done.
            BrokerError: The command is refused.
        """
        controller = self._controller_of_this_term()
        if isinstance(command, CreateQueues):
            return await self._create_queues(controller, command)
        try:
            outcome = controller.handle(command, now_ms=self._env.clock.now_ms())
        except BrokerError:
            await self._wait_settled()
            raise
        if outcome.records:
            self._check_room(command)
            events = log_events(controller.state, outcome.records, fenced_because=fenced_because)
            self._last = self._propose(controller, outcome.records)
            for each in events:
                self._env.probe(each.name, severity=each.severity, **each.fields)
            await (self._wait if is_bounded else self.wait_committed)(self._last)
        else:
            await self._wait_settled()
        return outcome.reply

    def _propose(
        self, controller: MetadataStateMachine, records: Sequence[Record]
    ) -> PendingProposal:
        """Apply records to the controller, and propose them if the controller accepts them.

        An entry that no state machine can apply must never reach a log. After a failure the
        controller may have applied a part; the next one is a copy of the image.
        """
        payload = encode_entry(records)
        with self._changing_controller():
            for record in records:
                controller.apply(record)
            return self._node.propose_nowait(payload, EntryRecords(records, ()))

    async def _create_queues(
        self, controller: MetadataStateMachine, command: CreateQueues
    ) -> QueueResults:
        """Decide about each queue with those before it applied, and propose all in one entry."""
        records: list[Record] = []
        results: list[QueueResult] = []
        is_settled = True
        with self._changing_controller():
            for each in command.queues:
                try:
                    outcome = controller.handle(each, now_ms=self._env.clock.now_ms())
                    encode_entry(outcome.records)
                except BrokerError as error:
                    results.append(QueueResult(None, error.to_wire()))
                    is_settled = False
                    continue
                for record in outcome.records:
                    controller.apply(record)
                records += outcome.records
                is_settled &= bool(outcome.records)
                assert isinstance(outcome.reply, QueueAnswer)
                results.append(QueueResult(outcome.reply))
            if records:
                payload = encode_entry(records)
                self._last = self._node.propose_nowait(payload, EntryRecords(records, ()))
        if is_settled and self._last is not None:
            await self.wait_committed(self._last)
        else:
            await self._wait_settled()
        return QueueResults(results)

    @contextmanager
    def _changing_controller(self) -> Generator[None]:
        """Drop the controller after a failure of the block, which may have applied a part."""
        try:
            yield
        except PayloadTooLargeError as error:
            self._controller = None
            raise InvalidRequestError(f"the command changes too much at once: {error}") from error
        except ProposalRefusedError as error:
            self._controller = None
            raise NotControllerError(str(error)) from error
        except BaseException:
            self._controller = None
            raise

    async def _wait_settled(self) -> None:
        """Wait until the state that an answer rests on is committed and current.

        A refusal, or an empty answer, may rest on uncommitted records, or on a state that other
        leaders have changed since.
        """
        if self._last is not None:
            await self.wait_committed(self._last)
        await self.wait_current()

    async def wait_current(self) -> None:
        """Wait until a majority confirms this leader, and it has applied all earlier decisions.

        A leader that was paused may have been deposed without noticing.

        Raises:
            NotControllerError: This node does not lead any more, or no majority confirms it.
        """
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            try:
                await self._node.wait_current()
            except NotLeaderError as error:
                raise NotControllerError(str(error)) from error
            return
        raise NotControllerError(
            f"no majority has answered within {COMMIT_TIMEOUT_S:g} s; nothing was changed"
        )

    def _check_room(self, command: Command) -> None:
        """Refuse administrators' commands while the disk is full, before they are appended.

        Commands that keep the cluster running pass: they wait for room, or for another leader.
        """
        if isinstance(command, TopicCommand):
            is_relief = isinstance(command, DeleteTopic)
            if not self._node.has_room_for(_RELIEF_BYTES if is_relief else _ROOM_BYTES):
                raise DiskFullError("the disk of the node that leads the cluster is full")

    async def wait_committed(self, last: PendingProposal) -> None:
        """Wait until an entry of this node, and so all its earlier proposals, are committed.

        Raises:
            NotControllerError: The entry will never be committed.
            RequestTimedOutError: The entry may be committed, or not.
        """
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            await self._wait(last)
            return
        raise not_committed()

    async def _wait(self, last: PendingProposal) -> None:
        """Wait as `wait_committed`, without a time limit."""
        await last.wait_settled()
        self.require_committed(last)

    def require_committed(self, last: PendingProposal) -> None:
        """Check that a settled entry of this node was committed.

        Raises:
            NotControllerError: The entry will never be committed.
            RequestTimedOutError: The entry may be committed, or not.
            LogOfflineError: The same, for the disk failed.
        """
        try:
            last.require_committed()
        except LostProposalError as error:
            raise NotControllerError(
                f"node {self._node.identity.node_id} was deposed before this was decided"
            ) from error
        except OvertakenProposalError as error:
            raise RequestTimedOutError(
                f"node {self._node.identity.node_id} was deposed while this was decided; it"
                " may have been carried out"
            ) from error

    def check_active_controller(self) -> None:
        """Check that this node is the active controller, and has applied all earlier decisions.

        Raises:
            NotControllerError: It is not; the text names the leader.
        """
        node = self._node
        if not node.is_active_leader:
            leader_id = node.leader_id
            if leader_id is None or leader_id == node.identity.node_id:
                raise NotControllerError("the cluster has no leader at the moment; try again")
            raise NotControllerError(
                f"node {node.identity.node_id} does not lead the cluster; ask node {leader_id}"
            )

    def _controller_of_this_term(self) -> MetadataStateMachine:
        self.check_active_controller()
        if self._controller is None or self._controller_term != self._node.term:
            is_same_term = self._controller_term == self._node.term
            if is_same_term and self._last is not None and not self._last.is_settled:
                raise NotControllerError(
                    "a command was refused, and earlier ones are not committed yet; try again"
                )
            self._controller = MetadataStateMachine(self._image.state.copy())
            self._controller_term = self._node.term
            self._last = None
        return self._controller

    # Called by the Raft node.

    def apply(self, index: int, command: bytes, decoded: object | None = None) -> None:
        """See `coordinator.raft_node.interfaces.StateMachine`."""
        try:
            records = decoded if isinstance(decoded, EntryRecords) else decode_entry(command)
            if records.groups:
                for record in records.groups:
                    self._groups.apply(record)
                self._image.state.use_level(group_records_level(records.groups))
            if not records.cluster:
                return
            delta = BrokerDelta.from_records(
                self._image.state, records.cluster, self._node.identity.node_id
            )
        except (msgspec.MsgspecError, InvalidConfigError) as error:
            raise _of_a_newer_version(f"entry {index} of the metadata", error) from error
        except STATE_ERRORS as error:
            # A node that skips an entry would diverge from the others.
            raise DataDirectoryError(
                f"entry {index} of the metadata does not fit the state before it:"
                f" {type(error).__name__}: {error}; `tidelog log repair-metadata"
                f" {quote(self._node.data_directory)}` says what can be done"
            ) from error
        is_of_transactions = TRANSACTION_RECORDS.issuperset(map(type, records.cluster))
        for listener in self._transaction_listeners if is_of_transactions else self._listeners:
            listener(delta)

    def check_entry(self, command: bytes) -> None:
        """See `coordinator.raft_node.interfaces.StateMachine`."""
        try:
            decode_entry(command)
        except ValueError as error:  # a MsgspecError, or a UnicodeDecodeError
            raise WireFormatError(f"not an entry of the metadata: {error}") from error

    def check_snapshot(self, data: bytes) -> None:
        """See `coordinator.raft_node.interfaces.StateMachine`."""
        try:
            decode_snapshot(data)
        except (ValueError, InvalidConfigError) as error:
            raise WireFormatError(f"not a snapshot of the metadata: {error}") from error

    def snapshot(self) -> bytes:
        """See `coordinator.raft_node.interfaces.StateMachine`."""
        return encode_snapshot(self._image.state, self._groups)

    def restore(self, data: bytes) -> None:
        """See `coordinator.raft_node.interfaces.StateMachine`."""
        before = self._image.state
        try:
            self._image, self._groups = decode_snapshot(data)
        except (msgspec.MsgspecError, InvalidConfigError) as error:
            raise _of_a_newer_version("a snapshot of the metadata", error) from error
        self.state = self._image.state
        delta = BrokerDelta.from_states(before, self._image.state, self._node.identity.node_id)
        for listener in self._listeners:
            listener(delta)

    def role_changed(self) -> None:
        """Drop the controller if this node does not lead any more."""
        if not self._node.is_leader or self._controller_term != self._node.term:
            self._controller = None
            self._last = None


def not_committed() -> RequestTimedOutError:
    """Return the error for an entry that is not committed in time."""
    return RequestTimedOutError(
        f"not committed within {COMMIT_TIMEOUT_S:g} s: a majority of the voters is missing; it"
        " may still be carried out"
    )


def _of_a_newer_version(what: str, error: Exception) -> DataDirectoryError:
    return DataDirectoryError(
        f"{what} holds records that this tidelog does not understand: {error}; use the version"
        " that wrote it, or a newer one"
    )
