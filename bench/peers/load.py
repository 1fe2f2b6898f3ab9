"""A program that loads a system: `python -m bench.peers.load ORDER`, a process of its own.

It connects, writes a line when it is ready, begins when it is sent one, and writes what came of it.
Whatever is done before and after that is not measured.
"""

import json
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from time import perf_counter, process_time
from typing import Final, final

from bench.machine import ROOT
from bench.peers.orders import CLOCK_BYTES, Order, Outcome, Schedule, percentiles

_POOL_BYTES_MAX: Final = 16 << 20
_POOL_COUNT_MAX: Final = 10_000
_PATIENCE_S: Final = 120.0
PACE_COUNT: Final = 1_000
"""Messages that are handed over at once, at most, when they are paced."""


@final
class Gate:
    """Where a role waits until all are ready, and says when it has done."""

    def __init__(self) -> None:
        """Closed."""
        self.arrived: list[float] = []
        """Seconds from due to arrived, of messages that said when they were due."""
        self._began = self._ended = 0.0
        self._cpu = 0.0

    def open(self) -> float:
        """Say that everything is connected; return when the measurement begins: that time."""
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        self._cpu = process_time()
        self._began = perf_counter()
        return self._began

    def close(self) -> None:
        """Say that everything is done and acknowledged; what follows is not measured."""
        self._ended = perf_counter()
        self._cpu = process_time() - self._cpu

    def saw(self, value: bytes) -> None:
        """Note the arrival of a message; of those that do not say when they were due, nothing."""
        due = value[:CLOCK_BYTES]
        if due.isdigit():
            self.arrived.append(perf_counter() - int(due) / 1e9)

    def outcome(self, count: int) -> Outcome:
        """Return what came of it."""
        assert self._ended, "the role did not say when it had done"
        return Outcome(self._began, self._ended, self._cpu, count, percentiles(self.arrived))


Role = Callable[[Order, Gate], None]


def make_values(order: Order) -> list[bytes]:
    """Return so many values as ordered, of which not too many are different objects."""
    size = order.value_bytes
    pool_count = min(_POOL_COUNT_MAX, max(_POOL_BYTES_MAX // size, 1), order.count)
    pool = [(b"value %012d " % number * (size // 19 + 1))[:size] for number in range(pool_count)]
    whole, rest = divmod(order.count, pool_count)
    return pool * whole + pool[:rest]


def due_value(due: float, filler: bytes) -> bytes:
    """Return a value that says when it was due, as long as `filler`."""
    return b"%0*d" % (CLOCK_BYTES, int(due * 1e9)) + filler[CLOCK_BYTES:]


def delayed_values(order: Order, count: int, delay_s: float) -> list[bytes]:
    """Return values of messages that are sent now, and due after a delay."""
    return [due_value(perf_counter() + delay_s, b"." * order.value_bytes)] * count


@final
class Expiries:
    """When messages that were received may be received again; each value stands for one."""

    def __init__(self, gate: Gate, lease_s: float) -> None:
        """None were received yet."""
        self._gate = gate
        self._lease_s = lease_s
        self._due: dict[bytes, float] = {}

    @property
    def count(self) -> int:
        """How many were received for the first time."""
        return len(self._due)

    def took(self, asked_at: float, value: bytes) -> None:
        """Note what was received for the first time, in answer to a question of that time."""
        assert value not in self._due, "one came again before all were received"
        self._due[value] = asked_at + self._lease_s

    def came_again(self, value: bytes) -> None:
        """Note how late it is."""
        self._gate.arrived.append(perf_counter() - self._due[value])


@final
class Pace:
    """What is to be sent when, from now on."""

    def __init__(self, order: Order, began: float) -> None:
        """The first message is due when it began."""
        self.sent = 0
        self._order = order
        self._schedule = Schedule(began, order.rate, order.count)
        self._filler = b"." * order.value_bytes

    @property
    def is_over(self) -> bool:
        """Whether everything was due and is sent."""
        return self.sent == self._order.count

    def take(self, count_max: int) -> list[bytes]:
        """Return what is due now, and count it as sent; one in some says when it was due."""
        due = min(self._schedule.due_count(perf_counter()), self.sent + count_max)
        every, due_at = self._order.sample_every, self._schedule.due_at
        values = [
            self._filler if number % every else due_value(due_at(number), self._filler)
            for number in range(self.sent, due)
        ]
        self.sent = due
        return values

    def delay(self) -> float:
        """Return in how many seconds the next message is due."""
        return max(self._schedule.due_at(self.sent) - perf_counter(), 0)


@final
class Shared:
    """What the threads of a load process have left to do together."""

    def __init__(self, order: Order) -> None:
        """Of all messages of an order, in batches."""
        self._order = order
        self._next = 0
        self._done = 0
        self._lock = threading.Lock()
        self.is_done = threading.Event()
        """Set when all messages are done."""

    def take(self) -> slice | None:
        """Return which messages to send next; `None` when there are no more."""
        with self._lock:
            if self._next >= self._order.count:
                return None
            taken = slice(self._next, min(self._next + self._order.batch, self._order.count))
            self._next = taken.stop
            return taken

    @property
    def left(self) -> int:
        """How many messages are not done."""
        return self._order.count - self._done

    def done(self, count: int) -> None:
        """Say that messages were received and deleted."""
        with self._lock:
            self._done += count
            if not self.left:
                self.is_done.set()


def in_threads(
    function: Callable[[int], None], count: int, gate: Gate, *, shared: Shared | None = None
) -> None:
    """Run a function in so many threads, from when the gate opens; each is given its number.

    It is over when all threads are, or, of workers who wait for messages, when all messages are
    done (`shared`).

    Raises:
        Exception: What a thread raised first.
    """
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            function(number)
        except Exception as error:  # noqa: BLE001  (raised again by the thread that waits)
            failures.append(error)
            if shared is not None:
                shared.is_done.set()

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    gate.open()
    for thread in threads:
        thread.start()
    if shared is not None:
        shared.is_done.wait()
        gate.close()
    for thread in threads:
        thread.join()
    if shared is None:
        gate.close()
    if failures:
        raise failures[0]


class HangError(RuntimeError):
    """A load process does not come to an end: its system lets it wait."""


@final
class LoadProcess:
    """One of them, seen by whoever starts it."""

    def __init__(self, order: Order) -> None:
        """Start it."""
        self._order = order
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.load", json.dumps(asdict(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def wait_ready(self) -> None:
        """Wait until it is connected.

        Raises:
            RuntimeError: It failed.
            HangError: It is not in time.
        """
        self._read()

    def begin(self) -> None:
        """Let it begin."""
        self._write("begin")

    def outcome(self) -> Outcome:
        """Wait until it is over.

        Raises:
            RuntimeError: It failed; it has written why to standard error.
            HangError: It is not in time.
        """
        outcome = self.read_outcome()
        self._process.communicate()
        return outcome

    def read_outcome(self) -> Outcome:
        """Wait for what came of it; it stays, for another order.

        Raises:
            RuntimeError: It failed; it has written why to standard error.
            HangError: It is not in time.
        """
        return Outcome(**json.loads(self._read()))

    def go_on(self, order: Order) -> None:
        """Give it another order, of the same system."""
        self._order = order
        self._write(json.dumps(asdict(order)))

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process.stdout is not None
        order = self._order
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(_PATIENCE_S):
                raise HangError(f"{order.system}: {order.role} takes more than {_PATIENCE_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise RuntimeError(f"{order.system}: {order.role} ended with status {status}")
        return line


def run_loads(orders: Sequence[Order]) -> list[Outcome]:
    """Let load processes work at the same time; return what came of each."""
    processes = [LoadProcess(order) for order in orders]
    try:
        for process in processes:
            process.wait_ready()
        for process in processes:
            process.begin()
        return [process.outcome() for process in processes]
    except BaseException:
        for process in processes:
            process.kill()
        raise


@final
class Errands:
    """What is not measured: topics and queues of one system come and go, by a process that stays.

    To start one for each of them would take as long as what is measured in between.
    """

    def __init__(self) -> None:
        """No process yet."""
        self._process: LoadProcess | None = None

    def run(self, order: Order) -> None:
        """Carry out an order; after a failure the next one gets another process.

        Raises:
            RuntimeError: It failed.
            HangError: It is not in time.
        """
        try:
            if self._process is None:
                self._process = LoadProcess(order)
            else:
                self._process.go_on(order)
            self._process.wait_ready()
            self._process.begin()
            self._process.read_outcome()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None


def main(text: str) -> None:
    """Carry out an order, and all that come by standard input when it is done."""
    while text:
        _carry_out(Order(**json.loads(text)))
        text = sys.stdin.readline()


def _carry_out(order: Order) -> None:
    roles: dict[str, Role] = import_module(f"bench.peers.{order.system}_client").ROLES
    gate = Gate()
    roles[order.role](order, gate)
    sys.stdout.write(json.dumps(asdict(gate.outcome(order.count))) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
