"""Options and parameter types that several commands share."""

import math
import os
from collections.abc import Callable, Sequence
from typing import TypedDict, TypeVar, cast, final

import click

from tidelog.cli.output.times import parse_since_ms
from tidelog.wire.config.durations import A_DURATION, duration_ms
from tidelog.wire.env.real.real_env import RealClock

Decorated = TypeVar("Decorated", bound=Callable[..., object])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def examples(*lines: str) -> str:
    """Return the examples of a command as an epilog."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


@final
class NameAndValue(click.ParamType[tuple[str, str]]):
    """The parameter type `name=value`, a pair."""

    name = "name=value"

    def __init__(self, *, is_exact: bool = False) -> None:
        """Keep spaces around the name and the value if `is_exact`."""
        self._is_exact = is_exact

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the name and the value, which may contain equals signs."""
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return (name, text) if self._is_exact else (name.strip(), text.strip())


@final
class Seconds(click.FloatRange):
    """The parameter type of durations, which are finite; a bare number is seconds."""

    name = "duration"

    LONGEST = 1e9
    """Seconds at most: 30 years."""

    def __init__(self, least: float = 0, longest: float = LONGEST) -> None:
        """Accept durations from `least` to `longest`."""
        super().__init__(least, longest)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        seconds = _seconds_of(value)
        if seconds is None:
            self.fail(f"{value!r} is not {A_DURATION}, nor a number of seconds", param, ctx)
        return float(super().convert(seconds, param, ctx))


def _seconds_of(value: object) -> float | None:
    found_ms = duration_ms(value, bare_unit_ms=None) if isinstance(value, str) else None
    if found_ms is not None:
        return found_ms / 1000
    try:
        seconds = float(cast("float", value))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def read_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a time in Unix milliseconds, as the callback of an option."""
    if value is None:
        return None
    try:
        return parse_since_ms(value, now_ms=RealClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def read_headers(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> list[tuple[str, bytes]]:
    """Return headers written as `K=V,...`, as the callback of an option."""
    found: list[tuple[str, bytes]] = []
    for item in value.split(",") if value else []:
        name, separator, text = item.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{item!r} is not of the form name=value", ctx, param)
        found.append((name.strip(), os.fsencode(text)))
    return found


def list_options(command: Decorated) -> Decorated:
    """Add the options `--prefix` and `--names` to a command that lists topics or queues."""
    for option in reversed(_LIST_OPTIONS):
        command = option(command)
    return command


_LIST_OPTIONS = (
    click.option("--prefix", default="", metavar="TEXT", help="List only names that begin so."),
    click.option("--names", "only_names", is_flag=True, help="Print the names alone."),
)


def change_options(command: Decorated) -> Decorated:
    """Add the options `--set` and `--reset` to a command."""
    for option in reversed(_CHANGE_OPTIONS):
        command = option(command)
    return command


label_option = click.option(
    "--label",
    "labels",
    type=NameAndValue(is_exact=True),
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a label; repeatable.",
)

_CHANGE_OPTIONS = (
    click.option(
        "--set",
        "changes",
        type=NameAndValue(),
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a setting; repeatable.",
    ),
    click.option(
        "--reset",
        "resets",
        multiple=True,
        metavar="NAME",
        help="Reset a setting to its default; repeatable.",
    ),
)


class Changes(TypedDict):
    """The options of `label_change_options`."""

    changes: tuple[tuple[str, str], ...]
    resets: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    removed_labels: tuple[str, ...]


class AlterArguments(TypedDict):
    """The arguments of `alter_topic` and `alter_queue`."""

    set: dict[str, str]
    reset: tuple[str, ...]
    set_labels: dict[str, str]
    remove_labels: tuple[str, ...]


def label_change_options(command: Decorated) -> Decorated:
    """Add the options `--set`, `--reset`, `--label` and `--remove-label` to a command."""
    remove_option = click.option(
        "--remove-label",
        "removed_labels",
        multiple=True,
        metavar="NAME",
        help="Remove a label; repeatable.",
    )
    return change_options(label_option(remove_option(command)))


def alter_arguments(given: Changes) -> AlterArguments:
    """Return the arguments of `alter_topic` or `alter_queue`.

    Raises:
        click.UsageError: No change is given.
    """
    if not any(given.values()):
        raise click.UsageError(
            "no change is given: add --set NAME=VALUE, --reset NAME, --label NAME=VALUE or"
            " --remove-label NAME"
        )
    return {
        "set": dict(given["changes"]),
        "reset": given["resets"],
        "set_labels": dict(given["labels"]),
        "remove_labels": given["removed_labels"],
    }


def require_changes(changes: Sequence[object], resets: Sequence[object]) -> None:
    """Raise if no change is given.

    Raises:
        click.UsageError: There is neither `--set` nor `--reset`.
    """
    if not changes and not resets:
        raise click.UsageError("no change is given: add --set NAME=VALUE or --reset NAME")


def server_options(command: Decorated) -> Decorated:
    """Add the options of a broker; missing options are `None`."""
    for option in reversed(_SERVER_OPTIONS):
        command = option(command)
    return command


_SERVER_OPTIONS = (
    click.option("--data-dir", metavar="DIR", help="Keep data in this directory.  [tidelog-data]"),
    click.option("--listen", metavar="HOST:PORT", help="Listen on this address.  [127.0.0.1:8433]"),
    click.option(
        "--insecure-listen",
        flag_value="on",
        help="Serve other machines without TLS and authentication.",
    ),
    click.option(
        "--http-listen",
        metavar="HOST:PORT",
        help="Serve health checks by HTTP here.  [127.0.0.1:8480]",
    ),
    click.option(
        "--sqs-listen",
        metavar="HOST:PORT",
        help="Serve Amazon SQS by HTTP here.  [none]",
    ),
    click.option(
        "--sqs-no-auth",
        "sqs_authentication",
        flag_value="off",
        help="Check no signatures of SQS: serve every program of this machine.",
    ),
    click.option("--node-id", type=int, help="Set the node id of this broker.  [1]"),
    click.option(
        "--peers",
        metavar="1=HOST:PORT,...",
        help="List all nodes of the cluster.  [none: a cluster of one]",
    ),
    click.option(
        "--cluster-secret-file",
        metavar="FILE",
        help="Read the secret of the cluster from this file.  [~/.config/tidelog/cluster-secret]",
    ),
    click.option(
        "--bootstrap-admin",
        metavar="FILE",
        help="Read the first administrator of a new cluster from this file.",
    ),
    click.option(
        "--tls",
        "--tls-directory",
        "tls_directory",
        metavar="DIR",
        help="Use TLS with cert.pem, key.pem and ca.pem of this directory.",
    ),
    click.option(
        "--broker-rack",
        metavar="NAME",
        help="Set the rack (zone, machine) of this broker.",
    ),
    click.option(
        "--config",
        "config_file",
        envvar="TIDELOG_CONFIG",
        metavar="FILE",
        help="Read settings from this TOML file.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(("console", "json")),
        help="Set the format of log lines.  [console]",
    ),
    click.option(
        "--log-level",
        type=click.Choice(("debug", "info", "warning", "error")),
        help="Set the minimum level of log lines.  [info]",
    ),
)
