"""The queues of a run, and their users, beside the cluster's own clients."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, final

import trio

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.actors import Host
from tests.simulation.cluster.clients import Clients
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.return_faults import Injector
from tests.simulation.machine.process import Process, Program
from tests.simulation.queues.entry_faults import EntryFaults
from tests.simulation.queues.library_workers import LibraryWorker
from tests.simulation.queues.plans import QueuePlan, QueueSetup
from tests.simulation.queues.recreated_queues import QueueRecreator, RecreatedQueues
from tests.simulation.queues.redrives import QueueRedriver
from tests.simulation.queues.run_history import FinalMessage, Place, QueueRunHistory
from tests.simulation.queues.sometimes import FORCED
from tests.simulation.queues.users import QueueCaretaker, QueueSender, QueueUser, QueueWorker
from tests.simulation.queues.waker import WAKERS, Waker
from tidelog.client.client import Client, connect
from tidelog.wire.errors import TidelogError

_FOUNDING_S = 60.0
_DRAINING_S = 90.0
"""Maximum seconds until queues are empty, besides clock errors."""
_COUNTING_S = 0.5
_HEARD_OF_S = 1.0
"""Maximum seconds until a journal's leader sees records of a topic that another broker leads."""
_AWAKE_S = 10.0
_LOOKING_S = 60.0
_DRAIN_BATCH = 100


@final
class QueueActors:
    """All users of queues in one run; see `tests.simulation.cluster.actors`."""

    def __init__(self, host: Host, plan: QueuePlan, run_history: QueueRunHistory) -> None:
        """Start without queues."""
        self._world = host.world
        self._plan = plan
        self._run_history = run_history
        self._sometimes = host.sometimes
        self._faults = EntryFaults(host)
        self._recreated_queues = RecreatedQueues(plan, run_history)

    @property
    def objections(self) -> Mapping[str, ViolationError]:
        """See `Actors`."""
        return self._run_history.objections

    @property
    def counts(self) -> Mapping[str, int]:
        """See `Actors`."""
        return {
            "sent to queues": self._run_history.sent_count,
            "delivered": self._run_history.delivered_count,
            "deleted": self._run_history.deleted_count,
        }

    async def prepare(self) -> None:
        """Create the queues before the faults begin."""
        await self._run("queue founder", self._found, _FOUNDING_S, problem="queues are not created")

    def begin(self, clients: Clients) -> None:
        """Start all users."""
        self._world.buggify.on_fired = self._forced
        for number in range(self._plan.sender_count):
            name = f"s{number}"
            clients.add(name, partial(self._sender, clients, name))
        for number in range(self._plan.worker_count):
            name = f"w{number}"
            clients.add(name, partial(self._worker, clients, name))
        for number in range(self._plan.library_worker_count):
            name = f"h{number}"
            clients.add(name, partial(self._library_worker, clients, name))
        if self._plan.redrive_pause_s is not None:
            clients.add("redriver", partial(self._redrive_job, clients))
        if self._plan.recreation_pause_s is not None:
            clients.add("recreator", partial(self._recreator, clients))
        if any(setup.is_looked_after for setup in self._plan.queues):
            clients.add("caretaker", partial(self._caretaker, clients))

    def faults(self, injector: Injector) -> Mapping[str, Callable[[Fault], None]]:
        """See `Actors`."""
        self._run_history.on_appended = self._faults.appended
        return self._faults.effects(injector)

    def _forced(self, site: str) -> None:
        if site in FORCED:
            self._sometimes.forced(site)

    async def finish(self) -> None:
        """Empty all queues; the senders have ended, and no fault is active."""
        seconds = _DRAINING_S + 2 * self._plan.clock_lead_s
        await self._run("drainer", self._drain, seconds, problem="queues do not become empty")
        await self._wake()
        await self._run("drainer again", self._drain, seconds, problem="queues do not become empty")
        if self._plan.redrive_pause_s is not None:
            await self._run("clerk", self._see_redrives, _LOOKING_S, problem="redrives do not end")

    async def _wake(self) -> None:
        """Check that each event that makes a message visible wakes long polls."""
        for setup in self._plan.queues:
            if setup.is_sent_to:
                steps = min(setup.max_deliveries or WAKERS, WAKERS)
                seconds = _AWAKE_S * steps + 2 * self._plan.clock_lead_s + _LOOKING_S
                waker = Waker(self._plan, setup, self._run_history)
                await self._run(
                    "waker of " + setup.name, waker.run, seconds, problem="a long poll is not woken"
                )

    async def look(self) -> None:
        """Check the queues after the last power cut."""
        seconds = _LOOKING_S + 2 * self._plan.clock_lead_s
        await self._run("queue auditor", self._audit, seconds, problem="queues cannot be inspected")

    async def _run(
        self, name: str, do: Callable[[Client], Awaitable[None]], seconds: float, *, problem: str
    ) -> None:
        async def run(process: Process) -> None:
            is_done = False
            while not is_done:
                try:
                    async with connect(
                        addresses(self._plan), env=process.env, request_timeout=PATIENCE_S
                    ) as client:
                        await do(client)
                        is_done = True
                except* TidelogError as errors:
                    process.env.probe("again", reason=str(errors.exceptions[0]))
                await trio.sleep(BACKOFF_S)

        process = self._world.add_node(name).start(run)
        with trio.move_on_after(seconds):
            await process.ended.wait()
            return
        raise ViolationError("QueuesComeToAnEnd", f"{problem} within {seconds:g} s")

    async def _found(self, client: Client) -> None:
        there = {topic.name for topic in await client.admin.describe_topics()}
        for setup in self._plan.queues:
            if setup.topic not in there:
                await client.admin.create_topic(
                    setup.topic,
                    setup.partition_count,
                    replication_factor=self._plan.replication_factor,
                    config=self._plan.record_settings,
                )
                there.add(setup.topic)
            settings: dict[str, Any] = {**setup.settings}
            created = await client.admin.create_queue(
                setup.name, topic=setup.topic, fifo=setup.is_fifo, **settings
            )
            self._run_history.created(setup.name, created.queue_id)

    async def _see_redrives(self, client: Client) -> None:
        for setup in self._plan.sources_of_dead_letters:
            queue = client.queue(setup.dead_letter_queue or "")
            while not (await queue.redrive_status()).is_over:  # noqa: ASYNC110  (there is no event)
                await trio.sleep(_COUNTING_S)

    def _sender(self, clients: Clients, name: str) -> Program:
        generation = clients.generation(name)
        random = self._world.streams.stream(generation)
        sender = QueueSender(
            self._plan,
            addresses(self._plan),
            generation,
            random=random,
            run_history=self._run_history,
            sometimes=self._sometimes,
        )
        clients.employ(name, sender)
        return sender.run

    def _worker(self, clients: Clients, name: str) -> Program:
        random = self._world.streams.stream(clients.generation(name))
        worker = QueueWorker(
            self._plan,
            addresses(self._plan),
            random,
            run_history=self._run_history,
            sometimes=self._sometimes,
        )
        clients.employ(name, worker)
        return worker.run

    def _library_worker(self, clients: Clients, name: str) -> Program:
        random = self._world.streams.stream(clients.generation(name))
        worker = LibraryWorker(
            self._plan,
            addresses(self._plan),
            random,
            run_history=self._run_history,
            sometimes=self._sometimes,
        )
        clients.employ(name, worker)
        return worker.run

    def _redrive_job(self, clients: Clients) -> Program:
        random = self._world.streams.stream(clients.generation("redriver"))
        redriver = QueueRedriver(
            self._plan, addresses(self._plan), random, sometimes=self._sometimes
        )
        clients.employ("redriver", redriver)
        return redriver.run

    def _recreator(self, clients: Clients) -> Program:
        random = self._world.streams.stream(clients.generation("recreator"))
        recreator = QueueRecreator(
            self._plan,
            addresses(self._plan),
            random,
            recreated_queues=self._recreated_queues,
            run_history=self._run_history,
            sometimes=self._sometimes,
        )
        clients.employ("recreator", recreator)
        return recreator.run

    def _caretaker(self, clients: Clients) -> Program:
        random = self._world.streams.stream(clients.generation("caretaker"))
        caretaker = QueueCaretaker(
            self._plan,
            addresses(self._plan),
            random,
            run_history=self._run_history,
            sometimes=self._sometimes,
        )
        clients.employ("caretaker", caretaker)
        return caretaker.run

    async def _drain(self, client: Client) -> None:
        async with trio.open_nursery() as nursery:
            for setup in self._plan.queues:
                nursery.start_soon(self._drain_queue, client, setup)
            while not await self._are_empty_at_last(client):  # noqa: ASYNC110  (there is no event)
                await trio.sleep(_COUNTING_S)
            nursery.cancel_scope.cancel()

    async def _are_empty_at_last(self, client: Client) -> bool:
        try:
            return await self._are_empty(client)
        except TidelogError:
            return False

    async def _are_empty(self, client: Client) -> bool:
        # Dead-letter queues come first, so their new messages are requested again.
        if not await self._counts_nothing(client):
            return False
        await trio.sleep(_HEARD_OF_S)
        return await self._counts_nothing(client)

    async def _counts_nothing(self, client: Client) -> bool:
        for setup in self._plan.queues:
            for counts in await client.queue(setup.name).counts():
                if counts.visible or counts.in_flight or counts.delayed or counts.dead:
                    return False
        return True

    async def _drain_queue(self, client: Client, setup: QueueSetup) -> None:
        user = QueueUser(client.queue(setup.name), setup, self._run_history)
        while True:
            try:
                received = await user.receive(
                    _DRAIN_BATCH, visibility_s=self._plan.visibility_s, wait_s=1.0
                )
            except TidelogError:
                await trio.sleep(BACKOFF_S)
            else:
                await user.delete(received)

    async def _audit(self, client: Client) -> None:
        if not await self._are_empty(client):
            raise ViolationError("DeletedIsGone", "an empty queue is not empty any more")
        topics = {
            topic: await self._read(client, topic)
            for topic in sorted({setup.topic for setup in self._plan.queues})
        }
        self._run_history.ended(topics)

    async def _read(self, client: Client, topic: str) -> dict[Place, FinalMessage]:
        found: dict[Place, FinalMessage] = {}
        async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
            ends = await consumer.end_offsets()
            async for batch in consumer.batches(ends):
                for record in batch.records():
                    if record.is_chunk:
                        continue
                    value = b"".join([piece async for piece in client.chunks(record)])
                    headers = dict(record.headers)
                    message = FinalMessage(value, record.key, headers, record.timestamp_ms)
                    found[record.partition, record.offset] = message
        return found
