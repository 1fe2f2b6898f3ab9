"""A simulated world: nodes on a network, in virtual time, all of it from one seed."""

import gc
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar, final

import trio

from tests.simulation.machine.blocking_call import Threads
from tests.simulation.machine.clock import TICK_S, SimulatedClock, quantised
from tests.simulation.machine.guard import Guard
from tests.simulation.machine.network import SimulatedNetwork
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import BuggifySites, Observer, ProcessContext
from tests.simulation.machine.random_streams import RandomStreams
from tests.simulation.machine.scheduler import (
    Scheduler,
    deterministic_scheduling,
    keep_order,
)
from tests.simulation.trace import Trace

Result = TypeVar("Result")

EVENTS_PER_S_MAX = 1_000_000
_GARBAGE_THRESHOLDS = (50_000, 20, 100)
"""Thresholds for `gc.set_threshold`: new objects, and younger collections, per collection."""


@final
class World:
    """All nodes of one run; `run_world` creates it and lets its time pass."""

    def __init__(self, context: ProcessContext, nursery: trio.Nursery) -> None:
        """Start without nodes; processes run in `nursery`."""
        self.clock = context.clock
        self.streams = context.streams
        self.trace = context.trace
        self.network = context.network
        self.buggify = context.buggify
        self.nodes: dict[str, Node] = {}
        self._context = context
        self._nursery = nursery

    def add_node(self, name: str, *, skew_s: float = 0.0) -> Node:
        """Return a new machine with an empty disk."""
        node = Node(self._context, self._nursery, name, skew_s=skew_s)
        self.nodes[name] = node
        return node

    def call_aside(self, delay: float, act: Callable[[], object]) -> None:
        """Call `act` between two moments of the run, which goes on as if that had not happened.

        All that `act` causes must happen in the same moment. Then every random stream is as before,
        and events are neither counted nor part of the fingerprint.
        """

        def begin() -> None:
            undo = [self.streams.keep(), keep_order()]
            event_count, connection_count = self.clock.event_count, self.network.connection_count
            self.trace.is_aside = True

            def end() -> None:
                self.trace.is_aside = False
                self.clock.event_count = event_count
                self.network.connection_count = connection_count
                for each in undo:
                    each()

            self.clock.call_at_moment_end(end)
            act()

        # Other events happen at whole ticks, or at deadlines.
        self.clock.call_at(self.clock.now + quantised(delay) + TICK_S / 2, begin)

    def observe(self, observer: Observer) -> None:
        """Call `observer` for every event of every process; its exceptions end the run."""
        self._context.observers.append(observer)

    def end(self) -> None:
        """End all processes, without a trace of their last steps."""
        for node in self.nodes.values():
            node.kill()


@final
class Simulation:
    """One run of a world: seed and observers, and afterwards its results."""

    def __init__(
        self,
        seed: int | str,
        *,
        show: Callable[[str], None] | None = None,
        shows_steps: bool = False,
        events_per_s_max: int = EVENTS_PER_S_MAX,
    ) -> None:
        """Prepare a run; `show` gets every line of the trace, steps of tasks only if told so."""
        self.clock = SimulatedClock(events_per_s_max=events_per_s_max)
        self.trace = Trace(self.clock.current_time, show=show, shows_steps=shows_steps)
        self._streams = RandomStreams(seed)

    def run(self, main: Callable[[World], Awaitable[Result]]) -> Result:
        """Return the result of `main`, after a run without access to the real world.

        Raises:
            DeadlockError: No event was left.
            EventBudgetError: Too many events.
            RealWorldError: Code touched the real world.
        """
        threads = Threads()
        context = ProcessContext(
            clock=self.clock,
            streams=self._streams,
            trace=self.trace,
            network=SimulatedNetwork(self.clock, self._streams, self.trace),
            threads=threads,
            buggify=BuggifySites(self._streams),
            observers=[],
        )
        scheduler = Scheduler(self.trace, self.clock.count_event)
        guard = Guard(self.clock.fail)
        try:
            with (
                deterministic_scheduling(self._streams.stream("scheduler")),
                _garbage_collected_rarely(),
            ):
                results = trio.run(
                    self._live,
                    context,
                    main,
                    guard,
                    clock=self.clock,
                    instruments=[scheduler],
                )
        except BaseException as error:  # noqa: BLE001  (it is raised again)
            raise self.clock.failure or _sole(error) from None
        finally:
            guard.lift()  # If trio has failed, `_live` has not reached its end.
            threads.close()
        if self.clock.failure is not None:
            raise self.clock.failure
        (result,) = results
        return result

    async def _live(
        self,
        context: ProcessContext,
        main: Callable[[World], Awaitable[Result]],
        guard: Guard,
    ) -> list[Result]:
        results: list[Result] = []
        run = trio.CancelScope()
        guard.set()
        with self.clock.running(run.cancel), run:
            async with trio.open_nursery() as nursery:
                world = World(context, nursery)
                try:
                    results.append(await main(world))
                finally:
                    world.end()
                    nursery.cancel_scope.cancel()
        guard.lift()
        return results


@contextmanager
def _garbage_collected_rarely() -> Generator[None]:
    """Collect cyclic garbage rarely; it would take up to a fifth of the time.

    A simulation keeps most of its objects to the end, and the collector would scan them repeatedly.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _sole(error: BaseException) -> BaseException:
    """Return the only error in a nursery's exception group."""
    errors: Sequence[BaseException] = getattr(error, "exceptions", ())
    return _sole(errors[0]) if len(errors) == 1 else error
