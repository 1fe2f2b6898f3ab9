"""A byzantine peer: a stranger that replays and mutates recorded frames.

It records what nodes and clients send, and sends it again on connections of its own: hellos,
proofs, requests of nodes, and all of these with changes under a valid checksum. It does not know
the secret of the cluster. Requests that any client may send are not among them, since nothing
distinguishes a stranger from a client; requests of clients come with a wrong checksum only.

Each of its visits takes no time and disturbs no random stream (`World.call_aside`). So the life of
the cluster goes on event for event as without it, unless a node does something that it must not.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple, final

import msgspec
import trio

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.cluster_history import ClusterHistory, NodeChecker
from tests.simulation.cluster.machines import PORT, Machine, Machines
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Process
from tests.simulation.machine.tcp import SimulatedStream
from tests.simulation.machine.world import World
from tidelog.wire.errors import ConnectionLostError, WireFormatError
from tidelog.wire.messages.handshake import ProveNodeRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import PREFIX_SIZE, FrameDecoder, FrameKind, encode_frame

HOST: Final = "stranger"
_OF_NODES: Final = {
    int(each.key): each
    for each in (
        *(api.PEER_STATUS, api.RAFT, api.RAFT_SNAPSHOT, api.FORWARD_COMMAND, api.JOIN),
        *(api.BROKER_HEARTBEAT, api.REPLICA_FETCH, api.REPLICA_DURABLE, api.REPLICA_READ),
        *(api.LIST_OFFSETS, api.PROVE_NODE),
    )
}
_PREFIX: Final = struct.Struct("<IIBBHHHI")
_FRAME_BYTES_MAX: Final = 8 << 10
"""Bytes that fit into the first buffer of a connection, so that no visit waits for memory."""
_OPENING: Final = 3
"""Frames at the start of a connection of nodes: a hello and both requests of the proof."""
_RECENT: Final = 20
_CONVERSATIONS: Final = 40
_VISITS: Final = 3
_NUMBERS: Final = (0, 1, 2, 3, 5, 9, -1, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, 1 << 63)


class StrangersAreRefused(NodeChecker):
    """No node answers a request of nodes by a stranger, or takes a proof of another connection."""

    def answered_stranger(self, node_id: int, name: str) -> None:
        """See `NodeChecker`."""
        self.fail(f"node {node_id} serves {name} to a stranger")


@final
class Conversation:
    """What the client of one connection has sent: its first frames, and the latest."""

    def __init__(self) -> None:
        """Start without frames."""
        self.opening: list[bytes] = []
        self.recent: deque[bytes] = deque(maxlen=_RECENT)
        self._unread = b""

    def sent(self, data: bytes) -> None:
        """Add bytes."""
        self._unread += data
        while len(self._unread) >= PREFIX_SIZE:
            end = PREFIX_SIZE + _PREFIX.unpack_from(self._unread)[0]
            if len(self._unread) < end:
                return
            frame, self._unread = self._unread[:end], self._unread[end:]
            if len(self.opening) < _OPENING:
                self.opening.append(frame)
            elif len(frame) <= _FRAME_BYTES_MAX:
                self.recent.append(frame)


@final
class ByzantinePeer:
    """The stranger and its recordings."""

    def __init__(
        self,
        world: World,
        machines: Machines,
        cluster_history: ClusterHistory,
        *,
        sometimes: Sometimes,
    ) -> None:
        """Record from now on."""
        self._world = world
        self._machines = machines
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._conversations: dict[int, Conversation] = {}
        self._of_clients: deque[bytes] = deque(maxlen=_RECENT)
        self._names = set(machines.names)
        self._node: Node | None = None
        world.network.instant_hosts.add(HOST)
        world.network.on_connected = self._connected

    def schedule(self, fault: Fault) -> None:
        """Let the stranger visit brokers at the time of a fault."""
        self._world.call_aside(fault.at, lambda: self._strike(fault))

    def _connected(self, source: str, target: str, number: int) -> Callable[[bytes], None]:
        if source == HOST or target not in self._names:
            return lambda _: None
        if source not in self._names:
            return self._sent_by_client
        conversation = self._conversations[number] = Conversation()
        if len(self._conversations) > _CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        return conversation.sent

    def _sent_by_client(self, data: bytes) -> None:
        if len(data) <= _FRAME_BYTES_MAX:
            self._of_clients.append(data)

    def _strike(self, fault: Fault) -> None:
        targets = [machine for machine in self._machines.all if _is_awake(machine)]
        conversations = [each for each in self._conversations.values() if each.recent]
        if not targets or not conversations:
            return
        if self._node is None:
            self._node = self._world.add_node(HOST)
        visits = _Visits(
            targets,
            conversations,
            [*self._of_clients],
            random=Random(f"{self._world.streams.seed} {fault.at} {fault.dice}"),
            cluster_history=self._cluster_history,
            sometimes=self._sometimes,
        )
        process = self._node.start(visits.run)
        self._world.clock.call_at_moment_end(self._check_ended(process))

    def _check_ended(self, process: Process) -> Callable[[], None]:
        def check() -> None:
            if not process.ended.is_set():
                raise ViolationError("StrangersAreRefused", "a node keeps a stranger waiting")

        return check


def _is_awake(machine: Machine) -> bool:
    process = machine.node.process
    return process is not None and not process.is_held


@final
class _Visits:
    """Some connections of the stranger, at one moment."""

    def __init__(
        self,
        targets: Sequence[Machine],
        conversations: Sequence[Conversation],
        of_clients: Sequence[bytes],
        *,
        random: Random,
        cluster_history: ClusterHistory,
        sometimes: Sometimes,
    ) -> None:
        self._targets = targets
        self._conversations = conversations
        self._of_clients = of_clients
        self._random = random
        self._cluster_history = cluster_history
        self._sometimes = sometimes

    async def run(self, process: Process) -> None:
        for _ in range(_VISITS):
            machine = self._random.choice(self._targets)
            try:
                stream = await process.env.network.connect(machine.node.name, PORT)
            except OSError:
                continue  # It starts, and does not listen yet.
            assert isinstance(stream, SimulatedStream)
            talk = _Talk(stream)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk.read)
                with suppress(ConnectionLostError):
                    await self._visit(talk)
                await talk.ended.wait()
            stream.close()
            self._judge(machine.node_id, talk)

    async def _visit(self, talk: "_Talk") -> None:
        conversation = self._random.choice(self._conversations)
        hello, *proofs = conversation.opening
        await talk.send(hello)
        if self._random.random() < 0.3:
            await self._echo(talk)
        else:
            for each in proofs:
                await talk.send(each)
        for frame in self._frames(conversation):
            await talk.send(frame)
        if self._of_clients and self._random.random() < 0.5:
            await talk.send(_flipped(self._random.choice(self._of_clients), self._random))
        talk.finish()

    async def _echo(self, talk: "_Talk") -> None:
        """Show a broker its own proof."""
        asked = ProveNodeRequest(1, self._random.randbytes(32))
        await talk.send(api.PROVE_NODE.encode_request(asked, version=1, correlation_id=1))
        await talk.wait_replies(2)
        answer = api.PROVE_NODE.decode_reply(memoryview(talk.replies[1].header))
        shown = msgspec.structs.replace(asked, proof=answer.proof)
        await talk.send(api.PROVE_NODE.encode_request(shown, version=1, correlation_id=2))

    def _frames(self, conversation: Conversation) -> Iterator[bytes]:
        """Yield frames of nodes, some with changes; every node must refuse them."""
        for frame in conversation.recent:
            changed = self._random.choice((_same, self._flipped_and_sealed, self._replaced))(frame)
            if _is_of_nodes(changed):
                yield changed
        if self._random.random() < 0.3:
            frame = conversation.recent[-1]
            yield frame[: self._random.randrange(len(frame))]

    def _flipped_and_sealed(self, frame: bytes) -> bytes:
        """Return a frame with another bit in its message, and a valid checksum."""
        header = bytearray(_header_of(frame)[1])
        header[self._random.randrange(len(header))] ^= 1 << self._random.randrange(8)
        return _with_header(frame, bytes(header))

    def _replaced(self, frame: bytes) -> bytes:
        """Return a frame with another sender, term, cluster or other value."""
        plain = msgspec.msgpack.decode(_header_of(frame)[1])
        return _with_header(frame, msgspec.msgpack.encode(_changed(plain, self._random)))

    def _judge(self, node_id: int, talk: "_Talk") -> None:
        asks = talk.ask_count
        for reply in talk.replies:
            if reply.kind is FrameKind.ERROR or reply.key not in _OF_NODES:
                continue
            if reply.key == api.PROVE_NODE.key and asks:
                asks -= 1
            else:
                name = _OF_NODES[reply.key].key.name
                self._cluster_history.answered_stranger(node_id, name)
        if talk.proof_count:
            self._sometimes.reached("proof replayed")


class _Reply(NamedTuple):
    key: int
    kind: FrameKind
    header: bytes


@final
class _Talk:
    """What was sent on one connection, and the replies."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.replies: list[_Reply] = []
        self.ask_count = 0
        """First requests of a proof, which every broker answers."""
        self.proof_count = 0
        self.ended = trio.Event()
        """Set when the broker has closed the connection."""
        self._stream = stream
        self._changed = trio.Event()

    async def send(self, data: bytes) -> None:
        """Send bytes, which may be a frame."""
        proof = _proof_in(data)
        self.ask_count += proof == b""
        self.proof_count += bool(proof)
        rest = memoryview(data)
        while rest := rest[self._stream.send_nowait([rest]) :]:
            await self._stream.wait_writable()

    def finish(self) -> None:
        """Send nothing more."""
        self._stream.send_end()

    async def wait_replies(self, count: int) -> None:
        """Wait until so many replies have arrived.

        Raises:
            ConnectionLostError: The broker has closed the connection.
        """
        while len(self.replies) < count:
            if self.ended.is_set():
                raise ConnectionLostError("a reply is missing")
            await self._changed.wait()

    async def read(self) -> None:
        """Read replies until the broker closes the connection."""
        decoder = FrameDecoder(max_frame_bytes=16 << 20)
        with suppress(ConnectionLostError):
            while True:
                await self._stream.wait_readable()
                count = self._stream.receive_nowait(decoder.get_buffer())
                if not count:
                    break
                decoder.bytes_received(count)
                while (frame := decoder.next_frame()) is not None:
                    self.replies.append(_Reply(frame.api_key, frame.kind, bytes(frame.header)))
                self._tell()
        self.ended.set()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _header_of(frame: bytes) -> tuple[int, bytes]:
    """Return the API key and the header of a frame."""
    _, _, _, _, key, _, _, header_length = _PREFIX.unpack_from(frame)
    return key, frame[PREFIX_SIZE : PREFIX_SIZE + header_length]


def _with_header(frame: bytes, header: bytes) -> bytes:
    """Return a frame with another message."""
    _, number, _, _, key, version, _, header_length = _PREFIX.unpack_from(frame)
    attachment = frame[PREFIX_SIZE + header_length :]
    prefix_and_header = encode_frame(
        FrameKind.REQUEST,
        api_key=key,
        api_version=version,
        correlation_id=number,
        header=header,
        attachment_length=len(attachment),
    )
    return prefix_and_header + attachment


def _is_of_nodes(frame: bytes) -> bool:
    """Return whether no client sends such a request."""
    key, header = _header_of(frame)
    if key != api.LIST_OFFSETS.key:
        return key in _OF_NODES
    try:
        return api.LIST_OFFSETS.decode_request(memoryview(header)).cluster_id is not None
    except WireFormatError:
        return True


def _proof_in(frame: bytes) -> bytes | None:
    """Return the proof in a frame, `None` if it is no request of PROVE_NODE."""
    if len(frame) < PREFIX_SIZE:
        return None
    key, header = _header_of(frame)
    if key != api.PROVE_NODE.key:
        return None
    try:
        return api.PROVE_NODE.decode_request(memoryview(header)).proof
    except WireFormatError:
        return None


def _same(frame: bytes) -> bytes:
    return frame


def _flipped(data: bytes, random: Random) -> bytes:
    """Return data with another bit somewhere in the first prefix, which its checksum covers."""
    changed = bytearray(data)
    changed[random.randrange(min(len(data), PREFIX_SIZE))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _changed(value: Any, random: Random) -> Any:  # noqa: ANN401  (any value of msgpack)
    """Return a value with one of its parts replaced, also inside of bytes that are msgpack."""
    match value:
        case [_, *_]:
            place = random.randrange(len(value))
            return [*value[:place], _changed(value[place], random), *value[place + 1 :]]
        case bytes():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                return msgspec.msgpack.encode(_changed(msgspec.msgpack.decode(value), random))
            return random.randbytes(len(value))
        case bool():
            return not value
        case int():
            return random.choice(_NUMBERS)
        case _:
            return random.choice(("another", None, 0, b"", []))
