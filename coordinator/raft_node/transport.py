"""The transport of Raft messages to other nodes.

Shell: owns a connection to each node that it has sent to. Raft tolerates lost messages, so messages
that cannot go at once are dropped rather than kept: an old message is of no use.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, final

import trio

from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.messages import Message, SnapshotRequest, encode
from tidelog.coordinator.raft_node.peer_client import AddressOf
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, ConnectError, ConnectionLostError, WireFormatError
from tidelog.wire.messages.cluster import RaftRequest, RaftSnapshotRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.node_rpc import NodeDialer
from tidelog.wire.transport.rpc import Outcome, RpcConnection

_CONNECT_TIMEOUT_S = 1.0
_SILENCE_S = 1.0
"""A connection without an answer for so long is closed: after a partition TCP waits ever longer
before it tries again, a new connection does not."""
_ASK_S = 0.5
"""Interval of requests for an answer; messages in between go without one, for Raft has its own."""
_RETRY_S = 0.2
_QUEUE_MAX = 4096
"""Messages that wait for one node. The core sends fewer than that ahead of answers."""
_BUFFERED_BYTES_MAX = 4 << 20
_PIECE_BYTES = 256 << 10
_REQUEST_BYTES_MAX = RaftConfig().max_payload_bytes
_PIECE_TIMEOUT_S = 5.0


@final
class RaftTransport:
    """The transport to all other nodes."""

    def __init__(
        self,
        env: Env,
        nursery: trio.Nursery,
        dialer: NodeDialer,
        *,
        name: str,
        cluster_id: str,
        address_of: AddressOf,
    ) -> None:
        """Connect as `name` to nodes at `address_of` their ids; tasks run in `nursery`."""
        self._env = env
        self._nursery = nursery
        self._dialer = dialer
        self._name = name
        self._cluster_id = cluster_id
        self._address_of = address_of
        self._links: dict[int, _Link] = {}

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages, each to its target; returns at once."""
        for message in messages:
            assert not isinstance(message, SnapshotRequest), "a snapshot is sent with its data"
            self._link(message.target.node_id).put(message)

    def send_snapshot(
        self, message: SnapshotRequest, data: bytes, *, on_failed: Callable[[], None]
    ) -> None:
        """Send a snapshot in chunks, after the one that is under way to this node, if any.

        `on_failed` is called if it does not arrive, maybe at once. It is also called if the
        connection is lost after the snapshot has arrived: a process that died may not have stored
        it.
        """
        assert data, "a snapshot is never empty"
        self._link(message.target.node_id).put_snapshot(_Parcel(message, data, on_failed))

    def refused_since(self, node_id: int) -> float | None:
        """Return since when a node's address refuses connections, in seconds of trio's clock.

        `None` if it accepts them, or if that is unknown: nothing was sent to the node, or its
        machine is silent as well.
        """
        link = self._links.get(node_id)
        return None if link is None else link.refused_since

    def _link(self, node_id: int) -> "_Link":
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = _Link(
                self._env,
                self._dialer,
                node_id,
                name=self._name,
                cluster_id=self._cluster_id,
                address_of=self._address_of,
            )
            self._nursery.start_soon(link.run)
        return link


class _Parcel(NamedTuple):
    """A snapshot to be sent."""

    message: SnapshotRequest
    data: bytes
    on_failed: Callable[[], None]


@final
class _Link:
    """The transport to one node.

    Invariant: the queue is empty while there is no connection, except for messages since the last
    attempt to connect.
    """

    def __init__(
        self,
        env: Env,
        dialer: NodeDialer,
        node_id: int,
        *,
        name: str,
        cluster_id: str,
        address_of: AddressOf,
    ) -> None:
        self._env = env
        self._dialer = dialer
        self._node_id = node_id
        self._name = name
        self._cluster_id = cluster_id
        self._address_of = address_of
        self._queue: list[bytes] = []
        self._parcel: _Parcel | None = None
        """The next snapshot to send; a later one replaces it."""
        self._is_sending_snapshots = False
        self._on_lost: Callable[[], None] | None = None
        """Called when the connection is lost over which a snapshot has arrived."""
        self._wake = trio.Event()
        self._asked_at = float("-inf")
        """Time of the last request for an answer on this connection."""
        self._answered_at = 0.0
        """Time of the last answer, or of the first request that is not answered."""
        self._open_count = 0
        self.refused_since: float | None = None
        """See `RaftTransport.refused_since`."""

    def put(self, message: Message) -> None:
        if len(self._queue) < _QUEUE_MAX:
            self._queue.append(encode(message))
            self._wake.set()

    def put_snapshot(self, parcel: _Parcel) -> None:
        self._parcel = parcel
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wait_for_messages()
            address = self._address_of(self._node_id)
            reason = "its address is not known"
            if address is not None:
                reason = await self._connect(*address)
            self._env.probe(
                "raft_link_lost", severity="debug", node_id=self._node_id, reason=reason
            )
            self._queue.clear()
            parcel, self._parcel = self._parcel, None
            if parcel is not None:
                parcel.on_failed()
            on_lost, self._on_lost = self._on_lost, None
            if on_lost is not None:
                on_lost()
            await trio.sleep(_RETRY_S)

    async def _connect(self, host: str, port: int) -> str:
        """Send over one connection until it ends; return why it ended."""
        try:
            with trio.CancelScope(deadline=trio.current_time() + _CONNECT_TIMEOUT_S) as connecting:
                async with self._dialer.open(host, port, name=self._name) as connection:
                    connecting.deadline = float("inf")
                    self.refused_since = None
                    assert connection.hello is not None
                    if connection.hello.node_id != self._node_id:
                        return f"node {connection.hello.node_id} is at its address"
                    await self._serve(connection)
        except ConnectError as error:
            if not error.is_refused:
                self.refused_since = None
            elif self.refused_since is None:
                self.refused_since = trio.current_time()
            return str(error)
        except (ConnectionLostError, WireFormatError, BrokerError) as error:
            return str(error)
        self.refused_since = None
        return "no answer" if connecting.cancelled_caught else "no answer any more"

    async def _serve(self, connection: RpcConnection) -> None:
        """Send until the connection is lost or silent."""
        self._open_count = 0
        self._asked_at = float("-inf")
        async with trio.open_nursery() as nursery:
            while not connection.is_lost and not self._is_silent():
                # Without an open request a missing answer would go unnoticed.
                with trio.move_on_after(_SILENCE_S if self._open_count else float("inf")):
                    await self._wait_for_messages()
                queue, self._queue = self._queue, []
                for messages in in_requests(queue):
                    self._submit(connection, messages)
                if self._parcel is not None and not self._is_sending_snapshots:
                    self._is_sending_snapshots = True
                    nursery.start_soon(self._send_snapshots, connection)
                with trio.move_on_after(_SILENCE_S):
                    await connection.wait_sent(_BUFFERED_BYTES_MAX)
            nursery.cancel_scope.cancel()

    def _submit(self, connection: RpcConnection, queue: list[bytes]) -> None:
        now = trio.current_time()
        is_new = connection.version_of(api.RAFT) > 1
        if is_new and now < self._asked_at + _ASK_S:
            request = RaftRequest(self._cluster_id, queue, is_answered=False)
            connection.submit(api.RAFT, request, None)
            return
        self._asked_at = now
        if self._open_count == 0:
            self._answered_at = now
        self._open_count += 1
        connection.submit(api.RAFT, RaftRequest(self._cluster_id, queue), self._answered)

    def _answered(self, outcome: Outcome) -> None:
        self._open_count -= 1
        self._answered_at = trio.current_time()
        if isinstance(outcome, BrokerError):
            self._env.probe(
                "raft_refused", severity="warning", node_id=self._node_id, reason=str(outcome)
            )

    def _is_silent(self) -> bool:
        return bool(self._open_count) and trio.current_time() - self._answered_at >= _SILENCE_S

    async def _send_snapshots(self, connection: RpcConnection) -> None:
        """Send snapshots while any waits."""
        try:
            while (parcel := self._parcel) is not None:
                self._parcel = None
                await self._send_snapshot(connection, parcel)
        finally:
            self._is_sending_snapshots = False

    async def _send_snapshot(self, connection: RpcConnection, parcel: _Parcel) -> None:
        has_arrived = False
        try:
            await self._send_pieces(connection, parcel)
            has_arrived = True
            self._on_lost = parcel.on_failed
        except (ConnectionLostError, BrokerError, WireFormatError) as error:
            self._env.probe(
                "snapshot_not_sent", severity="warning", node_id=self._node_id, reason=str(error)
            )
        finally:
            if not has_arrived:
                parcel.on_failed()

    async def _send_pieces(self, connection: RpcConnection, parcel: _Parcel) -> None:
        encoded, data = encode(parcel.message), parcel.data
        for position in range(0, len(data), _PIECE_BYTES):
            with trio.move_on_after(_PIECE_TIMEOUT_S) as waiting:
                await connection.call(
                    api.RAFT_SNAPSHOT,
                    RaftSnapshotRequest(self._cluster_id, encoded, position, len(data)),
                    take=lambda reply, _: reply,
                    attachment=[memoryview(data)[position : position + _PIECE_BYTES]],
                )
            if waiting.cancelled_caught:
                connection.close()
                raise ConnectionLostError(f"no answer for {_PIECE_TIMEOUT_S} s")

    async def _wait_for_messages(self) -> None:
        while not self._queue and (self._parcel is None or self._is_sending_snapshots):
            self._wake = trio.Event()
            await self._wake.wait()


def in_requests(
    messages: Sequence[bytes], max_bytes: int = _REQUEST_BYTES_MAX
) -> Iterator[list[bytes]]:
    """Yield messages in order, in groups that fit into a frame that every node accepts.

    One that is larger than `max_bytes`, for an entry is as large, goes alone.
    """
    part: list[bytes] = []
    size_bytes = 0
    for message in messages:
        if part and size_bytes + len(message) > max_bytes:
            yield part
            part, size_bytes = [], 0
        part.append(message)
        size_bytes += len(message)
    if part:
        yield part
