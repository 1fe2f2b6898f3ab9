"""Count the Python calls of broker and client for one request of each kind.

    python -m bench.calls                    # a table; status 1 if it is not within the budget
    python -m bench.calls receive work       # only these kinds
    python -m bench.calls --show receive     # by function
    python -m bench.calls --write-budget     # after an improvement: lower bench/budget.py

Broker and client are processes of their own; each has one core. Their clocks nearly stand still
meanwhile, so that the counts do not depend on the speed of the machine.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, final

import msgspec
import trio

import tidelog
from bench import budget
from bench.budget import BUDGET, COUNTED_ON, Breach, Cost, breaches, lowered
from bench.call_counter import CallCounter
from bench.machine import ServerProcess
from bench.single_requests import KINDS, MESSAGE, SETTINGS, WHAT, create_all
from bench.slow_clock import SlowClock

_ROUNDS: Final = 3
_COUNT: Final = 50
"""Requests of a round."""
_FEWER: Final = {"staged": 10}
"""Requests of kinds that take long."""
_TURN: Final = "trio/_core/_io_epoll.py:EpollIOManager.get_events"
_TOP: Final = 10
_SHOWN_MIN: Final = 0.2
"""Calls for a request below which a function is not shown."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls of one side for a number of requests."""

    count: int
    calls: Mapping[str, int]
    """Numbers of calls by function."""

    @property
    def cost(self) -> float:
        """Calls for one request."""
        return sum(self.calls.values()) / self.count

    @property
    def turns(self) -> float:
        """Turns of the loop for one request."""
        return self.calls.get(_TURN, 0) / self.count

    def functions(self, limit: int) -> list[str]:
        """Return the functions with most calls, as lines."""
        return [
            f"{number / self.count:9.2f}  {name}"
            for name, number in Counter(self.calls).most_common(limit)
            if number / self.count >= _SHOWN_MIN
        ]


@dataclass(frozen=True, slots=True)
class Measured:
    """Calls of both sides for requests of one kind."""

    broker: Counts
    client: Counts

    @property
    def cost(self) -> Cost:
        """Costs of one request."""
        return Cost(self.broker.cost, self.client.cost, self.client.turns)

    def side(self, name: str) -> Counts:
        """Return the calls that a field of `Cost` is about."""
        return self.broker if name == "broker" else self.client


@final
class CountedBroker:
    """Broker in a process of its own, whose calls are counted."""

    def __init__(self, process: ServerProcess, fifo: Path) -> None:
        """Control a process that was started with the FIFO."""
        self._process = process
        self._fifo = fifo

    def start(self) -> None:
        """Begin to count."""
        self._signal(signal.SIGUSR1)

    def stop(self) -> Counter[str]:
        """End it and return the numbers of calls by function."""
        return Counter(dict(self._signal(signal.SIGUSR2)))

    def _signal(self, number: signal.Signals) -> list[tuple[str, int]]:
        os.kill(self._process.pid, number)
        return msgspec.json.decode(self._fifo.read_bytes(), type=list[tuple[str, int]])


@final
class _Session:
    """A broker whose calls are counted, and a client of it in this process."""

    def __init__(self, broker: CountedBroker, client: tidelog.Client, clock: SlowClock) -> None:
        self._broker = broker
        self._client = client
        self._clock = clock

    async def count(self, name: str) -> Measured:
        """Count some rounds; the lowest count of each side is what a request needs."""
        count = _FEWER.get(name, _COUNT)
        async with KINDS[name](self._client, count) as run:
            await run()  # Connects and imports.
        rounds = [await self._round(name, count) for _ in range(_ROUNDS)]
        return Measured(
            min((each.broker for each in rounds), key=lambda counts: counts.cost),
            min((each.client for each in rounds), key=lambda counts: counts.cost),
        )

    async def _round(self, name: str, count: int) -> Measured:
        counter = CallCounter()
        async with KINDS[name](self._client, count) as run:
            self._broker.start()
            self._clock.slow_down(is_slow=True)
            counter.start()
            await run()
            calls = counter.stop()
            self._clock.slow_down(is_slow=False)
            return Measured(Counts(count, self._broker.stop()), Counts(count, calls))


def count_calls(
    names: Sequence[str], directory: Path, *, durability: str = "replicated", partitions: int = 1
) -> dict[str, Measured]:
    """Count the calls of kinds of requests.

    Args:
        names: Names of the kinds.
        directory: An empty directory, for the broker.
        durability: Durability of the topics.
        partitions: Number of partitions of the queue.
    """
    fifo = directory / "calls"
    os.mkfifo(fifo)
    arguments = ["--data-dir", str(directory / "data"), "--log-format", "json"]

    clock = SlowClock()

    async def main(broker: CountedBroker, address: str) -> dict[str, Measured]:
        async with tidelog.connect(address) as client:
            await create_all(client, durability, partitions=partitions)
        found: dict[str, Measured] = {}
        for name in names:
            # Requests of another kind may still wait at the broker on its connection.
            async with tidelog.connect(address) as client:
                found[name] = await _Session(broker, client, clock).count(name)
        return found

    words = ["bench.counted_broker", str(fifo), "serve", "--listen", "127.0.0.1:0", *arguments]
    with ServerProcess(words, **SETTINGS) as process:
        host, port = process.address
        return trio.run(main, CountedBroker(process, fifo), f"{host}:{port}", clock=clock)


def _print_table(found: dict[str, Measured]) -> None:
    print(f"{'Python calls':12}{'broker':>10}{'client':>10}{'turns':>8}")
    for name, counts in found.items():
        _print_line(name, counts.cost, WHAT[name])
    if all(name in found for name in MESSAGE):
        costs = [found[name].cost for name in MESSAGE]
        _print_line(
            "a message",
            Cost(
                sum(cost.broker for cost in costs),
                sum(cost.client for cost in costs),
                sum(cost.turns for cost in costs),
            ),
            "the three calls",
        )


def _print_line(name: str, cost: Cost, what: str) -> None:
    print(f"{name:12}{cost.broker:10.1f}{cost.client:10.1f}{cost.turns:8.2f}  {what}")


def _write_budget(found: dict[str, Measured]) -> None:
    """Replace the lines of the measured kinds in the budget."""
    path = Path(budget.__file__)
    text = path.read_text(encoding="utf-8")
    for name, counts in found.items():
        cost = counts.cost
        parts = (
            f"{each.name}={lowered(name, getattr(cost, each.name)):g}" for each in fields(Cost)
        )
        line = f'    "{name}": Cost({", ".join(parts)}),'
        text, count = re.subn(rf'^    "{name}": Cost\(.*\),$', line, text, flags=re.MULTILINE)
        assert count == 1, f"the budget has {count} lines of {name}"
    path.write_text(text, encoding="utf-8")


def _print_breaches(found: Sequence[Breach], counts: dict[str, Measured]) -> None:
    for breach in found:
        print(f"NOT WITHIN THE BUDGET (bench/budget.py): {breach.text}")
        if breach.is_too_high:
            print("  most calls for one request:")
            print(*counts[breach.kind].side(breach.side).functions(_TOP), sep="\n")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.calls",
        description="Count the Python calls of broker and client for one request of each kind.",
    )
    parser.add_argument("names", metavar="KIND", nargs="*", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--show", metavar="KIND", choices=KINDS, help="list functions of a kind")
    parser.add_argument("--limit", type=int, default=60, help="functions to list (default: 60)")
    parser.add_argument("--write-budget", action="store_true", help="make these the budget")
    parser.add_argument("--durability", default="replicated", help="or fsync; default: replicated")
    parser.add_argument("--partitions", type=int, default=1, help="of the queue; default: 1")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - set(KINDS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return parsed


def main(arguments: Sequence[str]) -> int:
    """Count, print, and return 1 if a count is not within its budget."""
    parsed = _parse(arguments)
    names = [parsed.show] if parsed.show else parsed.names or list(KINDS)
    with tempfile.TemporaryDirectory(prefix="calls-") as directory:
        found = count_calls(
            names, Path(directory), durability=parsed.durability, partitions=parsed.partitions
        )
    _print_table(found)
    if parsed.show:
        for side in ("broker", "client"):
            print(f"-- {side}", *found[parsed.show].side(side).functions(parsed.limit), sep="\n")
    if parsed.write_budget:
        _write_budget(found)
        return 0
    is_exact = sys.version_info[:2] == COUNTED_ON
    broken = [
        breach
        for name, counts in found.items()
        for breach in breaches(name, counts.cost, BUDGET[name], is_exact=is_exact)
    ]
    _print_breaches(broken, found)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
