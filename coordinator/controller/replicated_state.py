"""All that a cluster agrees on, as one of its nodes knows it, and has it changed.

Shell around two copies of one state machine. The *image* is fed with what is committed; every
node has one, and acts on nothing else. The node that leads has a *controller* besides, copied
from the image when its term has begun, and fed with its own records as soon as they are proposed:
so commands do not wait for each other, and there is nothing to take back. A node that stops leading
drops it. The image gets the leader's own records as they were proposed, not decoded again. Consumer
groups are part of the image; their controller is in `coordinator.group_coordinator.leadership`.
"""

from collections.abc import Callable, Iterable
from typing import Final, final

import msgspec
import trio

from tidelog.coordinator.controller.log_entries import (
    EntryRecords,
    decode_entry,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.metadata.commands import Command, Reply, TopicCommand
from tidelog.coordinator.metadata.partition_changes import LeaderChanges, leader_changes
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.metadata.transaction_commands import expire
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
    DataDirectoryError,
    DiskFullError,
    InvalidConfigError,
    InvalidRequestError,
    NotControllerError,
    NotLeaderError,
    RequestTimedOutError,
)

COMMIT_TIMEOUT_S: Final = 10.0
"""A command that is not committed by then is given up; it may still be carried out."""

_ROOM_BYTES: Final = 1 << 20
"""Less room than this on the disk, and nothing new begins."""
_RELIEF_BYTES: Final = 64 << 10
"""The same for what makes room."""

Listener = Callable[[BrokerDelta], None]
"""Told what committed records mean for this node, when the image has them. Plain and quick: it
must neither wait nor raise."""


@final
class ReplicatedState:
    """The image, and the way to change it.

    Invariant: while there is a controller, it is the image plus all that was proposed since.
    """

    def __init__(self, env: Env, node: RaftNode) -> None:
        """Be the state machine of `node`."""
        self._env = env
        self._node = node
        self._image = MetadataStateMachine()
        self._groups = ConsumerGroups()
        self._controller: MetadataStateMachine | None = None
        self._controller_term = -1
        self._last: PendingProposal | None = None
        """The entry that was proposed last in this term."""
        self._listeners: list[Listener] = []

    @property
    def state(self) -> ClusterState:
        """What is committed, as far as this node knows; only to be read."""
        return self._image.state

    @property
    def groups(self) -> ConsumerGroups:
        """Consumer groups as they are committed, as far as this node knows; only to be read."""
        return self._groups

    def newest_state(self) -> ClusterState:
        """Return what there will be when all that was decided here is committed; only to be read.

        Raises:
            NotControllerError: Another node decides.
        """
        return self._controller_of_this_term().state

    def are_transactions_due(self) -> bool:
        """Return whether some batch is open for too long, or a name can be forgotten.

        Raises:
            NotControllerError: Another node decides.
        """
        state = self._controller_of_this_term().state
        return bool(expire(state, now_ms=self._env.clock.now_ms()).records)

    def check(self, command: Command) -> None:
        """Check a command against what is known here; nothing is changed.

        Raises:
            BrokerError: It would be refused.
        """
        self._image.handle(command, now_ms=self._env.clock.now_ms())

    def subscribe(self, listener: Listener) -> None:
        """Tell `listener` of all that is committed from now on."""
        self._listeners.append(listener)

    @property
    def applied_index(self) -> int:
        """The last entry that `state` has."""
        return self._node.applied_index

    async def wait_applied(self, index: int) -> None:
        """Wait until the image has all entries up to `index`, inclusive."""
        while self.applied_index < index:
            await self._node.wait_applied()

    async def decide(self, command: Command) -> Reply:
        """Carry out a command; committed, and visible in `state` here, when this returns.

        If cancelled, the command may be carried out, or not.

        Raises:
            NotControllerError: Another node decides; nothing was done.
            RequestTimedOutError: It is not known whether it was, or will be, carried out.
            DiskFullError: There is no room here; nothing was done.
            BrokerError: The command is refused.
        """
        controller = self._controller_of_this_term()
        try:
            outcome = controller.handle(command, now_ms=self._env.clock.now_ms())
        except BrokerError:
            await self._wait_settled()
            raise
        if outcome.records:
            self._check_room(command)
            try:
                self._last = self._node.propose_nowait(
                    encode_entry(outcome.records), EntryRecords(outcome.records, ())
                )
            except PayloadTooLargeError as error:
                raise InvalidRequestError(f"this is too much at once: {error}") from error
            except ProposalRefusedError as error:
                raise NotControllerError(str(error)) from error
            changes = leader_changes(controller.state, outcome.records)
            for record in outcome.records:
                controller.apply(record)
            self._log_elections(changes)
            await self.wait_committed(self._last)
        else:
            await self._wait_settled()
        return outcome.reply

    def _log_elections(self, changes: Iterable[LeaderChanges]) -> None:
        for each in changes:
            if None in each.leaders.values():
                self._env.probe(
                    "partitions_offline",
                    severity="warning",
                    topic=each.topic,
                    partitions=list(each.leaders),
                )
            else:
                self._env.probe(
                    "leaders_elected",
                    severity="warning" if each.is_unclean else "debug",
                    topic=each.topic,
                    leaders=each.leaders,
                    is_unclean=each.is_unclean,
                )

    async def _wait_settled(self) -> None:
        """Wait until what is known here is what everybody goes by.

        A refusal, or that there is nothing to do, may rest on what is not committed yet, or on what
        others have changed since.
        """
        if self._last is not None:
            await self.wait_committed(self._last)
        await self.wait_current()

    async def wait_current(self) -> None:
        """Make sure that this node led after it was asked, and knows all that was decided before.

        One that stood still may have been deposed without noticing.

        Raises:
            NotControllerError: It does not lead any more, or no majority says that it does.
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
        """Refuse what people want while the disk is full, before it is appended and waits there.

        What keeps the cluster going is let through: it waits for room, or for another leader.
        """
        if isinstance(command, TopicCommand):
            is_relief = isinstance(command, DeleteTopic)
            if not self._node.has_room_for(_RELIEF_BYTES if is_relief else _ROOM_BYTES):
                raise DiskFullError("the disk of the node that leads the cluster is full")

    async def wait_committed(self, last: PendingProposal) -> None:
        """Wait until an entry of this node, and so all that it proposed before, is committed.

        Raises:
            NotControllerError: It never will be.
            RequestTimedOutError: It is not known whether it is, or will be.
        """
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            try:
                await last.wait()
            except LostProposalError as error:
                raise NotControllerError(
                    f"node {self._node.identity.node_id} was deposed before this was decided"
                ) from error
            except OvertakenProposalError as error:
                raise RequestTimedOutError(
                    f"node {self._node.identity.node_id} was deposed while this was decided; it"
                    " may have been carried out"
                ) from error
            return
        raise RequestTimedOutError(
            f"not committed within {COMMIT_TIMEOUT_S:g} s: a majority of the voters is missing; it"
            " may still be carried out"
        )

    def check_active_controller(self) -> None:
        """Check that this node decides, and knows all that was decided before.

        Raises:
            NotControllerError: It does not; the message says who does.
        """
        node = self._node
        if not node.is_active_leader:
            leader_id = node.leader_id
            if leader_id is None or leader_id == node.identity.node_id:
                raise NotControllerError("no node leads the cluster at the moment; try again")
            raise NotControllerError(
                f"node {node.identity.node_id} does not lead the cluster; ask node {leader_id}"
            )

    def _controller_of_this_term(self) -> MetadataStateMachine:
        self.check_active_controller()
        if self._controller is None or self._controller_term != self._node.term:
            self._controller = MetadataStateMachine.from_snapshot(self._image.snapshot())
            self._controller_term = self._node.term
            self._last = None
        return self._controller

    # What the node calls.

    def apply(self, index: int, command: bytes, decoded: object | None = None) -> None:
        """See `coordinator.raft_node.interfaces.StateMachine`."""
        try:
            records = decoded if isinstance(decoded, EntryRecords) else decode_entry(command)
            for record in records.groups:
                self._groups.apply(record)
            if not records.cluster:
                return
            delta = BrokerDelta.from_records(
                self._image.state, records.cluster, self._node.identity.node_id
            )
        except (msgspec.MsgspecError, InvalidConfigError) as error:
            raise _of_a_newer_version(f"entry {index} of the metadata", error) from error
        self._tell(delta)

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
        self._tell(BrokerDelta.from_states(before, self._image.state, self._node.identity.node_id))

    def role_changed(self) -> None:
        """Drop the controller if this node does not lead any more."""
        if not self._node.is_leader or self._controller_term != self._node.term:
            self._controller = None
            self._last = None

    def _tell(self, delta: BrokerDelta) -> None:
        for listener in self._listeners:
            listener(delta)


def _of_a_newer_version(what: str, error: Exception) -> DataDirectoryError:
    return DataDirectoryError(
        f"{what} holds what this tidelog does not understand: {error}; use the version that wrote"
        " it, or a newer one"
    )
