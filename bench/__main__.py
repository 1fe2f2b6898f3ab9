"""The command: `python -m bench [--quick] [--directory DIR] [NAME ...]`."""

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from time import gmtime, perf_counter, strftime

from bench import (
    access,
    audit,
    authentication,
    commits,
    compacting,
    compaction,
    connections,
    consumer,
    encryption,
    faces,
    failover,
    fetch,
    groups,
    hot_keys,
    idle,
    idle_queues,
    latency,
    machine,
    many_queues,
    members,
    memory,
    message_groups,
    outbox,
    partitions,
    processing,
    produce,
    producer,
    queue_backlog,
    queue_takeover,
    queues,
    quotas,
    replication,
    request,
    spark,
    sqs,
    startup,
    strangers,
    takeover,
    tls,
    transactions,
)
from bench.figures import Row, Settings, Workload, table

_WORKLOADS: dict[str, Workload] = {
    "produce": produce.run,
    "fetch": fetch.run,
    "producer": producer.run,
    "consumer": consumer.run,
    "request": request.run,
    "faces": faces.run,
    "access": access.run,
    "audit": audit.run,
    "latency": latency.run,
    "tls": tls.run,
    "strangers": strangers.run,
    "connections": connections.run,
    "authentication": authentication.run,
    "encryption": encryption.run,
    "quotas": quotas.run,
    "idle": idle.run,
    "memory": memory.run,
    "startup": startup.run,
    "groups": groups.run,
    "hot_keys": hot_keys.run,
    "message_groups": message_groups.run,
    "compaction": compaction.run,
    "compacting": compacting.run,
    "failover": failover.run,
    "partitions": partitions.run,
    "members": members.run,
    "commits": commits.run,
    "processing": processing.run,
    "transactions": transactions.run,
    "replication": replication.run,
    "takeover": takeover.run,
    "outbox": outbox.run,
    "queues": queues.run,
    "queues_replicated": queues.run_replicated,
    "queue_backlog": queue_backlog.run,
    "idle_queues": idle_queues.run,
    "many_queues": many_queues.run,
    "queue_takeover": queue_takeover.run,
    "sqs": sqs.run,
    "spark": spark.run,
}
_HERE = Path(__file__).resolve().parent
_README = _HERE / "README.md"
_RESULTS_BEGIN = "<!-- results: written by a full run -->\n"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the speed of tidelog against ceilings in the same run.",
        epilog="A full run of everything takes some ten minutes, needs 15 GB of disk and writes"
        " its results into bench/README.md. Example: python -m bench --quick produce fetch",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(_WORKLOADS)}")
    parser.add_argument("--quick", action="store_true", help="rough figures in about a minute")
    parser.add_argument(
        "--directory",
        type=Path,
        default=machine.ROOT / "build" / "bench",
        help="where to put data while it runs; the disk to be measured (default: build/bench)",
    )
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.names if name not in _WORKLOADS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(_WORKLOADS)}")
    return parsed


def _measure(name: str, parent: Path, *, is_quick: bool) -> list[Row]:
    """Run one workload in a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        return _WORKLOADS[name](Settings(directory, is_quick))
    except Exception as error:  # noqa: BLE001  (the other workloads are still worth measuring)
        traceback.print_exc()
        return [Row(f"{name}: failed", f"{type(error).__name__}: {error}", "no error", False)]
    finally:
        shutil.rmtree(directory)


def _write(text: str, *, is_complete: bool) -> None:
    results = _HERE / "results"
    results.mkdir(exist_ok=True)
    (results / f"{strftime('%Y%m%dT%H%M%SZ', gmtime())}.md").write_text(text, encoding="utf-8")
    if is_complete:
        before, marker, _ = _README.read_text(encoding="utf-8").partition(_RESULTS_BEGIN)
        assert marker, "bench/README.md has lost the place for results"
        _README.write_text(f"{before}{marker}\n{text}", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure, print and write the results; return 1 if a goal is missed."""
    parsed = parse_arguments(arguments)
    names = parsed.names or list(_WORKLOADS)
    parsed.directory.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name in names:
        began = perf_counter()
        print(f"{name} ...", end="", file=sys.stderr, flush=True)
        rows += _measure(name, parsed.directory, is_quick=parsed.quick)
        print(f" {perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    command = " ".join(["python -m bench", *arguments])
    date = strftime("%Y-%m-%d", gmtime())
    text = f"`{command}` on {date}, {machine.describe()}:\n\n{table(rows)}\n"
    print(text)
    _write(text, is_complete=not parsed.quick and not parsed.names)
    return 1 if any(row.is_met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
