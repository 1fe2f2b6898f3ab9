"""What the benchmark asks of a system. Pure: declarations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.promises import Promise
from bench.peers.servers import Servers


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that is on this disk."""

    root: Path
    """All of it, and nothing else."""
    version: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """What its programs need."""


Start = Callable[[Installed, Path, Promise], Servers]


@dataclass(frozen=True, slots=True)
class System:
    """A system, and how it is measured."""

    name: str
    """As it is called on the command line, and in the names of modules."""
    title: str
    client: str
    """The distribution of the Python client."""
    install: Callable[[Path], Installed]
    """Put it below a directory; what is there already stays.

    Raises:
        NotAvailableError: It cannot be had here.
    """
    start: Start
    """Start servers with data below a directory, and return when they are ready."""
    settings: Mapping[Promise, Sequence[str]]
    """What is set for each promise; everything else is as it comes."""
    promises: Mapping[str, Sequence[Promise]]
    """By role: `log`, of topics or streams; `queue`, of work that is received and deleted."""
    warm_up_s: float = 2.0
    """How long a log system works before it is measured, at least."""
    remarks: Sequence[str] = ()
    """What a reader has to know: what it does not promise, what was left out."""
