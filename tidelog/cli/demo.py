"""The command `tidelog demo`, which prints the progress and the report of the demonstration."""

import sys
import tempfile
from dataclasses import asdict
from typing import final

import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_fields, print_json
from tidelog.cli.signals import on_signal
from tidelog.demo.flights import Flights, load_flights
from tidelog.demo.spark_story import SparkReport
from tidelog.demo.story import Report, run_demo


@click.command(epilog=examples("tidelog demo", "tidelog demo --json"))
@click.option(
    "--spark/--no-spark",
    "with_spark",
    default=True,
    help="Replay with Spark at the end, if installed.  [--spark]",
)
@json_option
def demo(as_json: bool, with_spark: bool) -> None:
    """Run a demonstration on temporary data.

    Starts a broker on a temporary directory and produces the 27,004 flights that left New York in
    January 2013, keyed by tail number. Half-way it kills the broker (SIGKILL), starts it again, and
    goes on. Then it consumes and compares all records: no acknowledged record may be missing,
    duplicated or out of order per key.

    A queue uses the same bytes: four workers receive and delete all flights. Cancelled flights
    have no delay and become dead letters. Then all records are read once more: messages that a
    queue deletes stay in the log.

    At the end Spark replays the topic, and reads the deletions from the history of the queue. If
    Spark or Java is not installed, one line says what is missing.

    Takes a few seconds, with Spark some twenty more, and leaves no files behind. The exit status
    is 1 if a check fails.
    """
    flights = load_flights()
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-") as data_dir:
        report = trio.run(_run, flights, data_dir, with_spark)
    if as_json:
        print_json(report_as_json(report))
    else:
        click.echo()
        print_fields(report_as_facts(report))
        click.echo()
        if report.without_spark:
            click.echo(f"Skipped the replay with Spark: {report.without_spark}")
        click.echo("All messages that the queue deleted were replayed from the log.")
        click.echo("No acknowledged record is missing, duplicated or out of order.")


async def _run(flights: Flights, data_dir: str, with_spark: bool) -> Report:
    scope = trio.CancelScope()
    report: Report | None = None
    async with on_signal(scope.cancel) as interruption:
        with _Narrator(len(flights.values)) as narrator, scope:
            report = await run_demo(flights, data_dir, narrator, with_spark=with_spark)
    if report is None:
        raise click.exceptions.Exit(interruption.status)
    return report


@final
class _Narrator:
    """Prints progress on standard error, with bars on a terminal."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._progress = Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=self._console,
            auto_refresh=False,
            disable=not sys.stderr.isatty(),
        )
        self._total = total
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "_Narrator":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, address: str, data_dir: str) -> None:
        """See `tidelog.demo.story.Audience`."""
        self._say(f"{self._total:,} flights that left New York in January 2013, by tail number")
        self._say(f"a broker listens on {address}, its data is in {data_dir}")

    def progressed(self, verb: str, count: int, total: int) -> None:
        """See `tidelog.demo.story.Audience`."""
        if verb not in self._tasks:
            self._tasks[verb] = self._progress.add_task(verb, total=total)
        self._progress.update(self._tasks[verb], completed=count)
        self._progress.refresh()

    def killed(self, under_way_count: int, acknowledged_count: int) -> None:
        """See `tidelog.demo.story.Audience`."""
        self._say(
            f"killed the broker (SIGKILL) after {acknowledged_count:,} acknowledged flights,"
            f" with {under_way_count:,} in flight"
        )

    def started_again(self, seconds: float) -> None:
        """See `tidelog.demo.story.Audience`."""
        self._say(f"restarted it on the same data; it listens {seconds:.2f} s after the kill")

    def spark_starts(self) -> None:
        """See `tidelog.demo.story.Audience`."""
        self._say("Spark replays the topic and reads the queue's history; its start takes a while")

    def _say(self, line: str) -> None:
        self._console.print(line)


def report_as_json(report: Report) -> dict[str, object]:
    """Return the report for programs."""
    return {
        **asdict(report),
        "produced_per_second": round(report.acknowledged / report.produce_seconds),
        "consumed_per_second": round(report.consumed / report.consume_seconds),
        "worked_per_second": round(report.produced / report.queue.seconds),
    }


def report_as_facts(report: Report) -> dict[str, object]:
    """Return the report for people."""
    spark = report.spark
    with_spark = {} if spark is None else {"with Spark": spark_text(spark)}
    produce_rate = f"{report.acknowledged / report.produce_seconds:,.0f} records/s"
    return {
        "produced": report.produced,
        "acknowledged": report.acknowledged,
        "consumed": report.consumed,
        "kills": report.kills,
        "in flight at the kill": report.under_way_at_kill,
        "recovery": f"{report.recovery_seconds:.2f} s from the kill to the next acknowledgement",
        "produce rate": f"{produce_rate}, kill and recovery included",
        "consume rate": f"{report.consumed / report.consume_seconds:,.0f} records/s",
        "as a queue": f"{report.queue.deleted:,} deleted, {report.queue.dead:,} dead letters",
        "queue rate": f"{report.produced / report.queue.seconds:,.0f} messages/s",
        "replayed": report.replayed,
        **with_spark,
    }


def spark_text(spark: SparkReport) -> str:
    """Return the report of Spark, for people."""
    return (
        f"{spark.rows:,} records replayed in {spark.replay_seconds:.1f} s, once it had started in"
        f" {spark.start_seconds:.1f} s; in the history of the queue {spark.deleted:,} were deleted"
    )
