"""What the node that leads a cluster does of its own accord, and for the brokers that live.

Shell: lets time pass for the decision cores in `coordinator.cluster`. It works only while this
node leads; what it knows of sessions is not replicated, so whoever leads next gives every broker a
full one from then on.
"""

from typing import final

import trio

from coordinator.cluster.commands import Command
from coordinator.cluster.preferred_leaders import PreferredLeaders
from coordinator.cluster.sessions import (
    BrokerSessions,
    Heartbeat,
    HeartbeatAnswer,
    heartbeat_answer,
    heartbeat_command,
)
from coordinator.raft_node import RaftNode
from coordinator.replicated import ReplicatedMetadata
from wire.env import Env
from wire.errors import BrokerError, NotControllerError

_LOOK_S = 0.5
"""How often it looks what is due. Sessions and moves of leaders are counted in seconds."""


@final
class Controller:
    """Fences brokers that are silent, lets others in, and gives leaderships back.

    Invariant: there are sessions exactly for the term in which this node leads.
    """

    def __init__(self, env: Env, node: RaftNode, metadata: ReplicatedMetadata) -> None:
        """Decide by `metadata` while `node` leads."""
        self._env = env
        self._node = node
        self._metadata = metadata
        self._term = -1
        self._sessions: BrokerSessions | None = None
        self._preferred: PreferredLeaders | None = None

    async def run(self) -> None:
        """Work whenever this node leads; until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(_LOOK_S)
                try:
                    sessions, preferred = self._of_this_term()
                except NotControllerError:
                    continue
                now_ms = _now_ms()
                commands: list[Command] = [*sessions.silent(now_ms=now_ms)]
                due = preferred.due(self._metadata.state, now_ms=now_ms)
                if due is not None:
                    commands.append(due)
                for command in commands:
                    nursery.start_soon(self._decide, command)

    async def heartbeat(self, heartbeat: Heartbeat, *, is_caught_up: bool) -> HeartbeatAnswer:
        """Take note that a broker lives, and tell it how it stands.

        If cancelled, what the heartbeat asked for may still come about; it asks again with the
        next one.

        Args:
            heartbeat: What the broker says.
            is_caught_up: Whether its image has its own registration.

        Raises:
            NotControllerError: Another node leads the cluster.
            StaleBrokerEpochError: It must register first.
            RequestTimedOutError: No majority of the voters is there.
        """
        sessions, _ = self._of_this_term()
        command = heartbeat_command(
            self._metadata.newest_state(), heartbeat, is_caught_up=is_caught_up
        )
        if command is not None:
            await self._metadata.decide(command)
        answer = heartbeat_answer(self._metadata.state, heartbeat)
        if not answer.is_fenced:
            sessions.heard(heartbeat.node_id, heartbeat.broker_epoch, now_ms=_now_ms())
        return answer

    def _of_this_term(self) -> tuple[BrokerSessions, PreferredLeaders]:
        """Return what belongs to the term in which this node leads.

        Raises:
            NotControllerError: It does not lead.
        """
        brokers = self._metadata.newest_state().brokers
        if self._sessions is None or self._preferred is None or self._term != self._node.term:
            now_ms = _now_ms()
            self._term = self._node.term
            self._sessions = BrokerSessions(brokers.values(), now_ms=now_ms)
            self._preferred = PreferredLeaders(now_ms=now_ms)
        return self._sessions, self._preferred

    async def _decide(self, command: Command) -> None:
        try:
            await self._metadata.decide(command)
        except BrokerError as error:
            # Whoever leads then sees the same and decides anew; so does this node, in a while.
            self._env.probe(
                "controller_command_failed",
                severity="warning",
                command=type(command).__name__,
                reason=str(error),
            )
            return
        self._forget_fenced()

    def _forget_fenced(self) -> None:
        if self._sessions is not None:
            for broker in self._metadata.state.brokers.values():
                if broker.is_fenced:
                    self._sessions.fenced(broker.node_id, broker.broker_epoch)


def _now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
