"""The command: `python -m bench.peers [--quick] [--only goals] [--peers NAMES] [NAME ...]`."""

import argparse
import io
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import gmtime, strftime
from typing import Final

from bench.machine import ROOT, describe
from bench.peers.asyncio_clients import ASYNCIO
from bench.peers.beanstalkd import BEANSTALKD
from bench.peers.cases import Wanted, Workload, make_groups
from bench.peers.drain import DRAIN
from bench.peers.elasticmq import ELASTICMQ
from bench.peers.footprint import FOOTPRINT
from bench.peers.kafka import KAFKA
from bench.peers.late import LATE
from bench.peers.latency import LATENCY
from bench.peers.measuring import Session, say
from bench.peers.native import NATIVE
from bench.peers.nats import NATS
from bench.peers.own import TIDELOG
from bench.peers.packages import NotAvailableError
from bench.peers.promises import Promise
from bench.peers.queue_work import QUEUES
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.rates import RATES
from bench.peers.redis import REDIS
from bench.peers.report import make_report
from bench.peers.results import OWN, LeftOut, RowId, RowResult, Store
from bench.peers.spark import SPARK
from bench.peers.systems import Installed, System

_PROFILES: Final = Path(__file__).with_name("profiles.md")
_SYSTEMS: Final = {
    system.name: system for system in (TIDELOG, KAFKA, NATS, RABBITMQ, REDIS, BEANSTALKD, ELASTICMQ)
}
_WORKLOADS: Final[Mapping[str, Workload]] = {
    workload.name: workload
    for workload in (RATES, QUEUES, LATENCY, ASYNCIO, SPARK, NATIVE, DRAIN, LATE, FOOTPRINT)
}
_MINUTES: Final = 75.0
_REPORT: Final = "report"
_HERE: Final = Path(__file__).resolve().parent
_BUILD: Final = ROOT / "build" / "peers"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Measure tidelog beside other systems, in turn, on this machine.",
        epilog="Example: python -m bench.peers --quick rates --peers kafka",
    )
    names = [*_WORKLOADS, _REPORT]
    peers = [name for name in _SYSTEMS if name != OWN]
    promises = [promise.value for promise in Promise]
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="rough figures in some minutes")
    parser.add_argument("--only", choices=["goals"], help="only rows that a goal is for")
    parser.add_argument("--repeats", type=int, help="repetitions (default: 5; 3 if --quick)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=_MINUTES,
        help=f"begin no row that would end after this (default: {_MINUTES:g})",
    )
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
        "--since", metavar="COMMIT", help="compare the report with the results of this commit"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=_BUILD / "data",
        help="where to put data while it runs; the disk to be measured (default: build/peers/data)",
    )
    parsed = parser.parse_args(arguments)
    given_names = [
        (parsed.names, names),
        (parsed.peers.split(","), peers),
        (parsed.promises.split(","), promises),
    ]
    for given, known in given_names:
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if parsed.repeats is None:
        parsed.repeats = 3 if parsed.quick else 5
    if parsed.repeats < 1:
        parser.error("--repeats has to be 1 at least")
    return parsed


def _install(names: Sequence[str], store: Store) -> dict[str, tuple[System, Installed]]:
    """Install the named systems; leave out unavailable ones, with a line that says why."""
    found: dict[str, tuple[System, Installed]] = {}
    for name in names:
        system = _SYSTEMS[name]
        store.begin("", "", name)
        try:
            found[name] = system, system.install(_BUILD / name)
        except (NotAvailableError, OSError) as error:
            left_out = LeftOut(RowId("", "", ""), name, " ".join(str(error).split()))
            store.leave_out(left_out)
            say(left_out.line())
    return found


def _results_of(commit: str) -> list[RowResult]:
    """Return the results that a commit contains."""
    place = (_HERE / "results").relative_to(ROOT)
    command = ["git", "archive", commit, str(place)]
    packed = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(directory, filter="data")
        return Store(Path(directory) / place).load()


def _write(store: Store, directory: Path, *, since: str | None) -> None:
    """Write the report of all stored results; a quick run has its own file."""
    profiles = _PROFILES.read_text(encoding="utf-8")
    report = make_report(
        store.load(),
        _SYSTEMS.values(),
        store.left_out(),
        earlier=_results_of(since) if since else [],
        profiles=profiles,
    )
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
    parsed = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, _leave)  # Servers stop at the end of their `with` blocks.
    store = Store(
        _BUILD / "results" if parsed.quick else _HERE / "results",
        machine=describe(),
        date=strftime("%Y-%m-%d", gmtime()),
    )
    directory = _BUILD if parsed.quick else _HERE.parent
    if parsed.names != [_REPORT]:
        _measure(parsed, store, directory)
    _write(store, directory, since=parsed.since)
    return 0


def _measure(parsed: argparse.Namespace, store: Store, directory: Path) -> None:
    """Measure; write the report after each workload, so that an interrupted run has one."""
    systems = _install([OWN, *parsed.peers.split(",")], store)
    store.versions = {name: installed.version for name, (_, installed) in systems.items()}
    wanted = Wanted(
        [Promise(text) for text in parsed.promises.split(",")],
        is_quick=parsed.quick,
        text=parsed.cases,
        is_goals_only=parsed.only == "goals",
    )
    names = [name for name in parsed.names or _WORKLOADS if name != _REPORT]
    groups = make_groups(
        [_WORKLOADS[name] for name in names],
        {name: system for name, (system, _) in systems.items()},
        wanted,
    )
    parsed.directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="peers-", dir=parsed.directory))
    seconds_max = parsed.minutes * 60
    session = Session(systems, place, store, parsed.repeats, parsed.quick, seconds_max)
    expected = sum(group.seconds(parsed.repeats + 1) for group in groups)
    say(f"{sum(len(group.cases) for group in groups)} rows; about {expected / 60:.0f} minutes")
    try:
        for _ in session.run(groups):
            _write(store, directory, since=parsed.since)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
