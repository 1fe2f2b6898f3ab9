"""Random runs of three brokers with quotas, while controllers fail and demand moves.

One user sends as many requests as it can, at some of the brokers; another one sends a few at all of
them. Each has the same quota of its own. After each fault, when leases have ended and the shares
follow the demand, the first user gets its rate from the whole cluster, and the other one does not
wait for it.
"""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Final, final

import trio

from tests.broker.replication.three_brokers import NODES, ThreeBrokers, connected, host_of
from tests.broker.security.logins import change
from tests.coordinator.raft_clients import until
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.client.client import Client
from tidelog.coordinator.security.commands import SetToken, SetUser
from tidelog.coordinator.security.quota_shares import LEASE_MS
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.handshake import AuthenticateRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.token import TOKEN, new_token, parse_token
from tidelog.wire.transport.rpc import RpcConnection

ROUNDS: Final = 3
LIMIT: Final = 60
"""Requests per second of each user, in the whole cluster."""
_SETTLED_S: Final = 3 * LEASE_MS / 1000
_CALM_S: Final = 5.0
_FLOOD_CONNECTIONS: Final = 6
"""Connections of the flood to each broker."""
_LEAST: Final = 0.7
_MOST: Final = 1.15
"""Part of its rate that a user with enough demand gets at least, and at most."""
_LONGEST_S: Final = 0.2
"""Longest wait of a request of a user that is below its quota; the network delays it by 10 ms."""
_PATIENCE_S: Final = 10.0
_TOKENS: Final = {
    user: new_token(bytes([number] * 6), bytes([number] * 32))
    for number, user in enumerate(("flood", "quiet"), 1)
}
_ACCEPTED_ERRORS: Final = (TidelogError, OSError, trio.TooSlowError, KeyError)


@final
class QuotaRun:
    """The clients of one run, and what they have seen."""

    def __init__(self, brokers: ThreeBrokers, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self._brokers = brokers
        self._random = random
        self._targets: set[int] = set()
        """Brokers to which the flood goes now."""
        self._should_stop = False
        self._waits_s: list[float] = []
        """How long each request of the quiet user waited, since the last fault was over."""
        self._faults: tuple[Callable[[int], None], ...] = (
            brokers.kill,
            brokers.stop,
            self._pause,
            self._cut_off,
        )
        self._heals: list[Callable[[], None]] = []
        self._paused_until = float("-inf")
        """End of the pause of a machine."""

    async def run(self, rounds: int) -> None:
        """Let controllers fail, and check both users after each fault.

        Raises:
            ViolationError: A user got more or less than its share, or waited for the other one.
        """
        await self._set_up()
        for node_id in NODES:
            for number in range(_FLOOD_CONNECTIONS):
                machine = self._brokers.world.add_node(f"flood{node_id}{number}")
                machine.start(partial(self._flood, node_id))
        self._brokers.world.add_node("quiet").start(self._ask_now_and_then)
        for _ in range(rounds):
            self._targets = set(self._random.sample(NODES, self._random.randint(1, len(NODES))))
            await self._fail()
            await trio.sleep(_SETTLED_S)
            flooded = self.counts["flood"]
            self._waits_s.clear()
            await trio.sleep(_CALM_S)
            self._check((self.counts["flood"] - flooded) / _CALM_S)
        self._should_stop = True

    def _check(self, rate: float) -> None:
        where = f"at brokers {sorted(self._targets)}"
        if not _LEAST * LIMIT <= rate <= _MOST * LIMIT:
            raise ViolationError(
                "QuotaSharesHold", f"a user gets {rate:.0f} requests/s {where}, and not {LIMIT}"
            )
        if not self._waits_s or max(self._waits_s) > _LONGEST_S:
            raise ViolationError(
                "PrincipalsAreServed",
                f"a user below its quota waits for {max(self._waits_s, default=_CALM_S):.1f} s"
                f" beside a flood {where}",
            )
        self.counts["checked"] += 1

    async def _set_up(self) -> None:
        """Create both users with a token each, and the quota of both."""
        broker = self._brokers.brokers[NODES[0]]
        for user, token in _TOKENS.items():
            parts = parse_token(token)
            assert parts is not None
            set_token = SetToken(parts.token_id, user, parts.sha256, None)
            await change(broker, SetUser(user, None), set_token)

        async def limit(client: Client) -> None:
            await client.security.alter_quotas("default", set={"requests_per_s": str(LIMIT)})

        await self._brokers.with_client(limit)

    async def _fail(self) -> None:
        """Let the controller fail; return when all brokers serve again."""
        await until(lambda: self._controller() is not None, 60)
        node_id = self._controller()
        assert node_id is not None
        self._random.choice(self._faults)(node_id)
        self.counts["faults"] += 1
        await trio.sleep(self._random.uniform(0.5, 8))
        await trio.sleep_until(max(trio.current_time(), self._paused_until))
        while self._heals:
            self._heals.pop()()
        with trio.fail_after(120):
            while len(self._brokers.brokers) < len(NODES) or not self._is_whole():
                if self._brokers.machines[node_id].process is None:
                    self._brokers.start(node_id)
                await trio.sleep(0.1)

    def _is_whole(self) -> bool:
        return self._controller() is not None and self._brokers.are_live(len(NODES))

    def _controller(self) -> int | None:
        for node_id, broker in self._brokers.brokers.items():
            if broker._cluster is not None and broker._cluster.raft.is_active_leader:
                return node_id
        return None

    def _pause(self, node_id: int) -> None:
        seconds = self._random.uniform(1, 8)
        self._brokers.machines[node_id].pause(seconds)
        self._paused_until = trio.current_time() + seconds

    def _cut_off(self, node_id: int) -> None:
        others = [host_of(other) for other in NODES if other != node_id]
        self._heals.append(self._brokers.world.network.partition([host_of(node_id)], others))

    # -- the users -------------------------------------------------------------------------

    @asynccontextmanager
    async def _as_user(
        self, process: Process, node_id: int, user: str
    ) -> AsyncGenerator[RpcConnection]:
        """Connect to a broker with the token of a user."""
        async with connected(process, node_id) as client:
            for each in self._brokers.brokers[node_id]._acceptor.connections:
                each.is_encrypted = True
            request = AuthenticateRequest(TOKEN, _TOKENS[user].encode())
            await client.ask(api.AUTHENTICATE, request)
            yield client

    async def _ask(self, client: RpcConnection) -> None:
        with trio.fail_after(_PATIENCE_S):
            await client.ask(api.METADATA, MetadataRequest([]))

    async def _flood(self, node_id: int, process: Process) -> None:
        while not self._should_stop:
            try:
                async with self._as_user(process, node_id, "flood") as client:
                    while not self._should_stop:
                        if node_id not in self._targets:
                            await trio.sleep(0.1)
                            continue
                        await self._ask(client)
                        self.counts["flood"] += 1
            except* _ACCEPTED_ERRORS:
                await trio.sleep(0.1)

    async def _ask_now_and_then(self, process: Process) -> None:
        while not self._should_stop:
            node_id = self._random.choice(NODES)
            try:
                async with self._as_user(process, node_id, "quiet") as client:
                    for _ in range(5):
                        began_at = trio.current_time()
                        await self._ask(client)
                        self._waits_s.append(trio.current_time() - began_at)
                        self.counts["quiet"] += 1
                        await trio.sleep(self._random.uniform(0, 0.3))
            except* _ACCEPTED_ERRORS:
                await trio.sleep(0.1)


def run_quotas(seed: int, *, rounds: int = ROUNDS) -> Counter[str]:
    """Execute one run; return counts of what happened."""

    async def run(world: World) -> Counter[str]:
        world.network.set_quality(LinkQuality(delay_mean_s=0.002))
        brokers = ThreeBrokers(world)
        brokers.start()
        await brokers.serve()
        found = QuotaRun(brokers, world.streams.stream("faults"))
        await found.run(rounds)
        return found.counts

    return Simulation(seed).run(run)
