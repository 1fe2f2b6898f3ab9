"""Strangers and a hostile node against three brokers, and an honest client beside them."""

import math
import os
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, final

import trio

import tidelog
from tests.fuzz.inputs import HELLO, Inputs, Targets
from tests.system.integration.nodes import Nodes
from tidelog import Producer
from tidelog.cluster_secret import cluster_secret_path, read_cluster_secret
from tidelog.coordinator.raft.membership import Identity
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import CorruptRecordError, TidelogError, from_wire
from tidelog.wire.messages.cluster import PeerStatusRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import decode_error
from tidelog.wire.protocol.frame import Frame, FrameDecoder, FrameKind
from tidelog.wire.protocol.node_proof import NONCE_BYTES, NodeProver
from tidelog.wire.transport.node_rpc import NodeDialer

_HOSTILE: Final = Identity(9, b"hostile")
_HONEST: Final = "honest"
_VICTIM: Final = "victim"
_STRANGERS: Final = 2
_PIECES: Final = 8
"""Sends on one connection, at most."""
_FRAMES: Final = 16
"""Requests of one send."""
_CONNECTION_S: Final = 1.0
"""Seconds after which a hostile peer abandons a connection: requests of it may wait for long."""
_SEND_S: Final = 0.01
"""Seconds between two sends of the honest client."""
_COME_BACK_S: Final = 250.0
_GROWTH_BYTES_MAX: Final = 48 << 20
"""Bytes by which the memory of a broker may grow in a block, after its start."""
_LINES_MAX: Final = 500
"""Lines of log of one broker in a block: refusals are counted, and not logged one by one."""
_SAMPLES_MIN: Final = 1000
"""Sends that a 99th percentile needs."""
_UNEXPECTED: Final = ("unexpectedly", "Traceback")


class Pace(NamedTuple):
    """Durations and rates of an attack."""

    seconds: float
    """Seconds of all attacks together."""
    block_s: float
    """Seconds of attack between two restarts."""
    paced_per_s: float
    """Inputs per second at the start of each block; later there is no limit."""
    quiet_s: float = 5.0
    """Seconds before each block in which the honest client is alone."""

    @property
    def paced_s(self) -> float:
        """Seconds at the start of each block in which inputs have a rate."""
        return min(self.block_s / 4, 10.0)


@final
@dataclass
class Course:
    """What happened so far."""

    inputs: int = 0
    """Inputs that were answered, or ended their connection."""
    connections: int = 0
    log_lines: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])
    """Replies to hostile requests, by error."""
    attack_s: float = 0.0
    acknowledged: list[bytes] = field(default_factory=list[bytes])
    quiet_s: list[float] = field(default_factory=list[float])
    """Latencies of the honest client while it is alone, in seconds."""
    paced_s: list[float] = field(default_factory=list[float])
    """The same under attack at a limited rate."""
    flooded_s: list[float] = field(default_factory=list[float])
    """The same under attack without a limit."""
    problems: list[str] = field(default_factory=list[str])

    def objections(self) -> list[str]:
        """Return whether paced attacks have slowed the honest client, if that was measured."""
        quiet_s, paced_s = percentile(self.quiet_s), percentile(self.paced_s)
        is_measured = min(len(self.quiet_s), len(self.paced_s)) >= _SAMPLES_MIN
        if is_measured and paced_s > 2 * quiet_s:
            return [f"the honest client is slow: p99 {paced_s:.4f} s, quiet {quiet_s:.4f} s"]
        return []

    def summary(self) -> str:
        """Return one line about rates and latencies."""
        rate = self.inputs / self.attack_s if self.attack_s else 0.0
        quiet, paced, flooded = (
            f"{percentile(each) * 1000:.0f} ms"
            for each in (self.quiet_s, self.paced_s, self.flooded_s)
        )
        return (
            f"{self.inputs:,} inputs on {self.connections:,} connections, {rate:,.0f} a second;"
            f" {len(self.acknowledged):,} honest records; p99 {quiet} quiet, {paced} paced,"
            f" {flooded} flooded; {self.log_lines:,} lines of log"
        )


async def attack(directory: Path, seed: int, pace: Pace) -> Course:
    """Attack a cluster for a time, and return what happened."""
    course, random = Course(), Random(seed)
    async with trio.open_nursery() as nursery:
        nodes = Nodes(directory, nursery)
        await nodes.start(*nodes.ids)
        async with tidelog.connect(nodes.addresses) as client:
            await client.admin.create_topic(_HONEST, 3, replication_factor=3)
            await client.admin.create_queue(_VICTIM)
        for number in range(max(1, round(pace.seconds / pace.block_s))):
            await _block(nodes, course, pace, random=random)
            _note_logs(nodes, course)
            sys.stdout.write(f"block {number}: {course.summary()}; {_resident(nodes) >> 20} MiB\n")
            sys.stdout.flush()
            for node_id in nodes.ids:
                await nodes.kill_and_wait(node_id)
            with trio.move_on_after(_COME_BACK_S) as starting:
                await nodes.start(*nodes.ids)
                await _check_records(nodes, course)
            if starting.cancelled_caught:
                course.problems.append(f"the cluster did not come back after block {number}")
                break
        nursery.cancel_scope.cancel()
    return course


async def _block(nodes: Nodes, course: Course, pace: Pace, *, random: Random) -> None:
    """Attack running brokers at a limited rate, and then without a limit."""
    targets = await _learn(nodes)
    phases = (
        (course.paced_s, pace.paced_s, pace.paced_per_s),
        (course.flooded_s, pace.block_s - pace.paced_s, math.inf),
    )
    async with (
        tidelog.connect(nodes.addresses, request_timeout=10) as client,
        client.producer() as producer,
    ):
        await _work(producer, course, course.quiet_s, seconds=pace.quiet_s)
        for latencies, seconds, per_s in phases:
            resident = _resident(nodes)
            turns = _Turns(per_s)
            async with trio.open_nursery() as nursery:
                for number in range(_STRANGERS + 1):
                    peer = _Peer(
                        nodes,
                        course,
                        Inputs(Random(random.random()), targets),
                        turns=turns,
                        secret=_secret() if number == _STRANGERS else None,
                    )
                    nursery.start_soon(peer.run)
                await _work(producer, course, latencies, seconds=seconds)
                nursery.cancel_scope.cancel()
            course.attack_s += seconds
            growth = _resident(nodes) - resident
            if growth > _GROWTH_BYTES_MAX:
                course.problems.append(f"memory grew by {growth:,} bytes in {seconds:g} s")


def _secret() -> bytes:
    return read_cluster_secret(cluster_secret_path(""), real_env().random)


async def _learn(nodes: Nodes) -> Targets:
    """Return the ids of the cluster."""
    env = real_env()
    dialer = NodeDialer(
        env.network, env.random.randbytes, node_id=_HOSTILE.node_id, secret=_secret()
    )
    identities: list[Identity] = []
    cluster_id = ""
    for node_id in nodes.ids:
        host, port = _reached_at(nodes, node_id)
        async with dialer.open(host, port, name="hostile") as connection:
            status = await connection.ask(api.PEER_STATUS, PeerStatusRequest(_HOSTILE.node_id))
        identities.append(Identity(status.peer.node_id, status.peer.disk_id))
        cluster_id = status.cluster_id or ""
    async with tidelog.connect(nodes.addresses) as client:
        honest, victim = await client.admin.describe_topics([_HONEST, _VICTIM])
        (queue,) = await client.admin.describe_queues([_VICTIM])
    return Targets(
        _HOSTILE, identities, cluster_id, (victim.topic_id, queue.queue_id), (honest.topic_id,)
    )


def _reached_at(nodes: Nodes, node_id: int) -> tuple[str, int]:
    host, _, port = nodes.address(node_id).rpartition(":")
    return host, int(port)


@final
class _Turns:
    """The turns of all peers together."""

    def __init__(self, per_s: float) -> None:
        """Allow so many inputs per second."""
        self._interval_s = 1 / per_s
        self._next_at = trio.current_time()

    async def take(self, count: int) -> None:
        """Wait until so many inputs may be sent."""
        due, self._next_at = self._next_at, self._next_at + count * self._interval_s
        await trio.sleep_until(due)


@final
class _Peer:
    """A stranger, or with the `secret` of the cluster a hostile node."""

    def __init__(
        self, nodes: Nodes, course: Course, inputs: Inputs, *, turns: _Turns, secret: bytes | None
    ) -> None:
        self._nodes = nodes
        self._course = course
        self._inputs = inputs
        self._turns = turns
        self._secret = secret
        self._random = Random(course.inputs)

    async def run(self) -> None:
        """Attack one broker after the other, until cancelled."""
        while True:
            address = _reached_at(self._nodes, self._random.choice(self._nodes.ids))
            try:
                with trio.move_on_after(_CONNECTION_S):
                    async with await trio.open_tcp_stream(*address) as stream:
                        self._course.connections += 1
                        await self._talk(stream)
            except* (OSError, trio.BrokenResourceError):
                await trio.lowlevel.checkpoint()

    async def _talk(self, stream: trio.SocketStream) -> None:
        replies = _Replies(stream, self._course)
        await stream.send_all(HELLO)
        await replies.next()
        if self._secret is not None:
            await self._prove(stream, replies, self._secret)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replies.count_all)
            for _ in range(self._random.randint(1, _PIECES)):
                await self._turns.take(_FRAMES)
                frames = [self._inputs.frame() for _ in range(_FRAMES)]
                await stream.send_all(b"".join(frames))
            await self._turns.take(1)
            await stream.send_all(self._inputs.last_bytes())
            self._course.inputs += 1
            await stream.send_eof()

    async def _prove(self, stream: trio.SocketStream, replies: "_Replies", secret: bytes) -> None:
        prover = NodeProver(secret, _HOSTILE.node_id, os.urandom(NONCE_BYTES))
        request = api.PROVE_NODE.encode_request(prover.ask(), version=1, correlation_id=1)
        await stream.send_all(request)
        answer = await replies.next()
        proof = prover.prove(api.PROVE_NODE.decode_reply(answer.header))
        request = api.PROVE_NODE.encode_request(proof, version=1, correlation_id=2)
        await stream.send_all(request)
        accepted = await replies.next()
        assert accepted.kind is FrameKind.REPLY, "the hostile node knows the secret"


@final
class _Replies:
    """The replies on one connection."""

    def __init__(self, stream: trio.SocketStream, course: Course) -> None:
        self._stream = stream
        self._course = course
        self._decoder = FrameDecoder(max_frame_bytes=64 << 20)

    async def next(self) -> Frame:
        """Return the next reply.

        Raises:
            trio.BrokenResourceError: The broker has closed the connection.
        """
        while (frame := self._decoder.next_frame()) is None:
            data = await self._stream.receive_some(len(self._decoder.get_buffer()))
            if not data:
                raise trio.BrokenResourceError("the broker has closed the connection")
            self._decoder.get_buffer()[: len(data)] = data
            self._decoder.bytes_received(len(data))
        return frame

    async def count_all(self) -> None:
        """Count replies by their error, until the broker closes the connection."""
        course = self._course
        while True:
            frame = await self.next()
            course.inputs += 1
            if frame.kind is FrameKind.ERROR:
                course.answers[str(from_wire(decode_error(frame.header)).code.name)] += 1
            else:
                course.answers["good"] += 1


async def _work(
    producer: Producer, course: Course, latencies_s: list[float], *, seconds: float
) -> None:
    """Produce one record after the other, as an honest client."""
    ends_at = trio.current_time() + seconds
    while trio.current_time() < ends_at:
        value = b"%d" % len(course.acknowledged)
        began_at = trio.current_time()
        try:
            await producer.send(_HONEST, value)
        except TidelogError as error:
            course.problems.append(f"an honest send failed: {error}")
            continue
        latencies_s.append(trio.current_time() - began_at)
        course.acknowledged.append(value)
        await trio.sleep(_SEND_S)


async def _check_records(nodes: Nodes, course: Course) -> None:
    """Read everything; strangers may have added records, or batches that no reader can decode."""
    async with (
        tidelog.connect(nodes.addresses) as client,
        client.consumer(_HONEST, auto_offset_reset="earliest") as consumer,
    ):
        found = set[bytes | None]()
        async for batch in consumer.batches(await consumer.end_offsets()):
            with suppress(CorruptRecordError):
                found.update(record.value for record in batch)
    missing = set(course.acknowledged) - found
    if missing:
        course.problems.append(f"{len(missing)} acknowledged records are missing")


def _note_logs(nodes: Nodes, course: Course) -> None:
    for node_id in nodes.ids:
        process = nodes.process(node_id)
        if process.has_ended:
            course.problems.append(f"broker {node_id} ended: {process.other_lines[-3:]}")
        line_count = len(process.other_lines) + len(process.events)
        course.log_lines += line_count
        if line_count > _LINES_MAX:
            course.problems.append(f"broker {node_id} logged {line_count} lines in a block")
        for line in (*process.other_lines, *map(str, process.events)):
            if any(word in line for word in _UNEXPECTED):
                course.problems.append(f"broker {node_id} logged: {line[:2000]}")


def _resident(nodes: Nodes) -> int:
    """Return the resident bytes of the largest broker."""
    pages = [
        int(Path(f"/proc/{nodes.process(node_id).pid}/statm").read_text().split()[1])
        for node_id in nodes.ids
    ]
    return max(pages) * os.sysconf("SC_PAGE_SIZE")


def percentile(latencies_s: list[float]) -> float:
    """Return the 99th percentile, 0 without any latencies."""
    ordered = sorted(latencies_s)
    return ordered[int(len(ordered) * 0.99)] if ordered else 0.0
