"""The simulated network: hosts, the links between them, and their faults."""

import errno
import os
import socket
from collections.abc import Callable, Iterable
from typing import final

import trio

from tests.simulation.machine.clock import SimulatedClock
from tests.simulation.machine.keepalive import KeepAlive
from tests.simulation.machine.link import INSTANT, LOOPBACK, Flow, Link, LinkQuality
from tests.simulation.machine.random_streams import RandomStreams
from tests.simulation.machine.tcp import SimulatedListener, SimulatedStream, Wait, connect_ends
from tests.simulation.trace import Trace
from tidelog.wire.env.env import Listener, Stream

_EPHEMERAL_PORT_FIRST = 49_152
_PORT_MAX = 65_535
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
_CONNECT_ATTEMPTS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Timeouts of Linux for each SYN, in seconds."""


@final
class Host:
    """A machine as the network sees it."""

    def __init__(self, name: str) -> None:
        """Start with power and without listeners."""
        self.name = name
        self.is_on = True
        self.listeners: dict[int, SimulatedListener] = {}
        self.descriptors_are_gone = False
        """Whether accepting fails because the process has too many open files."""
        self._next_port = _EPHEMERAL_PORT_FIRST

    def free_port(self) -> int:
        """Return an unused port, another one each time."""
        port = self._next_port
        self._next_port += 1
        if self._next_port > _PORT_MAX:
            self._next_port = _EPHEMERAL_PORT_FIRST
        return port if port not in self.listeners else self.free_port()


@final
class SimulatedNetwork:
    """All hosts of a world, and the links between them."""

    def __init__(self, clock: SimulatedClock, streams: RandomStreams, trace: Trace) -> None:
        """Start without hosts."""
        self.clock = clock
        self.trace = trace
        self.quality = LinkQuality()
        """Quality of new links between hosts."""
        self.window_bytes = 64 << 10
        """Maximum unread bytes of a stream; applies to new connections."""
        self.connection_count = 0
        self.instant_hosts: set[str] = set()
        """Hosts whose packets take no time over any link."""
        self.on_connected: Callable[[str, str, int], Callable[[bytes], None]] | None = None
        """Callback with source, target and number of each new connection; it returns a callback
        for all bytes from the source."""
        self._random_streams = streams
        self._hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._connections: dict[frozenset[str], list[tuple[SimulatedStream, SimulatedStream]]] = {}
        """Both ends of each connection, by its two hosts."""

    def add_host(self, name: str) -> Host:
        """Return a new machine, reachable from all hosts under this name."""
        assert name not in self._hosts, f"a second host {name}"
        self._hosts[name] = Host(name)
        return self._hosts[name]

    def find(self, name: str, *, seen_from: Host) -> Host:
        """Return the host of a name.

        Raises:
            OSError: There is no such host.
        """
        if name in _LOCAL_NAMES or name in _ANY_ADDRESS:
            return seen_from
        if name not in self._hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._hosts[name]

    def link(self, source: str, target: str) -> Link:
        """Return the link from one host to another."""
        key = (source, target)
        if key not in self._links:
            random = self._random_streams.stream(f"link {source}>{target}")
            quality = LOOPBACK if source == target else self.quality
            if not self.instant_hosts.isdisjoint(key):
                quality = INSTANT
            self._links[key] = Link(self.clock, random, quality, receiver=self._hosts[target])
        return self._links[key]

    def set_quality(self, quality: LinkQuality) -> None:
        """Set the quality of all links between hosts, including existing ones."""
        self.quality = quality
        for (source, target), link in self._links.items():
            if source != target and self.instant_hosts.isdisjoint((source, target)):
                link.quality = quality

    def partition(
        self, sources: Iterable[str], targets: Iterable[str], *, one_way: bool = False
    ) -> Callable[[], None]:
        """Block all links from `sources` to `targets`, and back; return the healing function."""
        ways = [(source, target) for source in sources for target in targets if source != target]
        if not one_way:
            ways += [(target, source) for source, target in ways]
        links = [self.link(source, target) for source, target in ways]
        shown = " ".join(f"{source}>{target}" for source, target in ways)
        self.trace.note("network", f"partition {shown}")
        for link in links:
            link.block()

        def heal() -> None:
            self.trace.note("network", f"heal {shown}")
            for link in links:
                link.unblock()

        return heal

    def break_connections(self, one: str, other: str) -> int:
        """Reset every connection between two hosts, as a middlebox does; return their number."""
        broken = self._open_connections(frozenset((one, other)))
        for ends in broken:
            for end in ends:
                end.break_off(os.strerror(errno.ECONNRESET))
        return len(broken)

    def power_changed(self, host: Host) -> None:
        """Resume flows that wait for the power of a host."""
        self.trace.note(host.name, "power is on" if host.is_on else "power is off")
        for (_, target), link in self._links.items():
            if target == host.name:
                link.recover()

    def make_ends(
        self, client: tuple[Host, int], server: tuple[Host, int]
    ) -> tuple[SimulatedStream, SimulatedStream]:
        """Return the two ends of a new connection."""
        self.connection_count += 1
        number = self.connection_count
        near = self._make_end(client, server, number)
        far = self._make_end(server, client, number)
        if self.on_connected is not None:
            near.on_sent = self.on_connected(client[0].name, server[0].name, number)
        connect_ends(near, far)
        hosts = frozenset((client[0].name, server[0].name))
        self._connections[hosts] = [*self._open_connections(hosts), (near, far)]
        return near, far

    def _open_connections(
        self, hosts: frozenset[str]
    ) -> list[tuple[SimulatedStream, SimulatedStream]]:
        connections = self._connections.get(hosts, [])
        return [(near, far) for near, far in connections if near.is_open or far.is_open]

    def _make_end(
        self, here: tuple[Host, int], there: tuple[Host, int], number: int
    ) -> SimulatedStream:
        host, port = here
        link = self.link(host.name, there[0].name)
        label = f"c{number} "
        return SimulatedStream(
            link,
            Flow(self.clock, link),
            local=(host.name, port),
            remote=(there[0].name, there[1]),
            window_bytes=self.window_bytes,
            note=lambda what: self.trace.note(host.name, label + what),
        )


@final
class ProcessNetwork:
    """The network as one process has it; see `wire.env.env.Network`.

    Invariant: it knows every stream and listener of the process, so that none outlives it.
    """

    def __init__(
        self, network: SimulatedNetwork, host: Host, check_alive: Callable[[], None]
    ) -> None:
        """Belong to `host`; `check_alive` raises when the process is dead."""
        self._network = network
        self._host = host
        self._check_alive = check_alive
        self._streams: dict[SimulatedStream, None] = {}
        self._listeners: dict[SimulatedListener, None] = {}

    async def listen(self, host: str, port: int) -> Listener:
        """See `wire.env.env.Network`."""
        self._check_alive()
        await trio.lowlevel.checkpoint()
        self._check_alive()
        _check_port(port)
        if self._network.find(host, seen_from=self._host) is not self._host:
            raise _os_error(errno.EADDRNOTAVAIL)
        listeners = self._host.listeners
        port = port or self._host.free_port()
        if port in listeners:
            raise _os_error(errno.EADDRINUSE)
        listener = SimulatedListener(
            (host, port),
            check_alive=self._check_alive,
            on_accept=self._accepted,
            on_close=lambda closed: self._forget(closed, port),
        )
        listeners[port] = listener
        self._listeners[listener] = None
        return listener

    async def connect(self, host: str, port: int) -> Stream:
        """See `wire.env.env.Network`."""
        self._check_alive()
        _check_port(port)
        target = self._network.find(host, seen_from=self._host)
        near, far = self._network.make_ends((self._host, self._host.free_port()), (target, port))
        handshake = _Handshake(self._network, (self._host, target), (near, far), port=port)
        try:
            await handshake.run()
            self._check_alive()
        except BaseException:
            handshake.cancel()
            raise
        if handshake.error is not None:
            raise handshake.error
        self._take(near)
        return near

    def release(self) -> None:
        """Close all sockets, as the kernel does after the end of the process."""
        for listener in list(self._listeners):
            listener.release()
        for stream in self._streams:
            stream.release()
        self._streams.clear()

    def vanish(self) -> None:
        """Drop all sockets: the machine has lost its power."""
        for listener in self._listeners:
            listener.vanish()
        for stream in self._streams:
            stream.vanish()
        self._host.listeners.clear()
        self._listeners.clear()
        self._streams.clear()

    def _accepted(self, stream: SimulatedStream) -> None:
        self._take(stream)
        if self._host.descriptors_are_gone:
            stream.abort()
            raise _os_error(errno.EMFILE)

    def _take(self, stream: SimulatedStream) -> None:
        stream.check_alive = self._check_alive
        for known in [known for known in self._streams if not known.is_open]:
            del self._streams[known]
        self._streams[stream] = None

    def _forget(self, listener: SimulatedListener, port: int) -> None:
        del self._listeners[listener]
        del self._host.listeners[port]


@final
class _Handshake:
    """The handshake of a connection: SYN, SYN-ACK, ACK; each may be lost."""

    def __init__(
        self,
        network: SimulatedNetwork,
        hosts: tuple[Host, Host],
        ends: tuple[SimulatedStream, SimulatedStream],
        *,
        port: int,
    ) -> None:
        self._clock = network.clock
        self._trace = network.trace
        self._near, self._far = ends
        self._source, self._target = hosts
        self._there = network.link(hosts[0].name, hosts[1].name)
        self._back = network.link(hosts[1].name, hosts[0].name)
        self._port = port
        self._answered = Wait()
        self._attempts = iter(_CONNECT_ATTEMPTS_S)
        self._is_over = False
        self._listener: SimulatedListener | None = None
        self.error: OSError | None = None

    async def run(self) -> None:
        """Return when the connection is made, or `error` has the reason of the failure."""
        self._trace.note(self._source.name, f"connects to {self._target.name}:{self._port}")
        self._ask()
        await self._answered.wait()

    def cancel(self) -> None:
        """Cancel the wait; a reply in flight is dropped."""
        self._is_over = True
        self._near.vanish()

    def _ask(self) -> None:
        if self._is_over:
            return
        patience_s = next(self._attempts, None)
        if patience_s is None:
            self._end(errno.ETIMEDOUT)
        else:
            self._there.carry(self._asked)
            self._clock.call_later(patience_s, self._ask)

    def _asked(self) -> None:
        listener = self._target.listeners.get(self._port)
        is_for_others = self._source is self._target or (
            listener is not None and listener.address[0] not in _LOCAL_NAMES
        )
        if listener is None or not is_for_others or not self._far.is_open:
            self._back.carry(self._refused)
        elif self._listener is not None:  # A repeated SYN; the SYN-ACK was lost.
            self._back.carry(self._accepted)
        elif listener.has_room:
            self._listener = listener
            listener.expect(self._far)
            self._back.carry(self._accepted)

    def _accepted(self) -> None:
        if self._is_over:
            if not self._near.is_open:
                self._near.send_reset()
            return
        self._end(None)
        KeepAlive(self._clock, self._near, there=self._there, back=self._back)
        self._near.confirm(self._confirmed)

    def _confirmed(self) -> None:
        assert self._listener is not None
        if self._far.is_open:
            KeepAlive(self._clock, self._far, there=self._back, back=self._there)
            self._listener.offer(self._far)
        else:
            self._far.send_reset()

    def _refused(self) -> None:
        if not self._is_over:
            self._end(errno.ECONNREFUSED)

    def _end(self, error_number: int | None) -> None:
        self._is_over = True
        if error_number is not None:
            self.error = _os_error(error_number)
            self._near.vanish()
        self._trace.note(
            self._source.name,
            f"connection to {self._target.name}:{self._port}: {self.error or 'made'}",
        )
        self._answered.wake()


def _check_port(port: int) -> None:
    if not 0 <= port <= _PORT_MAX:
        raise OSError(errno.EINVAL, f"port {port} is not between 0 and {_PORT_MAX}")


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
