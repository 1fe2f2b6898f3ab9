"""Strangers and a hostile node against three brokers, and an honest client beside them."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, final

import trio

import tidelog
from tests.fuzz.inputs import HELLO, Inputs
from tests.system.integration.nodes import Nodes
from tests.wire.group_samples import TOPIC_ID
from tidelog.cluster_secret import cluster_secret_path, read_cluster_secret
from tidelog.coordinator.raft.membership import Identity
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.cluster import PeerStatusRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind
from tidelog.wire.protocol.node_proof import NONCE_BYTES, NodeProver
from tidelog.wire.transport.node_rpc import NodeDialer

HOSTILE_ID: Final = 9
TOPIC: Final = "honest"
_STRANGERS: Final = 2
_FRAMES_AT_ONCE: Final = 20
_ANSWER_S: Final = 0.2
_GROWTH_BYTES_MAX: Final = 100 << 20
_SAMPLE_CLUSTER: Final = "5f3a9c1e7b2d4f60a8c1e3d5"
_MALICE: Final = ("unexpectedly", "Traceback")


@final
@dataclass
class Course:
    """What happened so far."""

    inputs: int = 0
    acknowledged: list[bytes] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


async def attack(directory: Path, seed: int, seconds: float, block_s: float) -> list[str]:
    """Attack a cluster for a time; return what went wrong."""
    course, random = Course(), Random(seed)
    async with trio.open_nursery() as nursery:
        nodes = Nodes(directory, nursery)
        await nodes.start(*nodes.ids)
        async with tidelog.connect(nodes.addresses) as client:
            await client.admin.create_topic(TOPIC, 3, replication_factor=3)
        await _work(nodes, course, 5.0)
        quiet_s = _percentile(course.latencies_s)
        rss_before = _resident(nodes)
        for number in range(max(1, round(seconds / block_s))):
            course.latencies_s.clear()
            await _block(nodes, course, random, block_s)
            sys.stdout.write(
                f"block {number}: {course.inputs:,} inputs, {len(course.acknowledged):,}"
                f" acknowledged, p99 {_percentile(course.latencies_s) * 1000:.0f} ms (quiet"
                f" {quiet_s * 1000:.0f} ms), {_resident(nodes) >> 20} MiB\n"
            )
            sys.stdout.flush()
            if _resident(nodes) - rss_before > _GROWTH_BYTES_MAX:
                course.problems.append(f"memory grew from {rss_before} to {_resident(nodes)}")
            _note_logs(nodes, course)
            for node_id in nodes.ids:
                await nodes.kill_and_wait(node_id)
            with trio.move_on_after(60) as starting:
                await nodes.start(*nodes.ids)
                await _check_records(nodes, course)
            if starting.cancelled_caught:
                course.problems.append(f"the cluster did not come back after block {number}")
                break
        nursery.cancel_scope.cancel()
    return course.problems


async def _block(nodes: Nodes, course: Course, random: Random, seconds: float) -> None:
    known, identities = await _learn(nodes)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_work, nodes, course, seconds)
            for number in range(_STRANGERS + 1):
                inputs = Inputs(Random(random.random()), known=known, nodes=[_HOSTILE, *identities])
                is_node = number == _STRANGERS
                nursery.start_soon(partial(_be_hostile, nodes, course, inputs, is_node=is_node))


_HOSTILE: Final = Identity(HOSTILE_ID, b"hostile")


def _secret() -> bytes:
    return read_cluster_secret(cluster_secret_path(""), real_env().random)


async def _learn(nodes: Nodes) -> tuple[dict[object, object], list[Identity]]:
    """Return the ids of the cluster in place of those of samples, and its nodes."""
    env = real_env()
    dialer = NodeDialer(env.network, env.random.randbytes, node_id=HOSTILE_ID, secret=_secret())
    identities: list[Identity] = []
    cluster_id = ""
    for node_id in nodes.ids:
        host, _, port = nodes.address(node_id).rpartition(":")
        async with dialer.open(host, int(port), name="hostile") as connection:
            status = await connection.ask(api.PEER_STATUS, PeerStatusRequest(HOSTILE_ID))
        identities.append(Identity(status.peer.node_id, status.peer.disk_id))
        cluster_id = status.cluster_id or ""
    async with tidelog.connect(nodes.addresses) as client:
        (topic,) = await client.admin.describe_topics([TOPIC])
    return {_SAMPLE_CLUSTER: cluster_id, TOPIC_ID: topic.topic_id}, identities


async def _be_hostile(nodes: Nodes, course: Course, inputs: Inputs, *, is_node: bool) -> None:
    random = Random(course.inputs)
    while True:
        host, _, port = nodes.address(random.choice(nodes.ids)).rpartition(":")
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            stream = await trio.open_tcp_stream(host, int(port))
            async with stream:
                await _introduce(stream, is_node=is_node)
                for _ in range(_FRAMES_AT_ONCE):
                    await stream.send_all(inputs.frame())
                    course.inputs += 1
                    with trio.move_on_after(_ANSWER_S):
                        if not await stream.receive_some(65536):
                            break
        await trio.lowlevel.checkpoint()


async def _introduce(stream: trio.SocketStream, *, is_node: bool) -> None:
    await stream.send_all(HELLO)
    await stream.receive_some(65536)
    if not is_node:
        return
    prover = NodeProver(_secret(), HOSTILE_ID, os.urandom(NONCE_BYTES))
    asked = api.PROVE_NODE.encode_request(prover.ask(), version=1, correlation_id=1)
    await stream.send_all(asked)
    decoder = FrameDecoder(max_frame_bytes=65536)
    while (frame := decoder.next_frame()) is None:
        data = await stream.receive_some(4096)
        if not data:
            return
        decoder.get_buffer()[: len(data)] = data
        decoder.bytes_received(len(data))
    assert frame.kind is FrameKind.REPLY
    proof = prover.prove(api.PROVE_NODE.decode_reply(frame.header))
    await stream.send_all(api.PROVE_NODE.encode_request(proof, version=1, correlation_id=2))
    await stream.receive_some(4096)


async def _work(nodes: Nodes, course: Course, seconds: float) -> None:
    """Produce one record after the other, as an honest client."""
    with trio.move_on_after(seconds):
        async with (
            tidelog.connect(nodes.addresses, request_timeout=10) as client,
            client.producer() as producer,
        ):
            while True:
                value = b"%d" % len(course.acknowledged)
                began_at = trio.current_time()
                try:
                    await producer.send(TOPIC, value)
                except TidelogError as error:
                    course.problems.append(f"an honest send failed: {error}")
                    continue
                course.latencies_s.append(trio.current_time() - began_at)
                course.acknowledged.append(value)
                await trio.sleep(0.01)


async def _check_records(nodes: Nodes, course: Course) -> None:
    """Read everything; records of a cancelled send may be there as well."""
    async with (
        tidelog.connect(nodes.addresses) as client,
        client.consumer(TOPIC, auto_offset_reset="earliest") as consumer,
    ):
        found = {
            record.value
            async for batch in consumer.batches(await consumer.end_offsets())
            for record in batch
        }
    missing = set(course.acknowledged) - found
    if missing:
        course.problems.append(f"{len(missing)} acknowledged records are missing")


def _note_logs(nodes: Nodes, course: Course) -> None:
    for node_id in nodes.ids:
        process = nodes.process(node_id)
        if process.has_ended:
            course.problems.append(f"broker {node_id} ended: {process.other_lines[-3:]}")
        for line in (*process.other_lines, *map(str, process.events)):
            if any(word in line for word in _MALICE):
                course.problems.append(f"broker {node_id} logged: {line[:2000]}")


def _resident(nodes: Nodes) -> int:
    """Return the resident bytes of the largest broker."""
    pages = [
        int(Path(f"/proc/{nodes.process(node_id).pid}/statm").read_text().split()[1])
        for node_id in nodes.ids
    ]
    return max(pages) * os.sysconf("SC_PAGE_SIZE")


def _percentile(latencies_s: list[float]) -> float:
    ordered = sorted(latencies_s)
    return ordered[int(len(ordered) * 0.99)] if ordered else 0.0
