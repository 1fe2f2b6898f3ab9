"""Options and kinds of arguments that several commands share."""

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast, final

import click

from tidelog.cli.output.times import parse_since_ms
from tidelog.wire.env.real_env import RealClock

if TYPE_CHECKING:
    from tidelog.client.cluster.list_offsets import OffsetSpec

Decorated = TypeVar("Decorated", bound=Callable[..., object])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def examples(*lines: str) -> str:
    """Return an epilog that shows how a command is used."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


@final
class NameAndValue(click.ParamType[tuple[str, str]]):
    """`name=value`, as a pair."""

    name = "name=value"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the name and the value; the value may contain further equals signs."""
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name.strip(), text.strip()


@final
class Seconds(click.FloatRange):
    """A length of time, which is a number and has an end."""

    LONGEST = 1e9
    """30 years."""

    def __init__(self, least: float = 0, longest: float = LONGEST) -> None:
        """Take what is not shorter than `least`, and not longer than `longest`."""
        super().__init__(least, longest)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        seconds = float(super().convert(cast("float", value), param, ctx))
        if not math.isfinite(seconds):  # What is no number is in every range.
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


def read_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the Unix milliseconds of a moment, as the callback of an option."""
    if value is None:
        return None
    try:
        return parse_since_ms(value, now_ms=RealClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def read_offset_spec(ctx: click.Context, param: click.Parameter, value: str) -> "OffsetSpec":
    """Return a place in a topic, as the callback of an option."""
    if value in ("earliest", "latest"):
        return cast("OffsetSpec", value)
    moment = read_moment(ctx, param, value)
    assert moment is not None
    return moment


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


def change_options(command: Decorated) -> Decorated:
    """Take what to set, as pairs, and which settings to put back, by name."""
    for option in reversed(_CHANGE_OPTIONS):
        command = option(command)
    return command


_CHANGE_OPTIONS = (
    click.option(
        "--set",
        "changes",
        type=NameAndValue(),
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a setting; may be given several times.",
    ),
    click.option(
        "--reset",
        "resets",
        multiple=True,
        metavar="NAME",
        help="Put a setting back to its default; may be given several times.",
    ),
)


def require_changes(changes: Sequence[object], resets: Sequence[object]) -> None:
    """Refuse to change nothing.

    Raises:
        click.UsageError: Saying how to say what to change.
    """
    if not changes and not resets:
        raise click.UsageError("say what to change: --set NAME=VALUE or --reset NAME")


def server_options(command: Decorated) -> Decorated:
    """Take the options of a broker; those that are not given are `None`."""
    for option in reversed(_SERVER_OPTIONS):
        command = option(command)
    return command


_SERVER_OPTIONS = (
    click.option(
        "--data-dir", metavar="DIR", help="Where all data is; made when missing.  [tidelog-data]"
    ),
    click.option("--listen", metavar="HOST:PORT", help="Where to listen.  [127.0.0.1:8433]"),
    click.option("--node-id", type=int, help="Number of this broker in its cluster.  [1]"),
    click.option(
        "--peers",
        metavar="1=HOST:PORT,...",
        help="The nodes that make a cluster, this one included.  [none: a cluster of one]",
    ),
    click.option(
        "--broker-rack",
        metavar="NAME",
        help="The rack, zone or machine with which it fails together.",
    ),
    click.option(
        "--config",
        "config_file",
        envvar="TIDELOG_CONFIG",
        metavar="FILE",
        help="TOML file with settings; --print-config lists them.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(("console", "json")),
        help="For people or for programs.  [console]",
    ),
    click.option(
        "--log-level",
        type=click.Choice(("debug", "info", "warning", "error")),
        help="The least severe of what is logged.  [info]",
    ),
)
