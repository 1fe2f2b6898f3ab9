"""The metadata of a cluster, as one of its nodes knows it, and has it changed.

Shell around two copies of one state machine. The *image* is fed with what is committed; every
node has one, and acts on nothing else. The node that leads has a *controller* besides, copied
from the image when its term has begun, and fed with its own records as soon as they are proposed:
so commands do not wait for each other, and there is nothing to take back. A node that stops leading
drops it.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from coordinator.cluster.commands import Command, Reply
from coordinator.cluster.machine import ClusterMachine
from coordinator.cluster.records import Record, decode_records, encode_records
from coordinator.cluster.state import ClusterState
from coordinator.raft.errors import ProposalRefusedError
from coordinator.raft_node import LostCommandError, RaftNode, WaitingCommand
from wire.env import Env
from wire.errors import NotControllerError, RequestTimedOutError

COMMIT_TIMEOUT_S: Final = 10.0
"""A command that is not committed by then is given up; it may still be carried out."""

Listener = Callable[[list[Record] | None], None]
"""Told of committed records when the image has them; of `None` when all may be different. Plain
and quick: it must neither wait nor raise."""


@final
class ReplicatedMetadata:
    """The image, and the way to change it.

    Invariant: while there is a controller, it is the image plus all that was proposed since.
    """

    def __init__(self, env: Env, node: RaftNode) -> None:
        """Be the state machine of `node`."""
        self._env = env
        self._node = node
        self._image = ClusterMachine()
        self._controller: ClusterMachine | None = None
        self._controller_term = -1
        self._last: WaitingCommand | None = None
        """The entry that was proposed last in this term."""
        self._listeners: list[Listener] = []

    @property
    def state(self) -> ClusterState:
        """What is committed, as far as this node knows; only to be read."""
        return self._image.state

    def newest_state(self) -> ClusterState:
        """Return what there will be when all that was decided here is committed; only to be read.

        Raises:
            NotControllerError: Another node decides.
        """
        return self._controller_of_this_term().state

    def subscribe(self, listener: Listener) -> None:
        """Tell `listener` of all that is committed from now on."""
        self._listeners.append(listener)

    async def wait_applied(self, index: int) -> None:
        """Wait until the image has all entries up to `index`, inclusive."""
        while self._node.applied_index < index:
            await self._node.wait_applied()

    async def decide(self, command: Command) -> Reply:
        """Carry out a command; committed, and visible in `state` here, when this returns.

        If cancelled, the command may be carried out, or not.

        Raises:
            NotControllerError: Another node decides; nothing was done.
            RequestTimedOutError: It is not known whether it was, or will be, carried out.
            BrokerError: The command is refused.
        """
        controller = self._controller_of_this_term()
        outcome = controller.handle(command, now_ms=self._env.clock.now_ms())
        if outcome.records:
            try:
                self._last = self._node.propose_nowait(encode_records(outcome.records))
            except ProposalRefusedError as error:
                raise NotControllerError(str(error)) from error
            for record in outcome.records:
                controller.apply(record)
        # Also if it came to nothing: that may rest on what is not committed yet.
        if self._last is not None:
            await self._wait(self._last)
        return outcome.reply

    async def _wait(self, last: WaitingCommand) -> None:
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            try:
                await last.wait()
            except LostCommandError as error:
                raise NotControllerError(
                    f"node {self._node.identity.node_id} was deposed before this was decided"
                ) from error
            return
        raise RequestTimedOutError(
            f"not committed within {COMMIT_TIMEOUT_S:g} s: a majority of the voters is missing; it"
            " may still be carried out"
        )

    def _controller_of_this_term(self) -> ClusterMachine:
        node = self._node
        if not node.has_begun_term:
            leader_id = node.leader_id
            if leader_id is None or leader_id == node.identity.node_id:
                raise NotControllerError("no node leads the cluster at the moment; try again")
            raise NotControllerError(
                f"node {node.identity.node_id} does not lead the cluster; ask node {leader_id}"
            )
        if self._controller is None or self._controller_term != node.term:
            self._controller = ClusterMachine.from_snapshot(self._image.snapshot())
            self._controller_term = node.term
            self._last = None
        return self._controller

    # What the node calls.

    def apply(self, index: int, command: bytes) -> None:
        """See `coordinator.raft_node.StateMachine`."""
        del index
        records = decode_records(command)
        for record in records:
            self._image.apply(record)
        self._tell(records)

    def snapshot(self) -> bytes:
        """See `coordinator.raft_node.StateMachine`."""
        return self._image.snapshot()

    def restore(self, data: bytes) -> None:
        """See `coordinator.raft_node.StateMachine`."""
        self._image = ClusterMachine.from_snapshot(data)
        self._tell(None)

    def role_changed(self) -> None:
        """Drop the controller if this node does not lead any more."""
        if not self._node.is_leader or self._controller_term != self._node.term:
            self._controller = None
            self._last = None

    def _tell(self, records: list[Record] | None) -> None:
        for listener in self._listeners:
            listener(records)
