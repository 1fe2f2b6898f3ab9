"""`tidelog demo`: what people see of the demonstration."""

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
    help="Whether Spark replays it all at the end, if it is installed.  [--spark]",
)
@json_option
def demo(as_json: bool, with_spark: bool) -> None:
    """Run a demonstration on throwaway data.

    Starts a broker on a temporary directory and produces the 27,004 flights that left New York in
    January 2013 to it, keyed by tail number. Half-way the broker is killed (SIGKILL) and started
    again, and producing goes on. Then everything is consumed and compared: nothing that was
    acknowledged may be missing, duplicated or out of order per key.

    The same bytes are a queue as well: four workers receive and delete all flights, but for the
    cancelled ones, which have no delay and become dead letters. Then all are read once more: what
    is deleted in a queue is in the log.

    At the end Spark replays it, and reads in the history of the queue who deleted what; where it
    or Java is not installed, one line says what is missing.

    Takes a few seconds, with Spark some twenty more, and leaves nothing behind. Exit status 1 says
    that something was wrong.
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
            click.echo(f"Left out, a replay with Spark: {report.without_spark}")
        click.echo("What the queue deleted was replayed from the log.")
        click.echo("Nothing that was acknowledged is missing, duplicated or out of order.")


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
    """Tells on standard error how it goes; bars move where somebody sees them."""

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
            f"killed it (SIGKILL) after {acknowledged_count:,} acknowledged flights,"
            f" with {under_way_count:,} under way"
        )

    def started_again(self, seconds: float) -> None:
        """See `tidelog.demo.story.Audience`."""
        self._say(f"started it again on the same data, it listens {seconds:.2f} s after the kill")

    def spark_starts(self) -> None:
        """See `tidelog.demo.story.Audience`."""
        self._say("Spark replays it all, and reads what the queue did; it takes a while to start")

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
        "under way at the kill": report.under_way_at_kill,
        "recovery": f"{report.recovery_seconds:.2f} s from the kill to the next acknowledgement",
        "produce rate": f"{produce_rate}, kill and recovery included",
        "consume rate": f"{report.consumed / report.consume_seconds:,.0f} records/s",
        "as a queue": f"{report.queue.deleted:,} deleted, {report.queue.dead:,} dead letters",
        "queue rate": f"{report.produced / report.queue.seconds:,.0f} messages/s",
        "replayed": report.replayed,
        **with_spark,
    }


def spark_text(spark: SparkReport) -> str:
    """Return what Spark has found, for people."""
    return (
        f"{spark.rows:,} records replayed in {spark.replay_seconds:.1f} s, once it had started in"
        f" {spark.start_seconds:.1f} s; in the history of the queue {spark.deleted:,} were deleted"
    )
