"""The command `tidelog alerts`: the alerts that fire now, and their changes."""

import json
import sys
from dataclasses import asdict
from typing import Final

import click
import trio

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.errors import reason_of
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import counted, print_json, print_table, size_text
from tidelog.cli.output.times import age_text, moment_text
from tidelog.client.admin.alerts import Alert, AlertReport, AlertSeverity, changes
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError

_STATUS_OF_SEVERITY: Final = {None: 0, AlertSeverity.WARNING: 3, AlertSeverity.CRITICAL: 4}
"""Exit status of `--check`, as that of `tidelog cluster status --check`."""
_COLUMNS: Final = ("SEVERITY", "ALERT", "SUBJECT", "OWNER", "VALUE", "THRESHOLD", "SINCE")
_NUMBERS: Final = ("VALUE", "THRESHOLD")


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog alerts",
        "tidelog alerts --owner payments@example.org --watch",
        "tidelog alerts --check",
    ),
)
@click.option("--watch", "is_watch", is_flag=True, help="Repeat, and print what changes.")
@click.option(
    "--interval",
    type=Seconds(least=1),
    default="10s",
    show_default=True,
    help="Check as often with --watch.",
)
@click.option("--owner", metavar="NAME", help="Show only alerts of this owner.")
@click.option("--check", "is_check", is_flag=True, help="Print one line; exit by severity.")
@json_option
def alerts(
    is_watch: bool,
    interval: float,
    owner: str | None,
    *,
    is_check: bool,
    as_json: bool,
) -> None:
    """Show the alerts that fire now.

    The conditions of operators come from the cluster, those of owners from settings of queues
    (alert_age_ms, alert_depth, alert_dead_letters) and groups (alert_lag_ms, alert_lag_records).
    With --check the exit status is 0 without an alert, 3 for warnings or an unknown state, and 4
    for critical alerts; 1 if no broker answers. --watch ends with Ctrl-C.
    """
    if is_watch and is_check:
        raise click.UsageError("give either --watch or --check")
    if is_watch:
        ask(lambda client: _watch(client, owner, interval, as_json=as_json))
        return
    report = ask(lambda client: client.admin.alerts(owner=owner))
    if as_json:
        print_json(report_as_json(report))
    elif is_check:
        click.echo(check_line(report))
    else:
        print_report(report)
    if is_check:
        raise click.exceptions.Exit(_STATUS_OF_SEVERITY[report.severity])


async def _watch(client: Client, owner: str | None, interval: float, *, as_json: bool) -> None:
    """Print what changes, until cancelled."""
    before: AlertReport | None = None
    while True:
        began = trio.current_time()
        try:
            report = await client.admin.alerts(owner=owner)
        except TidelogError as error:
            click.echo(f"cannot check: {reason_of(error)}", err=True)
        else:
            fired, cleared, active = changes(before, report)
            if before is None and not as_json:
                click.echo(f"{moment_text(report.at_ms)}  {check_line(report)}")
            for event, found in (("cleared", cleared), ("fired", fired)):
                for each in found:
                    _print_change(event, each, report.at_ms, as_json=as_json)
            if report.unknown and (before is None or before.unknown != report.unknown):
                click.echo(unknown_line(report), err=True)
            before = active
        await trio.sleep_until(began + interval)


def report_as_json(report: AlertReport) -> dict[str, object]:
    """Return a report."""
    return {
        "at_ms": report.at_ms,
        "severity": report.severity,
        "alerts": [alert_as_json(each) for each in report.alerts],
        "unknown": list(report.unknown),
    }


def alert_as_json(alert: Alert) -> dict[str, object]:
    """Return one alert."""
    return {**asdict(alert), "severity": alert.severity, "docs": alert.docs}


def print_report(report: AlertReport) -> None:
    """Print a line for each alert, and the next steps below."""
    if report.alerts:
        rows = [
            (
                each.severity,
                each.name,
                each.subject,
                each.owner,
                amount_text(each.value, each.unit),
                amount_text(each.threshold, each.unit),
                None if each.since_ms is None else moment_text(each.since_ms),
            )
            for each in report.alerts
        ]
        print_table(_COLUMNS, rows, right=_NUMBERS)
        click.echo()
        for each in report.alerts:
            click.echo(f"{each.subject}: {each.reason}; {each.next_step} ({each.docs})")
    elif not report.unknown:
        click.echo("no alerts")
    if report.unknown:
        click.echo(unknown_line(report), err=True)


def check_line(report: AlertReport) -> str:
    """Return the report in one line."""
    if report.severity is None:
        return "no alerts"
    names = ", ".join(dict.fromkeys(each.name for each in report.alerts))
    line = f"{counted(len(report.alerts), 'alert')}: {names}" if names else "no alerts"
    return f"{line}; {unknown_line(report)}" if report.unknown else line


def unknown_line(report: AlertReport) -> str:
    """Return the subjects whose state is unknown, the first ones by name."""
    first, rest = report.unknown[:5], len(report.unknown) - 5
    return f"state unknown: {', '.join(first)}{f' and {rest:,} more' if rest > 0 else ''}"


def amount_text(amount: int | None, unit: str) -> str | None:
    """Return a value or threshold as a cell."""
    if amount is None:
        return None
    texts = {"ms": age_text, "bytes": size_text}
    return texts[unit](amount) if unit in texts else f"{amount:,}"


def _print_change(event: str, alert: Alert, at_ms: int, *, as_json: bool) -> None:
    if as_json:
        json.dump({"at_ms": at_ms, "event": event, **alert_as_json(alert)}, sys.stdout)
        sys.stdout.write("\n")
    else:
        owner = "" if alert.owner is None else f" of {alert.owner}"
        value = amount_text(alert.value, alert.unit)
        measured = "" if value is None else f": {value}"
        click.echo(
            f"{moment_text(at_ms)}  {event:7}  {alert.severity:8}  {alert.name}"
            f"  {alert.subject}{owner}{measured}"
        )
    sys.stdout.flush()
