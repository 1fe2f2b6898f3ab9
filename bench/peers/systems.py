"""Interface of a measured system. Pure: declarations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.promises import Promise
from bench.peers.servers import Servers


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed peer."""

    root: Path
    """Directory with only the peer's files."""
    version: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment of its programs."""


Start = Callable[[Installed, Path, Promise], Servers]


@dataclass(frozen=True, slots=True)
class System:
    """A system and its settings."""

    name: str
    """Name on the command line and in module names."""
    title: str
    client: str
    """The distribution of the Python client."""
    install: Callable[[Path], Installed]
    """Install the system below a directory; existing files stay.

    Raises:
        NotAvailableError: The system is unavailable here.
    """
    start: Start
    """Start servers with data below a directory, and wait until they are ready."""
    settings: Mapping[Promise, Sequence[str]]
    """Settings for each promise; all others have their defaults."""
    promises: Mapping[str, Sequence[Promise]]
    """By role: `log`, of topics or streams; `queue`, of work that is received and deleted."""
    warm_up_s: float = 2.0
    """Least warm-up of a log system, in seconds."""
    remarks: Sequence[str] = ()
    """Notes for the report: missing guarantees, and omissions."""
