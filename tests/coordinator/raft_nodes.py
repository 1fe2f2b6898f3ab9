"""Nodes of Raft on simulated machines: real storage, real links, and a list as state machine."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast, final

import msgspec
import trio

from tests.cluster_secret import SECRET, dialer_of
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import World
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.handlers.handshake import NodeIdentityHandler
from tidelog.broker.handlers.raft import RaftHandler
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.refusals import Refusals
from tidelog.broker.quotas.broker_quotas import BrokerQuotas
from tidelog.broker.requests.memory_budget import MemoryBudget
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import SnapshotMeta
from tidelog.coordinator.raft.ready import HardState, StoredState
from tidelog.coordinator.raft_node.interfaces import StateMachine
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.storage import (
    StoredSnapshot,
    Vote,
    found_raft_storage,
    is_founded,
    open_raft_storage,
)
from tidelog.coordinator.raft_node.transport import RaftTransport
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.env.env import Env, Stream
from tidelog.wire.errors import LogOfflineError
from tidelog.wire.messages.handshake import ApiVersions, HelloReply, ProveNodeRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.connection import Request

PORT = 8433
CLUSTER_ID = "a cluster"
DIRECTORY = "metadata"
CONFIG = RaftConfig()


class Committed:
    """All applied entries of all nodes, which must agree for ever."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}

    def note(self, index: int, value: bytes) -> None:
        """Fail if another node has applied another value (state machine safety)."""
        known = self.values.setdefault(index, value)
        assert known == value, f"entry {index} is {known!r} and {value!r}"


@final
class Values:
    """A state machine that keeps every command with its index."""

    def __init__(self, committed: Committed) -> None:
        self.values: dict[int, bytes] = {}
        self.decoded: dict[int, object] = {}
        """Decoded forms of commands that were proposed here."""
        self._committed = committed

    def apply(self, index: int, command: bytes, decoded: object | None) -> None:
        """See `StateMachine`."""
        if decoded is not None:
            self.decoded[index] = decoded
        assert not self.values or index > max(self.values)
        self._committed.note(index, command)
        self.values[index] = command

    def check_entry(self, command: bytes) -> None:
        """See `StateMachine`."""

    def check_snapshot(self, data: bytes) -> None:
        """See `StateMachine`."""

    def snapshot(self) -> bytes:
        """See `StateMachine`."""
        return msgspec.msgpack.encode(self.values)

    def restore(self, data: bytes) -> None:
        """See `StateMachine`."""
        self.values = msgspec.msgpack.decode(data, type=dict[int, bytes])
        for index, value in self.values.items():
            self._committed.note(index, value)


Answer = Callable[..., object]
"""Answers a message that came with an attachment; those of Raft with the node at the other end."""


@final
class Answerer:
    """Answers requests between nodes."""

    def __init__(self, node_id: int, answers: Mapping[Api[Any, Any], Answer]) -> None:
        """Use a function for every API but HELLO."""
        self.apis: list[Any] = [api.HELLO, api.PROVE_NODE, *answers]
        self.quotas = BrokerQuotas()
        self._node_id = node_id
        self._identity = NodeIdentityHandler(Random(node_id), node_id=node_id, secret=SECRET)
        self._answers = {int(served.key): answer for served, answer in answers.items()}
        self._slow_answers: dict[int, SlowAnswer] = {}
        self._nursery: trio.Nursery | None = None

    def end_turn(self) -> None:
        """See `broker.dispatch.Dispatcher`."""

    @property
    def api_of(self) -> dict[int, Any]:
        """See `broker.dispatch.Dispatcher`."""
        return {int(served.key): served for served in self.apis}

    def add_slow(
        self, answers: Mapping[Api[Any, Any], "SlowAnswer"], nursery: trio.Nursery
    ) -> None:
        """Add functions that run in tasks of their own."""
        self.apis += answers
        self._slow_answers |= {int(served.key): answer for served, answer in answers.items()}
        self._nursery = nursery

    def handle(self, request: Request, context: RequestContext) -> None:
        """See `broker.dispatch.Dispatcher`."""
        key = request.api_key
        served = self.api_of[key]
        response = ResponseHandle(served, request, context)
        with response:
            if key == api.HELLO.key:
                response.reply(self._hello())
            elif key == api.PROVE_NODE.key:
                self._identity.prove(cast("ProveNodeRequest", request.message), response)
            elif key in (api.RAFT.key, api.RAFT_SNAPSHOT.key):
                answer = self._answers[key]
                response.reply_if_wanted(
                    answer(request.message, request.attachment, context.node_id)
                )
            elif key in self._answers:
                response.reply_if_wanted(self._answers[key](request.message, request.attachment))
            else:
                assert self._nursery is not None
                self._nursery.start_soon(self._answer_slowly, key, request.message, response)

    def _hello(self) -> HelloReply:
        versions = [
            ApiVersions(int(served.key), served.min_version, served.max_version)
            for served in self.apis
        ]
        return HelloReply("1", CLUSTER_ID, self._node_id, versions, 16 << 20, 256)

    async def _answer_slowly(self, key: int, message: object, response: ResponseHandle) -> None:
        with response:
            response.reply(await self._slow_answers[key](message))


SlowAnswer = Callable[[Any], Awaitable[object]]
"""Answers a message in a task of its own."""


class Made(NamedTuple):
    """The parts of a process besides its node."""

    state: StateMachine
    slow_answers: Mapping[Api[Any, Any], SlowAnswer] = {}
    tasks: Sequence[Callable[[], Awaitable[None]]] = ()


MakeState = Callable[[Env, RaftNode, trio.Nursery], Made]
"""Creates the parts of a starting process beside its node; the nursery is that of the process."""


@final
class Host:
    """A machine with a node; started, killed and started again."""

    def __init__(self, world: World, node_id: int, make_state: MakeState) -> None:
        self.node_id = node_id
        self.machine: Node = world.add_node(f"node{node_id}")
        self.first_voters: tuple[Identity, ...] = ()
        self.raft: RaftNode | None = None
        self.state: StateMachine | None = None
        """The last applied state of the previous process."""
        self.disk_number = 0
        self._make_state = make_state

    @property
    def identity(self) -> Identity:
        """The node with its current disk."""
        return Identity(self.node_id, b"disk %d of %d" % (self.disk_number, self.node_id))

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return self.machine.process is not None

    def start(self) -> None:
        """Start the process."""
        self.machine.start(self._run)

    def kill(self) -> None:
        """End the process."""
        self.raft = None
        self.machine.kill()

    def cut_power(self) -> None:
        """End all processes of the machine."""
        self.raft = None
        self.machine.cut_power()

    async def _run(self, process: Process) -> None:
        env, disk = process.env, process.disk
        if not is_founded(disk, DIRECTORY):
            vote = Vote(self.identity, CLUSTER_ID, HardState())
            membership = Membership.of_voters(self.first_voters)
            first = StoredSnapshot(SnapshotMeta(0, 0, membership), b"")
            await env.run_in_thread(
                lambda: found_raft_storage(disk, DIRECTORY, vote, snapshot=first)
            )
        files = FileCache(disk)
        now_ms = env.clock.now_ms()
        storage, stored, _ = await env.run_in_thread(
            lambda: open_raft_storage(DIRECTORY, files, now_ms=now_ms)
        )
        begin = StoredState(stored.vote.hard_state, stored.snapshot.meta, tuple(stored.entries))
        core = RaftCore(stored.vote.identity, begin, CONFIG, random=env.random)
        node = RaftNode(env, core, storage, stored=stored)
        try:
            async with trio.open_nursery() as nursery:
                made = self._make_state(env, node, nursery)
                self.state = made.state
                self.raft = node
                for task in made.tasks:
                    nursery.start_soon(task)
                links = RaftTransport(
                    env,
                    nursery,
                    dialer_of(env, node.identity.node_id),
                    name=self.machine.name,
                    cluster_id=CLUSTER_ID,
                    address_of=lambda node_id: (f"node{node_id}", PORT),
                )
                nursery.start_soon(
                    partial(
                        serve_raft,
                        process,
                        node,
                        self.machine.name,
                        nursery=nursery,
                        slow_answers=made.slow_answers,
                    )
                )
                await node.run(made.state, links)
        except* LogOfflineError:
            self.raft = None


async def serve_raft(
    process: Process,
    node: Any,  # noqa: ANN401
    name: str,
    *,
    nursery: trio.Nursery,
    slow_answers: Mapping[Api[Any, Any], SlowAnswer] = {},
) -> None:
    """Pass all Raft requests of this machine to `node`, a `RaftNode` or a similar listener."""
    handler = RaftHandler(node)
    answers: dict[Api[Any, Any], Answer] = {
        api.RAFT: handler.handle,
        api.RAFT_SNAPSHOT: handler.handle_snapshot,
    }
    answerer = Answerer(node.identity.node_id, answers)
    answerer.add_slow(slow_answers, nursery)
    await listen(process.env, name, answerer, nursery=nursery)


async def listen(env: Env, name: str, answerer: Answerer, *, nursery: trio.Nursery) -> None:
    """Answer all connections to this machine by `answerer`; until cancelled."""
    config = BrokerConfig()
    memory = MemoryBudget(config.queued_max_request_bytes, largest_bytes=20 << 20)
    dispatcher: Any = answerer

    async def serve(stream: Stream) -> None:
        await Connection(
            env, config, stream, dispatcher=dispatcher, memory=memory, refusals=Refusals(env.probe)
        ).run()

    listener = await env.network.listen(name, PORT)
    while True:
        nursery.start_soon(serve, await listener.accept())


def hosts(
    world: World, count: int, make_state: MakeState, *, voter_count: int | None = None
) -> list[Host]:
    """Return machines with ids from 1 on; the first `voter_count` of them, or all, are voters."""
    made = [Host(world, number + 1, make_state) for number in range(count)]
    founders = made[: voter_count or count]
    for host in founders:
        host.first_voters = tuple(each.identity for each in founders)
    return made


def lists() -> MakeState:
    """Return a factory of state machines that keep every command, and fail when they differ."""
    committed = Committed()
    return lambda _env, _node, _nursery: Made(Values(committed))


def decoded_of(host: Host) -> dict[int, object]:
    """Return the decoded forms of a node's own proposals, by index."""
    assert isinstance(host.state, Values)
    return host.state.decoded


def values_of(host: Host) -> dict[int, bytes]:
    """Return every command that a node has applied, by index."""
    if host.state is None:
        return {}
    assert isinstance(host.state, Values)
    return host.state.values


def watch_roles(world: World) -> Callable[[], Mapping[int, int]]:
    """Return the leader of each term; two leaders of one term end the run (election safety)."""
    leaders: dict[int, int] = {}

    def observe(_: str, event: str, fields: Mapping[str, object]) -> None:
        if event == "raft_role_changed" and fields["role"] == "leader":
            term, node_id = fields["term"], fields["node_id"]
            assert isinstance(term, int)
            assert isinstance(node_id, int)
            known = leaders.setdefault(term, node_id)
            assert known == node_id, f"nodes {known} and {node_id} both lead term {term}"

    world.observe(observe)
    return lambda: leaders
