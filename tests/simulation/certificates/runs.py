"""Random runs of three brokers with certificates, which expire and are swapped, and clocks jump.

Two writers record acknowledgements, over certified connections. First all certificates expire: what
is connected goes on. Then machines fail as well. At the end all certificates are good, and every
acknowledged record is on every replica, once, at its offset.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final, cast, final

import trio

from tests.broker.replication.three_brokers import NODES, ThreeBrokers, make_topic
from tests.coordinator.raft_clients import until
from tests.simulation.machine.certified_network import (
    CertifiedNetwork,
    SimulatedCertificate,
    a_certificate,
)
from tests.simulation.machine.clock import EPOCH_MS
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tests.simulation.three_brokers.runs import PARTITION_COUNT, FaultInjector, Writer
from tidelog.client.client import Client
from tidelog.wire.env.env import Env

ATTACKS: Final = 5
_DAY_MS: Final = 24 * 3_600_000
_LATE_MS: Final = EPOCH_MS + 365 * _DAY_MS
_SHORT_S: Final = 3.0
_EVENTS: Final = {
    "certificate_reloaded",
    "certificate_not_reloaded",
    "certificate_expires",
    "connection_refused",
}
_SETTINGS: Final = {"tls": "require", "tls_directory": "x", "maintenance_interval_ms": 200}


@final
class CertificateFiles:
    """The certificates of three brokers and of a client, on their machines."""

    def __init__(self, brokers: ThreeBrokers, random: Random) -> None:
        self._brokers = brokers
        self._random = random
        self._serial = 0
        self._files: dict[int, SimulatedCertificate] = {}
        self._networks: dict[int, CertifiedNetwork] = {}
        self._jumped_s: dict[int, float] = dict.fromkeys(NODES, 0.0)
        for node_id in (0, *NODES):
            self.renew(node_id)

    def env_of(self, node_id: int, process: Process) -> Env:
        """Return the environment of a process with the certificate in the files."""
        if node_id and self._files[node_id].facts.expires_at_ms <= process.env.clock.now_ms():
            self.renew(node_id)  # An operator does so, because the broker does not start.
        network = CertifiedNetwork(process.env.network, process.env.clock, self._files[node_id])
        self._networks[node_id] = network
        if node_id:
            return replace(process.env, secure_network=network)
        return replace(process.env, network=network)

    def renew(self, node_id: int, *, expires_at_ms: int = _LATE_MS, authority: str = "ca") -> None:
        """Write another certificate."""
        self._serial += 1
        # Without a name, as the connections of users end with their certificates.
        made = a_certificate(
            f"tidelog://blue/node/{node_id}" if node_id else "",
            expires_at_ms=expires_at_ms,
            serial=str(self._serial),
            authority=authority,
        )
        if authority == "ca":
            self._files[node_id] = made
        if node_id in self._networks:
            self._networks[node_id].in_files = made

    def expire_soon(self, *node_ids: int) -> None:
        """Write certificates that expire in some seconds."""
        for node_id in node_ids:
            now_ms = self._brokers.machines[node_id].wall_clock.now_ms()
            self.renew(node_id, expires_at_ms=now_ms + int(_SHORT_S * 1000))

    def heal(self) -> None:
        """Write good certificates, and set the clocks."""
        for node_id in (0, *NODES):
            self.renew(node_id)
        for node_id in NODES:
            self._jump(node_id, -self._jumped_s[node_id])

    async def run(self) -> None:
        """Swap certificates and let clocks jump, until cancelled."""
        acts: tuple[Callable[[int], None], ...] = (
            self.renew,
            self.expire_soon,
            lambda node_id: self.renew(node_id, authority="another CA"),
            lambda node_id: self._jump(node_id, self._random.choice((-1, 1)) * 400 * 86_400.0),
            lambda node_id: self._jump(node_id, -self._jumped_s[node_id]),
        )
        while True:
            await trio.sleep(self._random.uniform(0.2, 3))
            self._random.choice(acts)(self._random.choice(NODES))

    def _jump(self, node_id: int, seconds: float) -> None:
        self._brokers.machines[node_id].wall_clock.jump(seconds)
        self._jumped_s[node_id] += seconds


async def _expire_all(files: CertificateFiles, writers: list[Writer]) -> None:
    """Let all certificates of brokers expire, and check that writers go on.

    Raises:
        AssertionError: They do not: an expired certificate stopped a broker or a connection.
    """
    files.expire_soon(*NODES)
    await trio.sleep(2 * _SHORT_S)
    before = [len(writer.acknowledged) for writer in writers]
    await trio.sleep(2 * _SHORT_S)
    for count, writer in zip(before, writers, strict=True):
        assert len(writer.acknowledged) > count, "an expired certificate stopped what ran"
    files.heal()
    await trio.sleep(1)


def run_certificates(seed: int, *, attack_count: int = ATTACKS) -> Counter[str]:
    """Execute one run; return counts of its events and acknowledgements."""
    counts: Counter[str] = Counter()

    def observe(node: str, event: str, fields: Mapping[str, object]) -> None:
        del node, fields
        if event in _EVENTS:
            counts[event] += 1

    async def run(world: World) -> None:
        random = world.streams.stream("faults")
        world.network.set_quality(LinkQuality(delay_mean_s=0.002))
        world.observe(observe)
        brokers = ThreeBrokers(world, **cast("dict[str, Any]", _SETTINGS))
        files = CertificateFiles(brokers, random)
        brokers.env_of = files.env_of
        brokers.start()
        await brokers.serve()
        writers = [Writer("of one"), Writer("of the other")]

        async def write(client: Client) -> None:
            await make_topic(client, PARTITION_COUNT)
            async with trio.open_nursery() as nursery:
                for writer in writers:
                    nursery.start_soon(writer.run, client)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(brokers.with_client, write)
            await until(lambda: all(len(each.acknowledged) >= 5 for each in writers), 60)
            await _expire_all(files, writers)
            with trio.CancelScope() as swapping:
                async with trio.open_nursery() as swaps:
                    swaps.start_soon(files.run)
                    await trio.sleep(20)
                    swapping.cancel()
            assert all(machine.process is not None for machine in brokers.machines.values())
            files.heal()
            await FaultInjector(brokers, random).run(attack_count)
            for writer in writers:
                writer.should_stop = True
        for number in range(PARTITION_COUNT):
            one, other = (writer.of(number) for writer in writers)
            await brokers.check(one | other, number)
            counts["acknowledged"] += len(one) + len(other)

    Simulation(seed).run(run)
    return counts
