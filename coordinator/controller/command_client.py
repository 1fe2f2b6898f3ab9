"""The client of the cluster's commands, on each of its nodes.

Shell: finds the controller, and retries until the outcome of a command is known. Commands have
identities of their own, so a retry does no harm.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar, final

import msgspec
import trio

from tidelog.coordinator.controller.address_book import AddressBook
from tidelog.coordinator.controller.controller import Controller
from tidelog.coordinator.controller.replicated_state import COMMIT_TIMEOUT_S, ReplicatedState
from tidelog.coordinator.metadata.broker_sessions import BrokerHeartbeat
from tidelog.coordinator.metadata.commands import (
    AnyCommand,
    CatchUp,
    Reply,
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
)
from tidelog.coordinator.metadata.metadata_age import MetadataAge
from tidelog.coordinator.raft.membership import Identity, check_cluster
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.errors import (
    BrokerNotReadyError,
    ConnectionLostError,
    InvalidRequestError,
    LogOfflineError,
    NotControllerError,
    RequestTimedOutError,
    TidelogError,
    WireFormatError,
)
from tidelog.wire.messages.cluster import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    ClockSkew,
    DamagedReplicas,
    ForwardCommandReply,
    ForwardCommandRequest,
    JoinReply,
    JoinRequest,
)
from tidelog.wire.protocol import api

_RETRY_S: Final = 0.1
_ANSWER_TIMEOUT_S: Final = COMMIT_TIMEOUT_S + 1.0
_HEARTBEAT_TIMEOUT_S: Final = 1.0

Answer = TypeVar("Answer")


@final
class CommandClient:
    """The path of commands from this node to the controller, and from other nodes to this one."""

    def __init__(
        self,
        node: RaftNode,
        metadata: ReplicatedState,
        controller: Controller,
        *,
        peers: PeerClient,
        addresses: AddressBook,
    ) -> None:
        """Decide with `metadata` and `controller` while `node` leads, else forward to `peers`."""
        self._node = node
        self._metadata = metadata
        self._controller = controller
        self._peers = peers
        self._addresses = addresses
        self.damaged: Mapping[int, DamagedReplicas] = {}
        """Damaged replicas of the brokers that report them, by node id, as last heard from the
        controller."""
        self._metadata_age = MetadataAge()

    async def submit(self, command: AnyCommand, *, timeout_s: float, retry: bool = True) -> Reply:
        """Carry out a command; it is committed, and visible in the state here, on return.

        If cancelled, the command may be carried out, or not.

        Args:
            command: A command with an identity of its own, so that a retry does no harm.
            timeout_s: For all attempts.
            retry: Retry until the outcome is known. Without it the command goes to one node, and
                once: a refusal is final then, for no other copy of the command is on its way.

        Raises:
            RequestTimedOutError: The command may be carried out, or not; without `retry` that holds
                for `ConnectionLostError` as well.
            BrokerError: The command is refused; without `retry` also when no node leads.
        """
        if not retry:
            return await self._submit_once(command, timeout_s=timeout_s)
        here = partial(self._metadata.decide, command, is_bounded=timeout_s <= COMMIT_TIMEOUT_S)
        return await self._ask(here, self._submit_to(command), timeout_s=timeout_s)

    async def catch_up(self, *, timeout_s: float) -> None:
        """Wait until the state here has all decisions before this call.

        Raises:
            RequestTimedOutError: No leader answered.
        """
        await self.submit(CatchUp(), timeout_s=timeout_s)

    async def _submit_once(self, command: AnyCommand, *, timeout_s: float) -> Reply:
        with trio.move_on_after(timeout_s):
            if self._node.is_active_leader:
                return await self._metadata.decide(command)
            leader_id = self._node.leader_id
            if leader_id is None or leader_id == self._node.identity.node_id:
                raise NotControllerError("the cluster has no leader at the moment")
            return await self._submit_to(command)(leader_id)
        raise RequestTimedOutError(f"not decided within {timeout_s:g} s")

    def _submit_to(self, command: AnyCommand) -> Callable[[int], Awaitable[Reply]]:
        async def there(node_id: int) -> Reply:
            request = ForwardCommandRequest(self._node.cluster_id, encode_command(command))
            decided = await self._peers.ask(
                node_id, api.FORWARD_COMMAND, request, timeout_s=_ANSWER_TIMEOUT_S
            )
            await self._metadata.wait_applied(decided.index)
            return decode_reply(decided.reply)

        return there

    def metadata_age_ms(self) -> int | None:
        """Return the time since the metadata here were current; `None` if they never were.

        Counted from the last answered heartbeat, and from the start of this process.
        """
        return self._metadata_age.age_ms(
            applied_index=self._metadata.applied_index, now_ms=_now_ms()
        )

    async def heartbeat(
        self, heartbeat: BrokerHeartbeatRequest, *, timeout_s: float
    ) -> BrokerHeartbeatReply:
        """Send this broker's heartbeat to the controller; the answer shows the metadata's age.

        Raises:
            RequestTimedOutError: No leader was reached.
            StaleBrokerEpochError: The broker must register first.
        """

        async def there(node_id: int) -> BrokerHeartbeatReply:
            return await timed(
                self._peers.ask(
                    node_id, api.BROKER_HEARTBEAT, heartbeat, timeout_s=_HEARTBEAT_TIMEOUT_S
                )
            )

        async def timed(answer: Awaitable[BrokerHeartbeatReply]) -> BrokerHeartbeatReply:
            sent_at_ms = _now_ms()
            reply = await answer
            self._metadata_age.answered(metadata_index=reply.metadata_index, sent_at_ms=sent_at_ms)
            return reply

        here = partial(self.take_heartbeat, heartbeat)
        answer = await self._ask(lambda: timed(here()), there, timeout_s=timeout_s)
        self.damaged = {each.node_id: each for each in answer.damaged}
        return answer

    async def decide(self, request: ForwardCommandRequest) -> ForwardCommandReply:
        """Carry out another node's command, while this node leads.

        Raises:
            NotControllerError: This node does not lead.
            BrokerError: The command is refused, or not committed in time.
        """
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        try:
            command = decode_command(request.command)
        except WireFormatError as error:
            raise InvalidRequestError(str(error)) from error
        reply = await self._metadata.decide(command)
        return ForwardCommandReply(encode_reply(reply), self._node.applied_index)

    async def take_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatReply:
        """Record a broker's heartbeat, while this node leads.

        Raises:
            NotControllerError: This node does not lead.
            BrokerError: The broker must register first, or no majority of the voters answers.
        """
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        answer = await self._controller.heartbeat(
            BrokerHeartbeat(
                request.node_id,
                request.broker_epoch,
                request.wants_to_stop,
                request.applied_index,
                request.directory_epoch,
                request.wall_ms,
                request.supported_levels,
                request.damaged,
                request.quota_use,
            ),
            is_caught_up=request.is_caught_up,
        )
        # Decided, not applied: with a full disk here, other nodes may have applied more.
        return BrokerHeartbeatReply(
            answer.is_fenced,
            answer.may_stop,
            self._node.commit_index,
            answer.is_counted,
            answer.agreed_ms,
            [ClockSkew(*each) for each in answer.clock_skews_ms.items()],
            answer.controller_ms,
            list(answer.damaged),
            list(answer.quota_shares),
        )

    async def join(self, request: JoinRequest) -> JoinReply:
        """Make a node a member, if this node leads; else forward the request to the leader, once.

        Raises:
            NotControllerError: No node leads, it cannot be reached, or it cannot do it now.
            DuplicateBrokerError: A live broker has this node id.
            UnsupportedVersionError: The node does not know the cluster's feature level.
        """
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        identity = Identity(request.peer.node_id, request.peer.disk_id)
        address = (request.host, request.port)
        own_id, leader_id = self._node.identity.node_id, self._node.leader_id
        if leader_id is None and identity in self._node.membership.members:
            # A node that could lead may wait for this address.
            self._addresses.announced(identity.node_id, address)
        if leader_id in (None, own_id) or request.is_passed_on:
            await self._controller.admit(identity, address, request.supported_levels)
            reply = JoinReply(own_id, "", 0)
        else:
            assert leader_id is not None
            reply = await self._pass_on(leader_id, request)
        # Not before: a stranger with the id of a member would mislead all nodes.
        self._addresses.announced(identity.node_id, address)
        return reply

    async def _pass_on(self, leader_id: int, request: JoinRequest) -> JoinReply:
        passed_on = msgspec.structs.replace(request, is_passed_on=True)
        try:
            reply = await self._peers.ask(
                leader_id, api.JOIN, passed_on, timeout_s=_ANSWER_TIMEOUT_S
            )
        except (ConnectionLostError, WireFormatError) as error:
            raise NotControllerError(
                f"node {leader_id} leads the cluster, and cannot be reached: {error}"
            ) from error
        # The joining node must be able to answer the leader, whose address it may not know.
        return JoinReply(reply.leader_id, *(self._addresses.address_of(leader_id) or ("", 0)))

    async def _ask(
        self,
        here: Callable[[], Awaitable[Answer]],
        there: Callable[[int], Awaitable[Answer]],
        *,
        timeout_s: float,
    ) -> Answer:
        """Send a request to the leader; retry while there is none, or another one.

        Raises:
            RequestTimedOutError: No leader answered.
            LogOfflineError: The disk of this node's metadata failed.
            BrokerError: The leader refused.
        """
        reason = "the cluster has no leader"
        with trio.move_on_after(timeout_s):
            while True:
                self._node.require_running()
                try:
                    if self._node.is_active_leader:
                        return await here()
                    leader_id = self._node.leader_id
                    if leader_id is not None and leader_id != self._node.identity.node_id:
                        return await self._unless_deposed(partial(there, leader_id))
                except (NotControllerError, BrokerNotReadyError, ConnectionLostError) as error:
                    # A leader that has just restarted may not know its cluster yet.
                    reason = str(error)
                await trio.sleep(_RETRY_S)
        raise RequestTimedOutError(f"not decided within {timeout_s:g} s: {reason}")

    async def _unless_deposed(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the leader's answer, unless it falls silent, and another leader is sought.

        Raises:
            ConnectionLostError: The request may be carried out, or not.
            BrokerError: The leader refused.
        """
        outcomes: list[Answer | TidelogError] = []
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await self._node.wait_role_changed()
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_up)
            try:
                outcomes.append(await ask())
            except TidelogError as error:
                outcomes.append(error)
            nursery.cancel_scope.cancel()
        if not outcomes:
            raise ConnectionLostError("the node that led the cluster fell silent")
        (outcome,) = outcomes
        if isinstance(outcome, LogOfflineError):
            raise ConnectionLostError("the node that led the cluster has lost its disk")
        if isinstance(outcome, TidelogError):
            raise outcome
        return outcome


def _now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
