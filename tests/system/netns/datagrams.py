"""Reachability in a network with cut directions, by datagrams: `test_network` reads the output.

Datagrams between two machines keep their order here, so the next one reveals a loss.
"""

import subprocess
import sys
from typing import Final, final

import trio

from tests.system.netns.network import CLIENTS, Network, address_of, inside

_MACHINES: Final = (CLIENTS, 1, 2)

_MACHINE: Final = """
import socket, sys, threading
own = sys.argv[1]
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((own, 9))
print("ready", flush=True)
def send():
    for line in sys.stdin:
        target, text = line.split()
        sock.sendto(text.encode(), (target, 9))
threading.Thread(target=send, daemon=True).start()
while True:
    print(sock.recv(99).decode(), flush=True)
"""


@final
class _Machine:
    """A machine that sends datagrams on command, and prints those that it receives."""

    def __init__(self, number: int) -> None:
        prefix = [] if number == CLIENTS else inside(number)
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-c", _MACHINE, address_of(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.hear() == "ready"

    def send(self, target: int, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{address_of(target)} {text}\n")

    def hear(self) -> str:
        """Return the next datagram."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


async def _main() -> None:
    network = Network(_MACHINES[1:])
    machines = [_Machine(number) for number in _MACHINES]

    def say(what: str, source: int, target: int) -> None:
        machines[source].send(target, what)
        _print(f"{source} to {target}: {machines[target].hear()}")

    await network.cut([(1, 2)])
    machines[1].send(2, "while-cut")
    say("the-other-way", 2, 1)
    say("to-another", 1, CLIENTS)
    say("from-another", CLIENTS, 2)
    await network.cut([(1, 2)])
    await network.heal([(1, 2)])
    machines[1].send(2, "healed-once-of-two")
    await network.heal([(1, 2)])
    say("healed", 1, 2)
    for machine in machines:
        machine.end()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    trio.run(_main)
