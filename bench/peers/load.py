"""A program that loads a system: `python -m bench.peers.load ORDER`, a process of its own.

It connects, writes a line when it is ready, begins when it receives a line, and writes its outcome.
The work before and after that is not measured.
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
"""Limit of messages that a paced producer sends at once."""


@final
class Gate:
    """Barrier at the start of a role, with the times of its start and end."""

    def __init__(self) -> None:
        """Create a closed gate."""
        self.arrived: list[float] = []
        """Seconds from due to arrived, of messages with a due time."""
        self._began = self._ended = 0.0
        self._cpu = 0.0

    def open(self) -> float:
        """Report that the role is connected; wait for the start and return its time."""
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        self._cpu = process_time()
        self._began = perf_counter()
        return self._began

    def close(self) -> None:
        """Record the end: everything is acknowledged, and later work is not measured."""
        self._ended = perf_counter()
        self._cpu = process_time() - self._cpu

    def saw(self, value: bytes) -> None:
        """Record the arrival of a message; ignore messages without a due time."""
        due = value[:CLOCK_BYTES]
        if due.isdigit():
            self.arrived.append(perf_counter() - int(due) / 1e9)

    def outcome(self, count: int) -> Outcome:
        """Return the outcome of the role."""
        assert self._ended, "the role did not close the gate"
        return Outcome(self._began, self._ended, self._cpu, count, percentiles(self.arrived))


Role = Callable[[Order, Gate], None]


def make_values(order: Order) -> list[bytes]:
    """Return the ordered number of values, from a limited set of objects."""
    size = order.value_bytes
    pool_count = min(_POOL_COUNT_MAX, max(_POOL_BYTES_MAX // size, 1), order.count)
    pool = [(b"value %012d " % number * (size // 19 + 1))[:size] for number in range(pool_count)]
    whole, rest = divmod(order.count, pool_count)
    return pool * whole + pool[:rest]


def due_value(due: float, filler: bytes) -> bytes:
    """Return a value with its due time, as long as `filler`."""
    return b"%0*d" % (CLOCK_BYTES, int(due * 1e9)) + filler[CLOCK_BYTES:]


def delayed_values(order: Order, count: int, delay_s: float) -> list[bytes]:
    """Return values of messages sent now and due after a delay."""
    return [due_value(perf_counter() + delay_s, b"." * order.value_bytes)] * count


@final
class Expiries:
    """Expiry times of received messages, by their distinct values."""

    def __init__(self, gate: Gate, lease_s: float) -> None:
        """Create an empty record."""
        self._gate = gate
        self._lease_s = lease_s
        self._due: dict[bytes, float] = {}

    @property
    def count(self) -> int:
        """Number of messages received for the first time."""
        return len(self._due)

    def took(self, asked_at: float, value: bytes) -> None:
        """Record the first receive of a message, requested at `asked_at`."""
        assert value not in self._due, "a message expired before all were received"
        self._due[value] = asked_at + self._lease_s

    def came_again(self, value: bytes) -> None:
        """Record the lateness of a redelivery."""
        self._gate.arrived.append(perf_counter() - self._due[value])


@final
class Pace:
    """Schedule of the messages to send."""

    def __init__(self, order: Order, began: float) -> None:
        """Begin the schedule; the first message is due at `began`."""
        self.sent = 0
        self._order = order
        self._schedule = Schedule(began, order.rate, order.count)
        self._filler = b"." * order.value_bytes

    @property
    def is_over(self) -> bool:
        """Whether all messages are sent."""
        return self.sent == self._order.count

    def take(self, count_max: int) -> list[bytes]:
        """Return the due messages and count them as sent; some carry their due time."""
        due = min(self._schedule.due_count(perf_counter()), self.sent + count_max)
        every, due_at = self._order.sample_every, self._schedule.due_at
        values = [
            self._filler if number % every else due_value(due_at(number), self._filler)
            for number in range(self.sent, due)
        ]
        self.sent = due
        return values

    def delay(self) -> float:
        """Return the seconds until the next message is due."""
        return max(self._schedule.due_at(self.sent) - perf_counter(), 0)


@final
class Shared:
    """Messages that the threads of a load process have yet to handle."""

    def __init__(self, order: Order) -> None:
        """Begin with all messages of an order, in batches."""
        self._order = order
        self._next = 0
        self._done = 0
        self._lock = threading.Lock()
        self.is_done = threading.Event()
        """Event that is set when all messages are done."""

    def take(self) -> slice | None:
        """Return the messages to send next, or `None` at the end."""
        with self._lock:
            if self._next >= self._order.count:
                return None
            taken = slice(self._next, min(self._next + self._order.batch, self._order.count))
            self._next = taken.stop
            return taken

    @property
    def left(self) -> int:
        """Number of messages that are not done."""
        return self._order.count - self._done

    def done(self, count: int) -> None:
        """Count messages as received and deleted."""
        with self._lock:
            self._done += count
            if not self.left:
                self.is_done.set()


def in_threads(
    function: Callable[[int], None], count: int, gate: Gate, *, shared: Shared | None = None
) -> None:
    """Run a function in `count` threads when the gate opens; each gets its number.

    It returns when all threads have ended, or, for workers that wait for messages, when all
    messages are done (`shared`).

    Raises:
        Exception: The first exception of a thread.
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
    """A load process did not end in time, because its system does not answer."""


@final
class LoadProcess:
    """Load process, as its parent sees it."""

    def __init__(self, order: Order) -> None:
        """Start the process."""
        self._order = order
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.load", json.dumps(asdict(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def wait_ready(self) -> None:
        """Wait until the process is connected.

        Raises:
            RuntimeError: The process failed.
            HangError: The process did not answer in time.
        """
        self._read()

    def begin(self) -> None:
        """Start the load."""
        self._write("begin")

    def outcome(self) -> Outcome:
        """Wait for the outcome and the end of the process.

        Raises:
            RuntimeError: The process failed; its standard error says why.
            HangError: The process did not answer in time.
        """
        outcome = self.read_outcome()
        self._process.communicate()
        return outcome

    def read_outcome(self) -> Outcome:
        """Wait for the outcome; the process stays for another order.

        Raises:
            RuntimeError: The process failed; its standard error says why.
            HangError: The process did not answer in time.
        """
        return Outcome(**json.loads(self._read()))

    def go_on(self, order: Order) -> None:
        """Send another order of the same system."""
        self._order = order
        self._write(json.dumps(asdict(order)))

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
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
    """Run load processes concurrently; return their outcomes."""
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
    """Process that creates and deletes the topics and queues of one system, unmeasured.

    It stays, because a new process for each order would take as long as the measurement.
    """

    def __init__(self) -> None:
        """Create the runner without a process."""
        self._process: LoadProcess | None = None

    def run(self, order: Order) -> None:
        """Execute an order; after a failure the next order starts another process.

        Raises:
            RuntimeError: The process failed.
            HangError: The process did not answer in time.
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
        """Stop the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None


def main(text: str) -> None:
    """Execute an order, and further orders from standard input."""
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
