"""The command: `python -m bench.peers [--quick] [--peers NAMES] [NAME ...]`."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import gmtime, perf_counter, strftime
from typing import Final

from bench.machine import ROOT, describe
from bench.peers import footprint, latency, native, queue_work, rates
from bench.peers.beanstalkd import BEANSTALKD
from bench.peers.kafka import KAFKA
from bench.peers.measuring import OWN, Session, say
from bench.peers.nats import NATS
from bench.peers.own import TIDELOG
from bench.peers.packages import NotAvailableError
from bench.peers.promises import Promise
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.redis import REDIS
from bench.peers.report import make_report
from bench.peers.results import Store
from bench.peers.systems import Installed, System

_SYSTEMS: Final = {
    system.name: system for system in (TIDELOG, KAFKA, NATS, RABBITMQ, REDIS, BEANSTALKD)
}
_WORKLOADS: Final[Mapping[str, Callable[[Session], None]]] = {
    "rates": rates.run,
    "native": native.run,
    "queues": queue_work.run,
    "latency": latency.run,
    "footprint": footprint.run,
}
_HERE: Final = Path(__file__).resolve().parent
_BUILD: Final = ROOT / "build" / "peers"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Measure tidelog beside other systems, in turn, on this machine.",
        epilog="Example: python -m bench.peers --quick rates --peers kafka",
    )
    names = [*_WORKLOADS, "report"]
    peers = [name for name in _SYSTEMS if name != OWN]
    promises = [promise.value for promise in Promise]
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="rough figures in some minutes")
    parser.add_argument(
        "--peers", default=",".join(peers), help=f"separated by commas (default: {','.join(peers)})"
    )
    parser.add_argument(
        "--promises",
        default=",".join(promises),
        help=f"separated by commas (default: {','.join(promises)})",
    )
    parser.add_argument(
        "--cases", default="", help='only rows with this in them, such as "100 B 01"'
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=_BUILD / "data",
        help="where to put data while it runs; the disk to be measured (default: build/peers/data)",
    )
    parsed = parser.parse_args(arguments)
    for given, known in ((parsed.names, names), (parsed.peers.split(","), peers)):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    return parsed


def _install(names: Sequence[str]) -> dict[str, tuple[System, Installed]]:
    """Install what is asked for; who cannot be had is left out, with a line that says why."""
    found: dict[str, tuple[System, Installed]] = {}
    for name in names:
        system = _SYSTEMS[name]
        try:
            found[name] = system, system.install(_BUILD / name)
        except NotAvailableError as error:
            say(f"{name} is left out: {error}")
    return found


def _write(store: Store, directory: Path) -> None:
    """Write the report of all results that are kept: of a quick run not where the full one is."""
    report = make_report(store.load(), _SYSTEMS.values())
    plots = directory / "plots"
    shutil.rmtree(plots, ignore_errors=True)
    plots.mkdir(parents=True)
    for name, svg in report.plots.items():
        (plots / name).write_text(svg, encoding="utf-8")
    (directory / "REPORT.md").write_text(report.text, encoding="utf-8")
    say(f"written: {directory / 'REPORT.md'}")


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    """Measure, and write the report."""
    parsed = _parse(arguments)
    signal.signal(signal.SIGTERM, _leave)  # Servers end with the blocks that started them.
    store = Store(
        _BUILD / "results" if parsed.quick else _HERE / "results",
        machine=describe(),
        date=strftime("%Y-%m-%d", gmtime()),
    )
    names = parsed.names or list(_WORKLOADS)
    if names != ["report"]:
        systems = _install([OWN, *parsed.peers.split(",")])
        store.versions = {name: installed.version for name, (_, installed) in systems.items()}
        parsed.directory.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="peers-", dir=parsed.directory))
        promises = [Promise(text) for text in parsed.promises.split(",")]
        session = Session(systems, directory, store, promises, parsed.quick, parsed.cases)
        try:
            for name in names:
                if name == "report":
                    continue
                began = perf_counter()
                _WORKLOADS[name](session)
                say(f"{name}: {perf_counter() - began:.0f} s")
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    _write(store, _BUILD if parsed.quick else _HERE.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
