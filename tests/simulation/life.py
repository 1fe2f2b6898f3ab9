"""A first life: one broker, a few clients, and a world that treats them badly for a while.

    python -m tests.simulation.life SEED ... [--seconds S] [--trace | --steps]

A machine loses its power, the process is killed and paused, the disk is slow, stalls, fails to
sync and runs full, the network loses, splits, resets and partitions. In the end all faults stop,
the machine loses its power a last time, and everything that was ever acknowledged must be there,
where it was said to be, once.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import final

import trio

from broker.config import BrokerConfig
from broker.server import open_broker
from tests.simulation.link import LinkQuality
from tests.simulation.node import Node
from tests.simulation.process import Process
from tests.simulation.raw_clients import Ledger, Reader, Server, Writer
from tests.simulation.world import Simulation, World
from wire import api
from wire.errors import DataDirectoryError
from wire.rpc import open_rpc
from wire.topics import CreateTopicRequest

HOST, PORT = "broker", 8433
_PARTITIONS = 2
_TOPIC_SETTINGS = {"segment_bytes": "16KiB", "index_interval_bytes": "1KiB"}
_RESTART_MEAN_S = 0.3
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeReport:
    """What there is to say of one life."""

    seed: int
    fingerprint: str
    acknowledged_count: int
    fault_counts: dict[str, int]
    event_count: int
    simulated_s: float


async def run_broker(process: Process) -> None:
    """Run a broker until its process is ended, or its disk refuses."""
    config = BrokerConfig(listen=f"{HOST}:{PORT}", maintenance_interval_ms=1000)
    try:
        async with open_broker(config, process.env, process.disk):
            await trio.sleep_forever()
    except (OSError, DataDirectoryError) as error:
        process.env.probe("broker_failed", reason=str(error))


@final
class Operator:
    """Keeps the broker running: starts it when it is down, and anew when its disk has failed."""

    def __init__(self, world: World, node: Node) -> None:
        """Look after `node`."""
        self.is_on_duty = True
        self._world = world
        self._node = node
        self._random = world.streams.stream("operator")
        world.observe(self._observe)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            if self._node.process is None and self.is_on_duty:
                self._node.start(run_broker)
            await trio.sleep(self._random.expovariate(1 / _RESTART_MEAN_S))

    def _observe(self, node: str, event: str, fields: Mapping[str, object]) -> None:
        is_offline = event == "log_offline" or fields.get("status") == "offline"
        if node == self._node.name and is_offline:
            self._world.clock.call_later(self._random.expovariate(2.0), self._node.kill)


@final
class Nemesis:
    """Does something bad to the broker every now and then."""

    def __init__(self, world: World, node: Node) -> None:
        """Be after `node`."""
        self.counts: Counter[str] = Counter()
        self._world = world
        self._node = node
        self._random = world.streams.stream("nemesis")
        self._faults: list[Callable[[], None]] = [
            node.kill,
            node.cut_power,
            self._cut_power_while_dirty,
            self._pause,
            self._stall_loop,
            self._stall_disk,
            self._fail_sync,
            self._fill_disk,
            self._partition,
            self._break_connections,
            self._jump,
        ]

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await trio.sleep(self._random.expovariate(1 / 1.5))
            fault = self._random.choice(self._faults)
            self.counts[fault.__name__.strip("_")] += 1
            self._world.clock.call_later(0, fault)

    def _some_time(self, mean_s: float = 0.5) -> float:
        return self._random.expovariate(1 / mean_s)

    def _cut_power_while_dirty(self) -> None:
        def watch(operation: str, _: str) -> None:
            if operation == "sync":
                self._node.disk_watcher = None
                self._world.clock.call_later(self._some_time(0.001), self._node.cut_power)

        self._node.disk_watcher = watch

    def _pause(self) -> None:
        self._node.pause(self._some_time())

    def _stall_loop(self) -> None:
        self._node.stall_loop(self._some_time())

    def _stall_disk(self) -> None:
        self._node.stall_disk(self._some_time())

    def _fail_sync(self) -> None:
        self._node.disk.fail("sync", nth=self._random.randint(1, 20))

    def _fill_disk(self) -> None:
        disk = self._node.disk
        disk.capacity_bytes = 0
        self._world.clock.call_later(self._some_time(), self._free_disk)

    def _free_disk(self) -> None:
        self._node.disk.capacity_bytes = None

    def _partition(self) -> None:
        other = self._random.choice([name for name in self._world.nodes if name != HOST])
        ends = [[HOST], [other]]
        self._random.shuffle(ends)
        heal = self._world.network.partition(*ends, one_way=self._random.random() < 0.5)
        self._world.clock.call_later(self._some_time(1.0), heal)

    def _break_connections(self) -> None:
        for name in self._world.nodes:
            if name != HOST:
                self._world.network.break_connections(HOST, name)

    def _jump(self) -> None:
        self._node.wall_clock.jump(self._random.uniform(-3600, 3600))


async def create_topic(process: Process) -> bytes:
    """Return the id of the topic, made by this client once the broker is there."""
    await trio.sleep(1.0)
    async with open_rpc(
        process.env.network, HOST, PORT, client_name="admin", client_version="1"
    ) as connection:
        request = CreateTopicRequest("flights", _PARTITIONS, _TOPIC_SETTINGS)
        return (await connection.ask(api.CREATE_TOPIC, request)).topic_id


async def live(world: World, seconds: float) -> tuple[Ledger, Counter[str]]:
    """Live for so many seconds of faults, then in peace until all is settled."""
    node = world.add_node(HOST)
    ledger = Ledger()
    async with trio.open_nursery() as nursery:
        operator = Operator(world, node)
        nursery.start_soon(operator.run)
        ids: list[bytes] = []

        async def administrate(process: Process) -> None:
            ids.append(await create_topic(process))

        world.add_node("admin").start(administrate)
        await trio.sleep(2.0)
        server = Server(HOST, PORT, ids[0], _PARTITIONS)
        writers = [
            Writer(server, ledger, world.streams.stream(name), name=name)
            for name in ("writer1", "writer2", "writer3")
        ]
        writing = [
            world.add_node(f"writer{number}").start(writer.run)
            for number, writer in enumerate(writers, 1)
        ]
        reader = Reader(server, ledger)
        reading = world.add_node("reader").start(reader.run)
        counts = await _suffer(world, node, seconds)
        with trio.fail_after(_PATIENCE_S):
            for writer in writers:
                writer.should_stop = True
            for process in writing:
                await process.ended.wait()
            node.cut_power()
            reader.should_stop = True
            await reading.ended.wait()
            ledger.read.clear()
            last_reader = Reader(server, ledger)
            last_reader.should_stop = True
            await world.add_node("last reader").start(last_reader.run).ended.wait()
        nursery.cancel_scope.cancel()
    ledger.check_all_read()
    return ledger, counts


async def _suffer(world: World, node: Node, seconds: float) -> Counter[str]:
    random = world.streams.stream("life")
    world.network.set_quality(
        LinkQuality(
            delay_mean_s=10 ** random.uniform(-3.5, -1.5),
            loss=random.choice([0.0, 0.0, 0.02]),
            split=random.choice([0.0, 0.3]),
            reset=random.choice([0.0, 0.0, 0.005]),
        )
    )
    node.disk_speed.sync_mean_s = 10 ** random.uniform(-4, -1.7)
    nemesis = Nemesis(world, node)
    with trio.move_on_after(seconds):
        await nemesis.run()
    world.network.set_quality(LinkQuality())
    node.disk_watcher = None
    node.kill()
    return nemesis.counts


def run_life(
    seed: int,
    seconds: float,
    *,
    show: Callable[[str], None] | None = None,
    shows_steps: bool = False,
) -> LifeReport:
    """Live one life and return what there is to say of it."""
    simulation = Simulation(seed, show=show, shows_steps=shows_steps)
    ledger, counts = simulation.run(lambda world: live(world, seconds))
    return LifeReport(
        seed=seed,
        fingerprint=simulation.trace.fingerprint(),
        acknowledged_count=len(ledger.acknowledged),
        fault_counts=dict(sorted(counts.items())),
        event_count=simulation.clock.event_count,
        simulated_s=simulation.clock.now,
    )


def main() -> None:
    """Live the lives that are asked for on the command line."""
    parser = argparse.ArgumentParser(description="Live simulated lives.")
    parser.add_argument("seeds", type=int, nargs="+", metavar="seed")
    parser.add_argument("--seconds", type=float, default=20.0, help="of faults")
    parser.add_argument("--trace", action="store_true", help="show every event")
    parser.add_argument("--steps", action="store_true", help="show every step of a task too")
    arguments = parser.parse_args()

    def show(line: str) -> None:
        sys.stdout.write(f"{line}\n")

    for seed in arguments.seeds:
        report = run_life(
            seed,
            arguments.seconds,
            show=show if arguments.trace or arguments.steps else None,
            shows_steps=arguments.steps,
        )
        show(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
