"""Random runs of three brokers that enforce access, while rules come and go.

Anonymous clients append and read, over connections of their own; gateways append for a user that
has an access key. An administrator grants and revokes all of that, and disables the key. After an
answered revocation, no broker may acknowledge or deliver.
"""

# Marks connections of brokers as encrypted: secrets go over no others.
# pyright: reportPrivateUsage=false

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, cast, final

import trio

from tests.broker.broker_requests import batch_of
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    connected,
    connected_as,
)
from tests.broker.security.gateways import KEY_ID, NONCE, impersonate, key_of, time_text
from tests.coordinator.raft_clients import until
from tests.logstore.logs import records_in
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tests.simulation.three_brokers.runs import PARTITION_COUNT, FaultInjector
from tidelog.wire.errors import (
    BrokerError,
    ErrorCode,
    ErrorDetail,
    NotAuthorizedError,
    TidelogError,
    TopicExistsError,
    UnknownQueueError,
)
from tidelog.wire.messages.access import AccessRule, AlterAccessRequest
from tidelog.wire.messages.access_keys import AccessKeyToCreate, AlterAccessKeysRequest
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.messages.queue_admin import CreateQueueRequest
from tidelog.wire.messages.queues import (
    ReceiveRequest,
    SendRequest,
    SettleAction,
    Settlement,
    SettleRequest,
)
from tidelog.wire.messages.topics import CreateTopicRequest, DescribeTopicsRequest
from tidelog.wire.messages.users import AlterUsersRequest, UserToSet
from tidelog.wire.protocol import api
from tidelog.wire.security.access_key import SigningScope
from tidelog.wire.transport.rpc import RpcConnection

ATTACKS: Final = 5
QUEUE: Final = "work"
_IMPERSONATE: Final = "impersonate cluster"
_KEY: Final = "use key"
"""Not a rule: whether the access key of the user is enabled."""
_USER: Final = "alice"
_TRUSTED: Final = 9
"""Node id of the administrator and of the trusted writer: nodes need no rules."""
_DENIED: Final = {int(ErrorCode.NOT_AUTHORIZED), int(ErrorCode.UNKNOWN_TOPIC_ID)}
_PATIENCE_S: Final = 3.0
_BYTES: Final = 1 << 20
_REQUESTS_AT_ONE_BROKER: Final = 20
WORK: Final = ("acked", "read", "sent", "received", "acted for the user")

Request = Callable[[RpcConnection], Awaitable[None]]


@final
class Windows:
    """When one action is revoked for certain: from an answer to the next grant."""

    def __init__(self) -> None:
        self._closed: list[tuple[float, float]] = []
        self._since: float | None = 0.0

    def granted(self) -> None:
        """Note that a grant is sent."""
        if self._since is not None:
            self._closed.append((self._since, trio.current_time()))
        self._since = None

    def revoked(self) -> None:
        """Note that a revocation is answered."""
        self._since = trio.current_time()

    def has(self, begin: float) -> bool:
        """Return whether the action was revoked from `begin` until now."""
        return self._since is not None and self._since <= begin


@final
class AccessRun:
    """The clients of one run, and what they have seen."""

    def __init__(self, brokers: ThreeBrokers, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self.violation = ""
        """What a client got against the rules."""
        self._brokers = brokers
        self._random = random
        self._should_stop = False
        self._topic_id, self._queue_id = b"", b""
        self._windows = {
            f"{action} {kind}": Windows()
            for action, kind in (
                ("write", "topic"),
                ("read", "topic"),
                ("send", "queue"),
                ("receive", "queue"),
                ("impersonate", "cluster"),
            )
        }
        self._windows[_KEY] = Windows()
        self._sent_at: dict[bytes, float] = {}
        """When each record was sent, by value."""

    async def run(self, attack_count: int) -> None:
        """Act while faults happen; afterwards, everything granted works.

        Raises:
            ViolationError: A client got something by a revoked rule.
        """
        await self._as_machine("creator", self._create)
        await until(lambda: bool(self._queue_id), 60)
        for name, act in (
            ("administrator", self._administrate),
            ("trusted", self._write_trusted),
            ("reader", self._fetch),
            ("receiver", self._receive),
        ):
            await self._as_machine(name, act)
        for node_id in NODES:
            # At each broker, so that one which learns late of a revocation is asked at once.
            await self._as_machine(f"writer{node_id}", partial(self._append_at, node_id))
            await self._as_machine(f"gateway{node_id}", partial(self._append_for_user, node_id))
        await trio.sleep(2)
        await FaultInjector(self._brokers, self._random).run(attack_count)
        wanted = {name: self.counts[name] + 3 for name in WORK}
        await until(
            lambda: bool(self.violation) or all(self.counts[n] >= c for n, c in wanted.items()), 120
        )
        self._should_stop = True
        if self.violation:
            raise ViolationError("Revoked", self.violation)

    async def _as_machine(self, name: str, act: Callable[[Process], Awaitable[None]]) -> None:
        self._brokers.world.add_node(name).start(act)
        await trio.lowlevel.checkpoint()

    # -- the administrator and the trusted writer ------------------------------------------

    async def _create(self, process: Process) -> None:
        async def create(client: RpcConnection) -> None:
            with suppress(TopicExistsError):
                request = CreateTopicRequest(TOPIC, PARTITION_COUNT, {}, replication_factor=3)
                await client.ask(api.CREATE_TOPIC, request)
            wanted = CreateQueueRequest(
                QUEUE, QUEUE, None, [], is_fifo=False, config={}, topic_config={}
            )
            created = await client.ask(api.CREATE_QUEUE, wanted)
            described = await client.ask(api.DESCRIBE_TOPICS, DescribeTopicsRequest([TOPIC]))
            await client.ask(
                api.ALTER_USERS,
                AlterUsersRequest([UserToSet(_USER, None, is_new=True)], [], [], []),
            )
            key = AccessKeyToCreate(KEY_ID, _USER, NONCE)
            self._windows[_KEY].granted()
            await client.ask(api.ALTER_ACCESS_KEYS, AlterAccessKeysRequest([key]))
            may_write = AccessRule(f"user:{_USER}", "topic", TOPIC, ["write"])
            await client.ask(api.ALTER_ACCESS, AlterAccessRequest([may_write]))
            self._topic_id = described.topics[0].topic_id
            self._queue_id = created.queue_id

        while not self._queue_id:
            await self._at_some_broker(process, create, is_trusted=True)

    async def _administrate(self, process: Process) -> None:
        while not self._should_stop:
            name = self._random.choice([each for each in self._windows if each != _KEY])
            window = self._windows[name]
            window.granted()
            await self._alter(process, name, is_granted=True)
            await trio.sleep(self._random.uniform(0.2, 2))
            if name == _IMPERSONATE and self._random.random() < 0.5:
                await self._alter(process, _KEY, is_granted=False)
                self._windows[_KEY].revoked()
                await trio.sleep(self._random.uniform(0, 1))
                self._windows[_KEY].granted()
                await self._alter(process, _KEY, is_granted=True)
            await self._alter(process, name, is_granted=False)
            window.revoked()
            self.counts["revocations"] += 1
            await trio.sleep(self._random.uniform(0, 1))

    async def _alter(self, process: Process, name: str, *, is_granted: bool) -> None:
        """Repeat a change until it is answered, or until the run ends."""
        is_answered = False

        async def alter(client: RpcConnection) -> None:
            nonlocal is_answered
            with trio.move_on_after(_PATIENCE_S + 4):
                if name == _KEY:
                    enabled, disabled = ([KEY_ID], []) if is_granted else ([], [KEY_ID])
                    keys = AlterAccessKeysRequest([], enable=enabled, disable=disabled)
                    await client.ask(api.ALTER_ACCESS_KEYS, keys)
                else:
                    granted, revoked = ([_rule(name)], []) if is_granted else ([], [_rule(name)])
                    await client.ask(api.ALTER_ACCESS, AlterAccessRequest(granted, revoked))
                is_answered = True

        while not (is_answered or self._should_stop):
            await self._at_some_broker(process, alter, is_trusted=True)

    async def _write_trusted(self, process: Process) -> None:
        """Append to the topic and the queue, whatever the rules are."""

        async def append(client: RpcConnection) -> None:
            batch, value = self._batch()
            self._sent_at[value] = trio.current_time()
            if self._random.random() < 0.5:
                await self._ask_produce(client, batch)
            else:
                await self._ask_send(client, batch)

        await self._repeat(process, append, is_trusted=True)

    # -- anonymous clients -----------------------------------------------------------------

    async def _append_at(self, node_id: int, process: Process) -> None:
        async def append(client: RpcConnection) -> None:
            batch, _ = self._batch()
            began_at = trio.current_time()
            if self._random.random() < 0.5:
                await self._ask_produce(client, batch)
                self._check("write topic", began_at, "an append is acknowledged")
                self.counts["acked"] += 1
            else:
                await self._ask_send(client, batch)
                self._check("send queue", began_at, "a message is acknowledged")
                self.counts["sent"] += 1

        await self._repeat(process, append, node_id=node_id)

    async def _append_for_user(self, node_id: int, process: Process) -> None:
        """Append as a gateway that acts for the user, which may always append."""

        async def begin(client: RpcConnection) -> None:
            now_ms = process.env.clock.now_ms()
            scope = SigningScope(time_text(now_ms)[:8], "us-east-1", "sqs")
            await impersonate(client, key_of(_USER, scope=scope), time_ms=now_ms)

        async def append(client: RpcConnection) -> None:
            batch, _ = self._batch()
            began_at = trio.current_time()
            await self._ask_produce(client, batch)
            for action in (_IMPERSONATE, _KEY):
                self._check(action, began_at, "an append of a gateway is acknowledged")
            self.counts["acted for the user"] += 1

        await self._repeat(process, append, node_id=node_id, begin=begin)

    async def _fetch(self, process: Process) -> None:
        offsets = [0] * PARTITION_COUNT

        async def fetch(client: RpcConnection) -> None:
            number = self._random.randrange(PARTITION_COUNT)
            wanted = [PartitionFetch(self._topic_id, number, offsets[number], _BYTES)]
            reply, content = await client.call(
                api.FETCH, FetchRequest(2_000, 1, _BYTES, wanted), take=_with_attachment
            )
            (result,) = reply.results
            self._raise(result.error)
            for offset, value in records_in(content).items():
                self._check("read topic", self._sent_at.get(value, 0.0), f"{value!r} is read")
                self.counts["read"] += 1
                offsets[number] = max(offsets[number], offset + 1)

        await self._repeat(process, fetch)

    async def _receive(self, process: Process) -> None:
        async def receive(client: RpcConnection) -> None:
            request = ReceiveRequest(self._queue_id, [0], 10, _BYTES, 2_000)
            reply, content = await client.call(api.RECEIVE, request, take=_with_attachment)
            for result in reply.results:
                self._raise(result.error)
                found = records_in(content)
                for run in result.runs:
                    for offset in range(run.first_offset, run.first_offset + run.count):
                        sent_at = self._sent_at.get(found[offset], 0.0)
                        self._check("receive queue", sent_at, f"{found[offset]!r} is received")
                        self.counts["received"] += 1
                runs = [(run.first_offset, run.count) for run in result.runs]
                settled = Settlement(0, result.receipt, runs, SettleAction.DELETE)
                await client.ask(api.SETTLE, SettleRequest(self._queue_id, [settled]))

        await self._repeat(process, receive)

    # -- requests --------------------------------------------------------------------------

    def _batch(self) -> tuple[bytearray, bytes]:
        value = b"record %d" % self.counts["records"]
        self.counts["records"] += 1
        return batch_of(value, producer_id=self.counts["records"], at_ms=0), value

    async def _ask_produce(self, client: RpcConnection, batch: bytearray) -> None:
        number = self._random.randrange(PARTITION_COUNT)
        entries = [PartitionBatch(self._topic_id, number, len(batch))]
        acks = self._random.choice((Acks.LEADER, Acks.ALL))
        reply = await client.call(
            api.PRODUCE,
            ProduceRequest(acks, 2_000, entries),
            take=lambda reply, _: reply,
            attachment=[batch],
        )
        (result,) = reply.results
        self._raise(result.error)

    async def _ask_send(self, client: RpcConnection, batch: bytearray) -> None:
        await client.call(
            api.SEND,
            SendRequest(self._queue_id, 0, 2_000),
            take=lambda reply, _: reply,
            attachment=[batch],
        )

    def _raise(self, error: ErrorDetail | None) -> None:
        """Raise for the error of an item, and count a denial."""
        if error is not None:
            if error.code in _DENIED:
                raise NotAuthorizedError(error.message)
            raise ItemFailedError(error.message)

    def _check(self, action: str, begin: float, what: str) -> None:
        if self._windows[action].has(begin) and not self.violation:
            self.violation = f"{what} at {trio.current_time():.3f} after the revocation of {action}"

    async def _repeat(
        self,
        process: Process,
        ask: Request,
        *,
        is_trusted: bool = False,
        node_id: int | None = None,
        begin: Request | None = None,
    ) -> None:
        async def work(client: RpcConnection) -> None:
            if begin is not None:
                await begin(client)
            for _ in range(_REQUESTS_AT_ONE_BROKER):
                try:
                    with trio.fail_after(_PATIENCE_S):
                        await ask(client)
                except (NotAuthorizedError, UnknownQueueError):
                    self.counts["denied"] += 1
                except (ItemFailedError, BrokerError):
                    if node_id is None:
                        raise
                await trio.sleep(self._random.uniform(0, 0.02))

        while not self._should_stop:
            await self._at_some_broker(process, work, is_trusted=is_trusted, node_id=node_id)

    async def _at_some_broker(
        self,
        process: Process,
        work: Request,
        *,
        is_trusted: bool = False,
        node_id: int | None = None,
    ) -> None:
        """Connect to a broker, any by default, and work there until something fails."""
        node_id = node_id or self._random.choice(NODES)
        opened = (
            connected_as(_TRUSTED, process, node_id) if is_trusted else connected(process, node_id)
        )
        try:
            async with opened as client:
                broker = self._brokers.brokers.get(node_id)
                for each in () if broker is None else broker._acceptor.connections:
                    each.is_encrypted = True
                await work(client)
        except* (TidelogError, OSError, trio.TooSlowError, ItemFailedError):
            await trio.sleep(self._random.uniform(0.01, 0.1))


class ItemFailedError(Exception):
    """An item of a request failed."""


def _with_attachment(reply: Any, content: memoryview) -> tuple[Any, bytes]:  # noqa: ANN401
    return reply, bytes(content)


def _rule(name: str) -> AccessRule:
    action, kind = name.split(" ")
    actions = ["receive", "settle"] if action == "receive" else [action]
    names = {"topic": TOPIC, "queue": QUEUE, "cluster": "*"}
    return AccessRule("anonymous", kind, names[kind], actions)


def run_access(seed: int, *, attack_count: int = ATTACKS) -> Counter[str]:
    """Execute one run; return counts of what happened."""

    async def run(world: World) -> Counter[str]:
        random = world.streams.stream("faults")
        world.network.set_quality(
            LinkQuality(
                delay_mean_s=random.choice((0.001, 0.01)),
                loss=random.choice((0, 0.01)),
                reset=random.choice((0, 0.001)),
            )
        )
        settings = cast("dict[str, Any]", {"authorization": "enforce"})
        brokers = ThreeBrokers(world, **settings)
        brokers.start()
        await brokers.serve()
        found = AccessRun(brokers, random)
        await found.run(attack_count)
        return found.counts

    return Simulation(seed).run(run)
