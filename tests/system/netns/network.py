"""Network of Linux network namespaces: brokers, clients, and a router between all of them.

Every machine has one link, to the router, which forwards all packets between two machines. A rule
of the router that matches source and destination drops packets in one direction alone, unnoticed by
their sender; only `ip` is needed for that.
"""

import subprocess
from collections import Counter
from collections.abc import Iterable
from typing import Final, final

import trio

CLIENTS: Final = 0
"""The machine of the clients: the namespace of this process."""
_ROUTER: Final = "router"
_MANY: Final = 1000

# Reverse path filtering is off: a rule for one direction would affect the other one.
_FORWARD: Final = (
    "echo 1 > /proc/sys/net/ipv4/ip_forward;"
    " for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $each; done"
)


def address_of(machine: int) -> str:
    """Return the address of a broker, by node id, or of `CLIENTS`."""
    return f"10.77.{machine}.2"


def inside(machine: int) -> list[str]:
    """Return the prefix of a command for a machine other than `CLIENTS`."""
    return ["ip", "netns", "exec", _name(machine)]


@final
class Network:
    """The links between machines, which can be cut, each in each direction.

    Invariant: while no task changes them, the router has rules against the directions in `_cuts`.
    """

    def __init__(self, node_ids: Iterable[int]) -> None:
        """Create the namespaces; this process must have its own network and mount namespaces.

        Raises:
            subprocess.CalledProcessError: This is not allowed here.
        """
        self._cuts: Counter[tuple[int, int]] = Counter()
        self._cut: set[tuple[int, int]] = set()
        """Directions that the router has rules against."""
        self._changing = trio.Lock()
        _ip([f"netns add {_ROUTER}", "link set lo up"])
        for machine in (CLIENTS, *node_ids):
            _connect(machine)
        subprocess.run(["ip", "netns", "exec", _ROUTER, "sh", "-c", _FORWARD], check=True)

    async def cut(self, directions: Iterable[tuple[int, int]]) -> None:
        """Drop all packets in these directions, from one machine to another."""
        self._cuts.update(directions)
        await self._follow()

    async def heal(self, directions: Iterable[tuple[int, int]]) -> None:
        """Undo one `cut` of these directions; others may remain."""
        self._cuts.subtract(directions)
        assert min(self._cuts.values()) >= 0, "the direction was not cut"
        await self._follow()

    async def _follow(self) -> None:
        """Update the rules of the router; not to be cancelled."""
        with trio.CancelScope(shield=True):
            async with self._changing:
                wanted = {direction for direction, count in self._cuts.items() if count}
                commands = [f"rule del priority {_priority(each)}" for each in self._cut - wanted]
                for source, target in wanted - self._cut:
                    commands.append(
                        f"rule add from {address_of(source)} to {address_of(target)} blackhole"
                        f" priority {_priority((source, target))}"
                    )
                self._cut = wanted
                if commands:
                    await trio.run_process(
                        ["ip", "-n", _ROUTER, "-batch", "-"], stdin="\n".join(commands).encode()
                    )


def _name(machine: int) -> str:
    return f"node-{machine}"


def _priority(direction: tuple[int, int]) -> int:
    source, target = direction
    return _MANY * (source + 1) + target


def _connect(machine: int) -> None:
    here = "" if machine == CLIENTS else f"-n {_name(machine)} "
    if machine != CLIENTS:
        _ip([f"netns add {_name(machine)}"])
    target = f" netns {_name(machine)}" if here else ""
    _ip([f"link add uplink{target} type veth peer name link{machine} netns {_ROUTER}"])
    gateway = f"10.77.{machine}.1"
    _ip(
        [
            f"{here}address add {address_of(machine)}/24 dev uplink",
            f"{here}link set uplink up",
            f"{here}link set lo up",
            f"-n {_ROUTER} address add {gateway}/24 dev link{machine}",
            f"-n {_ROUTER} link set link{machine} up",
            f"{here}route add default via {gateway}",
        ]
    )


def _ip(commands: list[str]) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
