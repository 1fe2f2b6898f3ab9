"""A proven node with a defect: it sends messages that no correct node sends.

Raft survives crashes, not lies: a member that claims entries which it has not, or votes twice, can
break any promise. So the forger makes only messages that a node can recognise by itself, from its
own state: those of other senders, for other nodes or clusters, of terms that cannot be, of a second
leader, or of no meaning. Each comes through the handler of the broker, and must change nothing.
"""

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, cast, final

import msgspec

from tests.simulation.raft.node import RaftNode
from tidelog.broker.handlers.raft import RaftHandler
from tidelog.coordinator.raft.core import TERM_RISE_MAX, RaftCore
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import (
    AppendRequest,
    Message,
    OfOneTerm,
    PreVoteRequest,
    Report,
    TimeoutNow,
    encode,
)
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.cluster import RaftRequest
from tidelog.wire.messages.field_types import EPOCH_MAX

_CLUSTER: Final = "the cluster"
_TERM_AT: Final = 3
"""The place of the term in an encoded message."""


@final
class _Port:
    """The node of a broker, as its handler uses it."""

    def __init__(self, identity: Identity, core: RaftCore) -> None:
        self.identity = identity
        self.cluster_id = _CLUSTER
        self._core = core

    def check(self, message: Message) -> None:
        """Accept all entries: commands mean nothing here."""

    def received(self, message: Message) -> None:
        """Pass a message on."""
        self._core.step(message)


@final
class Forger:
    """Forges messages of one node to another."""

    def __init__(
        self, random: Random, sender: Identity, target: RaftNode, *, core: RaftCore
    ) -> None:
        """Send as `sender` to `target`, whose core runs."""
        self._random = random
        self._sender = sender
        self._target = target
        self._core = core
        self._ways: Sequence[Callable[[Message], bytes | None]] = (
            self._of_another_sender,
            self._for_another_disk,
            self._of_an_unlikely_term,
            self._of_an_impossible_term,
            self._of_a_second_leader,
            self._of_no_member,
            self._of_an_earlier_term,
            self._cut,
        )

    def send(self, genuine: Message, others: Sequence[Identity]) -> str | None:
        """Send a forgery made from a genuine message; return it if it has changed the core.

        `others` are the nodes in whose names it may be sent.
        """
        self._others = [each for each in others if each.node_id != self._sender.node_id]
        message = msgspec.structs.replace(
            genuine, sender=self._sender, target=self._target.identity
        )
        is_foreign = self._random.random() < 0.1
        forged = encode(message) if is_foreign else self._random.choice(self._ways)(message)
        if forged is None:
            return None
        request = RaftRequest("another cluster" if is_foreign else _CLUSTER, [forged])
        before = _state_of(self._core)
        handler = RaftHandler(cast("Any", _Port(self._target.identity, self._core)))
        with suppress(BrokerError):
            handler.handle(request, memoryview(b""), self._sender.node_id)
        if _state_of(self._core) == before:
            return None
        return f"{msgspec.msgpack.decode(forged)} of node {self._sender.node_id}"

    def _of_another_sender(self, message: Message) -> bytes | None:
        if not self._others:
            return None
        other = self._random.choice(self._others)
        return encode(msgspec.structs.replace(message, sender=other))

    def _for_another_disk(self, message: Message) -> bytes:
        other = Identity(self._target.node_id, b"another disk")
        return encode(msgspec.structs.replace(message, target=other))

    def _of_an_unlikely_term(self, message: Message) -> bytes | None:
        # A node without a term joins, and believes any. A vote that changes nothing is answered.
        if self._core.term == 0 or isinstance(message, PreVoteRequest):
            return None
        term = self._random.randint(self._core.term + TERM_RISE_MAX + 1, EPOCH_MAX)
        term = self._random.choice((term, EPOCH_MAX))
        return encode(msgspec.structs.replace(message, term=term))

    def _of_an_impossible_term(self, message: Message) -> bytes:
        plain = msgspec.msgpack.decode(encode(message))
        plain[_TERM_AT] = self._random.choice((-1, EPOCH_MAX + 1, 1 << 63))
        return msgspec.msgpack.encode(plain)

    def _of_a_second_leader(self, message: Message) -> bytes | None:
        if self._core.leader in {None, self._sender}:
            return None  # The leader may send anything.
        if not isinstance(message, AppendRequest):
            return encode(TimeoutNow(self._sender, self._target.identity, self._core.term))
        return encode(msgspec.structs.replace(message, term=self._core.term))

    def _of_no_member(self, message: Message) -> bytes | None:
        if not isinstance(message, Report):
            return None
        other = Identity(self._sender.node_id, b"another disk")
        return encode(msgspec.structs.replace(message, sender=other))

    def _of_an_earlier_term(self, message: Message) -> bytes | None:
        if not isinstance(message, OfOneTerm) or self._core.term == 0:
            return None
        return encode(
            msgspec.structs.replace(message, term=self._random.randrange(self._core.term))
        )

    def _cut(self, message: Message) -> bytes:
        data = encode(message)
        return data[: self._random.randrange(len(data))]


def _state_of(core: RaftCore) -> bytes:
    """Return all of a core, except whether a shell should look at it again."""
    left_out = {"is_dirty", "_handlers"}  # The handlers refer to the core itself.
    return pickle.dumps({name: each for name, each in vars(core).items() if name not in left_out})
