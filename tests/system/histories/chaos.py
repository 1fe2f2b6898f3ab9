"""Chaos test of a real broker, with real clients whose history is recorded.

The broker is killed, stopped and continued. The connections to it are delayed, stalled in one
direction, closed and reset. At the end all faults are healed, every client must complete an
operation, and a last reader reads everything.
"""

import signal
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import final

import trio

import tidelog
from tests.system.histories.clients import RecordedReader, RecordedWriter
from tests.system.histories.fault_proxy import FaultProxy
from tests.system.histories.recorder import Recorder
from tests.system.integration.processes import DEADLINE_S, BrokerProcess, serving
from tidelog.wire.errors import TidelogError

_TOPIC = "chaos"
_PARTITION_COUNT = 3
_TOPIC_SETTINGS = {"segment_bytes": "64KiB", "index_interval_bytes": "1KiB"}
_DELIVERY_TIMEOUTS_S = (0.2, 120.0, 120.0)
"""Delivery timeouts of the writers, in seconds. The first one expires soon, with unknown
outcomes."""
_GAP_MEAN_S = 0.4
_FAULT_S = (0.1, 1.0)
_RESTART_S = 0.3
_REQUEST_TIMEOUT_S = 3.0
_RECONNECT_S = 0.05
_PAUSE_S = 0.005
"""Seconds between two sends of a writer, so that a long history does not become a large one."""


class Fault(Enum):
    """Faults of the broker and of the connections to it."""

    KILL = "kill"
    STOP = "stop"
    DELAY = "delay"
    STALL_TO_BROKER = "stall to broker"
    STALL_TO_CLIENT = "stall to client"
    CUT = "cut"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Duration and faults of a history."""

    seconds: float
    random: Random
    program: Sequence[str]
    counts: Counter[Fault] = field(default_factory=Counter[Fault])
    """Number of times that each fault has happened."""


@final
class MortalBroker:
    """A broker process that restarts after each kill."""

    def __init__(self, directory: Path, proxy: FaultProxy, fault_plan: FaultPlan) -> None:
        """Keep data and settings in `directory`; accept clients through `proxy`."""
        self._directory = directory
        self._proxy = proxy
        self._fault_plan = fault_plan
        self._process: BrokerProcess | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started when the broker has its port."""
        config = self._directory / "tidelog.toml"
        await trio.Path(config).write_text(f'advertised = "{self._proxy.address}"\n')
        listen, is_started = "127.0.0.1:0", False
        while True:
            async with serving(
                self._directory / "data",
                *("--config", str(config)),
                listen=listen,
                program=self._fault_plan.program,
            ) as self._process:
                listen = self._process.address
                self._proxy.target_port = int(listen.rpartition(":")[2])
                if not is_started:
                    is_started = True
                    task_status.started()
                await self._process.wait_ended()
            await trio.sleep(self._fault_plan.random.uniform(0, _RESTART_S))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has just ended."""
        if self._process is not None:
            self._process.signal(number)


async def run_chaos(fault_plan: FaultPlan, directory: Path, recorder: Recorder) -> None:
    """Record the history of clients while the broker in `directory` has faults.

    Raises:
        trio.TooSlowError: A client completed nothing after the faults.
    """
    proxy = FaultProxy()
    broker = MortalBroker(directory, proxy, fault_plan)
    async with trio.open_nursery() as machines:
        await machines.start(proxy.run)
        await machines.start(broker.run)
        async with _client(proxy, DEADLINE_S) as client:
            await client.admin.create_topic(_TOPIC, _PARTITION_COUNT, config=_TOPIC_SETTINGS)
        async with trio.open_nursery() as clients:
            writers = [
                RecordedWriter(
                    f"writer {number}",
                    _TOPIC,
                    recorder,
                    random=Random(fault_plan.random.random()),
                    partition_count=_PARTITION_COUNT,
                )
                for number in range(len(_DELIVERY_TIMEOUTS_S))
            ]
            for writer, timeout_s in zip(writers, _DELIVERY_TIMEOUTS_S, strict=True):
                clients.start_soon(_write, proxy, writer, timeout_s)
            clients.start_soon(_follow, proxy, RecordedReader("follower", _TOPIC, recorder))
            with trio.move_on_after(fault_plan.seconds):
                await _inject_faults(fault_plan, proxy, broker)
            proxy.heal()
            broker.signal(signal.SIGCONT)
            for writer in writers:
                writer.acknowledged = trio.Event()
                await writer.acknowledged.wait()
                writer.should_stop = True
            async with _client(proxy) as client:
                await RecordedReader("last reader", _TOPIC, recorder).read_to_end(client)
            clients.cancel_scope.cancel()
        machines.cancel_scope.cancel()


@asynccontextmanager
async def _client(
    proxy: FaultProxy, patience_s: float = _REQUEST_TIMEOUT_S
) -> AsyncGenerator[tidelog.Client, None]:
    """Connect, and retry: the client tries a first connection only once."""
    async with AsyncExitStack() as stack:
        client: tidelog.Client | None = None
        while client is None:
            try:
                client = await stack.enter_async_context(
                    tidelog.connect(proxy.address, request_timeout=patience_s)
                )
            except TidelogError:
                await trio.sleep(_RECONNECT_S)
        yield client


async def _write(proxy: FaultProxy, writer: RecordedWriter, delivery_timeout_s: float) -> None:
    async with (
        _client(proxy) as client,
        client.producer(delivery_timeout=delivery_timeout_s) as producer,
    ):
        await writer.run(producer, pause_s=_PAUSE_S)


async def _follow(proxy: FaultProxy, reader: RecordedReader) -> None:
    async with _client(proxy) as client:
        await reader.follow(client)


async def _inject_faults(fault_plan: FaultPlan, proxy: FaultProxy, broker: MortalBroker) -> None:
    """Inject one fault after the other, without end; each is healed before the next."""
    random = fault_plan.random
    while True:
        await trio.sleep(random.expovariate(1 / _GAP_MEAN_S))
        fault = random.choice(list(Fault))
        fault_plan.counts[fault] += 1
        match fault:
            case Fault.KILL:
                broker.signal(signal.SIGKILL)
            case Fault.STOP:
                broker.signal(signal.SIGSTOP)
            case Fault.DELAY:
                proxy.to_broker.delay_s = random.uniform(0, 0.2)
                proxy.to_client.delay_s = random.uniform(0, 0.2)
            case Fault.STALL_TO_BROKER:
                proxy.to_broker.stall()
            case Fault.STALL_TO_CLIENT:
                proxy.to_client.stall()
            case Fault.CUT | Fault.RESET:
                proxy.end_connections(with_reset=fault is Fault.RESET)
                continue
        await trio.sleep(random.uniform(*_FAULT_S))
        proxy.heal()
        broker.signal(signal.SIGCONT)
