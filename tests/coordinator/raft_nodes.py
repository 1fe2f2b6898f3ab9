"""Nodes of Raft on simulated machines: real storage, real links, a machine that keeps a list."""

from collections.abc import Callable, Mapping
from typing import Any, final

import msgspec
import trio

from broker.config import BrokerConfig
from broker.connection import Connection
from broker.handlers.raft import RaftHandler
from broker.memory import MemoryBudget
from broker.replier import Asking, Replier
from coordinator.raft.config import RaftConfig
from coordinator.raft.core import RaftCore
from coordinator.raft.membership import Identity, Membership
from coordinator.raft.messages import SnapshotMeta
from coordinator.raft.ready import HardState, StoredState
from coordinator.raft_links import RaftLinks
from coordinator.raft_node import RaftNode, StateMachine
from coordinator.raft_storage import (
    Snapshot,
    Vote,
    found_raft_storage,
    is_founded,
    open_raft_storage,
)
from logstore.file_cache import FileCache
from tests.simulation.node import Node
from tests.simulation.process import Process
from tests.simulation.world import World
from wire import api
from wire.api import Api
from wire.connection import Request
from wire.env import Env, Stream
from wire.errors import LogOfflineError
from wire.session import ApiVersions, HelloReply

PORT = 8433
CLUSTER_ID = "a cluster"
DIRECTORY = "metadata"
CONFIG = RaftConfig()


class Committed:
    """What any node has ever applied: the same everywhere, for ever."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}

    def note(self, index: int, value: bytes) -> None:
        """Object if another node has applied something else (state machine safety)."""
        known = self.values.setdefault(index, value)
        assert known == value, f"entry {index} is {known!r} and {value!r}"


@final
class Values:
    """A state machine that keeps every command with its index."""

    def __init__(self, committed: Committed) -> None:
        self.values: dict[int, bytes] = {}
        self._committed = committed

    def apply(self, index: int, command: bytes) -> None:
        """See `StateMachine`."""
        assert not self.values or index > max(self.values)
        self._committed.note(index, command)
        self.values[index] = command

    def snapshot(self) -> bytes:
        """See `StateMachine`."""
        return msgspec.msgpack.encode(self.values)

    def restore(self, data: bytes) -> None:
        """See `StateMachine`."""
        self.values = msgspec.msgpack.decode(data, type=dict[int, bytes])
        for index, value in self.values.items():
            self._committed.note(index, value)


Answer = Callable[[Any, memoryview], object]
"""Answers a message that came with an attachment."""


@final
class Answerer:
    """Answers what nodes ask each other."""

    def __init__(self, node_id: int, answers: Mapping[Api[Any, Any], Answer]) -> None:
        """Have a function for every API but HELLO."""
        self.apis: list[Any] = [api.HELLO, *answers]
        versions = [
            ApiVersions(int(served.key), served.min_version, served.max_version)
            for served in self.apis
        ]
        hello = HelloReply("1", CLUSTER_ID, node_id, versions, 16 << 20, 256)
        self._answers: dict[int, Answer] = {int(api.HELLO.key): lambda _, __: hello}
        self._answers |= {int(served.key): answer for served, answer in answers.items()}

    def handle(self, request: Request, asking: Asking) -> None:
        """See `broker.dispatch.Dispatcher`."""
        served = {int(each.key): each for each in self.apis}[request.api_key]
        replier = Replier(served, request, asking)
        with replier:
            answer = self._answers[request.api_key]
            replier.reply(answer(request.message, request.attachment))


MakeState = Callable[[Env, RaftNode], StateMachine]
"""Makes the state machine of a node whose process starts."""


@final
class Host:
    """A machine with a node; started, killed and started again."""

    def __init__(self, world: World, node_id: int, make_state: MakeState) -> None:
        self.node_id = node_id
        self.machine: Node = world.add_node(f"node{node_id}")
        self.first_voters: tuple[Identity, ...] = ()
        self.raft: RaftNode | None = None
        self.state: StateMachine | None = None
        """What the last process had applied."""
        self.disk_number = 0
        self._make_state = make_state

    @property
    def identity(self) -> Identity:
        """The node with the disk that it has now."""
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
        """End everything on the machine."""
        self.raft = None
        self.machine.cut_power()

    async def _run(self, process: Process) -> None:
        env, disk = process.env, process.disk
        if not is_founded(disk, DIRECTORY):
            vote = Vote(self.identity, CLUSTER_ID, HardState())
            membership = Membership.of_voters(self.first_voters)
            first = Snapshot(SnapshotMeta(0, 0, membership), b"")
            await env.offload(lambda: found_raft_storage(disk, DIRECTORY, vote, first))
        files = FileCache(disk)
        now_ms = env.clock.now_ms()
        storage, stored, _ = await env.offload(
            lambda: open_raft_storage(DIRECTORY, files, now_ms=now_ms)
        )
        begin = StoredState(stored.vote.hard_state, stored.snapshot.meta, tuple(stored.entries))
        core = RaftCore(stored.vote.identity, begin, CONFIG, env.random)
        node = RaftNode(env, core, storage, stored)
        self.state = state = self._make_state(env, node)
        self.raft = node
        try:
            async with trio.open_nursery() as nursery:
                links = RaftLinks(
                    env,
                    nursery,
                    name=self.machine.name,
                    cluster_id=CLUSTER_ID,
                    address_of=lambda node_id: (f"node{node_id}", PORT),
                )
                nursery.start_soon(serve_raft, process, node, self.machine.name, nursery)
                await node.run(state, links)
        except* LogOfflineError:
            self.raft = None


async def serve_raft(process: Process, node: Any, name: str, nursery: trio.Nursery) -> None:  # noqa: ANN401
    """Hand to `node`, a `RaftNode` or what listens like one, all that comes to this machine."""
    handler = RaftHandler(node)
    answers: dict[Api[Any, Any], Answer] = {
        api.RAFT: lambda request, _: handler.handle(request),
        api.RAFT_SNAPSHOT: handler.handle_snapshot,
    }
    await listen(process, name, Answerer(node.identity.node_id, answers), nursery)


async def listen(process: Process, name: str, answerer: Answerer, nursery: trio.Nursery) -> None:
    """Let `answerer` answer whoever connects to this machine; until cancelled."""
    config = BrokerConfig()
    memory = MemoryBudget(config.request_memory_bytes)
    dispatcher: Any = answerer

    async def serve(stream: Stream) -> None:
        await Connection(process.env, config, stream, dispatcher, memory).run()

    listener = await process.env.network.listen(name, PORT)
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
    """Return what makes machines that keep every command, and object when they differ."""
    committed = Committed()
    return lambda _env, _node: Values(committed)


def values_of(host: Host) -> dict[int, bytes]:
    """Return every command that a node has applied, by index."""
    if host.state is None:
        return {}
    assert isinstance(host.state, Values)
    return host.state.values


def watch_roles(world: World) -> Callable[[], Mapping[int, int]]:
    """Return who led each term; two leaders of one term end the run (election safety)."""
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
