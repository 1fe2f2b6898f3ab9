"""The commands `tidelog audit`, which search audit records and sum up usage."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypedDict, Unpack, cast, final

import click
import msgspec
import trio

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand, ConnectedGroup
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import counted, print_json, print_table, size_text
from tidelog.cli.output.times import moment_text
from tidelog.cli.output_pipe import OutputPipe
from tidelog.cli.places import Place, offsets_at, place_option
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError, UnknownTopicError
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

_DAY_CHARS: Final = len("2026-11-27")
_HOUR_CHARS: Final = len("2026-11-27 14")
_KINDS: Final = ("authentication", "administration", "grant", "denial", "usage", "service")
_NOT_USAGE: Final = tuple(kind for kind in _KINDS if kind != "usage")
_PATTERN: Final = "GLOB"

Fields = Mapping[str, Any]
"""The fields of one audit record."""


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class _Filter(TypedDict):
    """The options that choose records, by glob."""

    principal: str
    action: str
    resource: str
    result: str


class _Search(_Filter):
    """The options of `search` besides `--broker`."""

    place: Place
    kinds: tuple[str, ...]
    follow: bool
    count_max: int | None
    as_json: bool


class _Usage(TypedDict):
    """The options of `usage` besides `--broker`."""

    place: Place
    principal: str
    resource: str
    by: str
    as_json: bool


@click.group(cls=ConnectedGroup)
def audit() -> None:
    """Search audit records and sum up usage."""


@audit.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog audit search --principal user:alice --from 7d",
        "tidelog audit search --kind denial --resource 'topic:orders*'",
        "tidelog audit search --action 'topic.*' --follow",
        "tidelog audit search --kind administration --json | jq .detail",
    ),
)
@place_option("-o", "--from", default="1d", show_default=True)
@click.option("--principal", default="*", metavar=_PATTERN, help="Show only these principals.")
@click.option("--action", default="*", metavar=_PATTERN, help="Show only these actions.")
@click.option("--resource", default="*", metavar=_PATTERN, help="Show only these resources.")
@click.option("--result", default="*", metavar=_PATTERN, help="Show only these results.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(_KINDS),
    multiple=True,
    help="Show only this kind; repeatable.  [all but usage]",
)
@click.option("--follow", is_flag=True, help="Wait for further records.")
@click.option("-n", "--max", "count_max", type=click.IntRange(min=1), help="Stop after N records.")
@json_option
def search(**options: Unpack[_Search]) -> None:
    """Print audit records, one per line.

    Patterns are globs, such as 'user:*'. --json prints each record as brokers wrote it.
    """
    form = _json_line if options["as_json"] else _text_line
    wanted = matcher(options, options["kinds"] or _NOT_USAGE)
    maximum = options["count_max"]

    async def run(client: Client) -> int:
        output, count = OutputPipe(sys.stdout.buffer), 0

        async def take(records: Sequence[bytes]) -> bool:
            nonlocal count
            chosen = [(fields, data) for data in records if wanted(fields := _decode(data))]
            chosen = chosen[: None if maximum is None else maximum - count]
            await output.write(b"".join(form(fields, data) for fields, data in chosen))
            count += len(chosen)
            return count == maximum

        async with trio.open_nursery() as nursery:
            # `head -1` ends a command that waits for further records.
            nursery.start_soon(output.raise_when_closed)
            await _read(client, options["place"], take, follow=options["follow"])
            nursery.cancel_scope.cancel()
        return count

    if not ask(run):
        click.echo("no audit record matches; --from 30d searches further back", err=True)


@audit.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog audit usage --from 7d",
        "tidelog audit usage --principal user:alice --by hour --json",
    ),
)
@place_option("-o", "--from", default="1d", show_default=True)
@click.option("--principal", default="*", metavar=_PATTERN, help="Show only these principals.")
@click.option("--resource", default="*", metavar=_PATTERN, help="Show only these resources.")
@click.option(
    "--by",
    type=click.Choice(("day", "hour", "total")),
    default="day",
    show_default=True,
    help="Sum up by this time, in UTC.",
)
@json_option
def usage(**options: Unpack[_Usage]) -> None:
    """Show the traffic of each principal with each topic and queue.

    Brokers write one record for each minute, so the last minute is missing.
    """
    chosen = cast("_Filter", {"action": "*", "result": "*", **options})
    wanted = matcher(chosen, ("usage",))
    sums = UsageSums(options["by"])

    async def take(records: Sequence[bytes]) -> bool:
        await trio.lowlevel.checkpoint()
        for fields in map(_decode, records):
            if wanted(fields):
                sums.add(fields)
        return False

    ask(lambda client: _read(client, options["place"], take, follow=False))
    if options["as_json"]:
        print_json([each.as_json() for each in sums.rows()])
    elif not sums.rows():
        click.echo("no usage was recorded; --from 30d searches further back", err=True)
    else:
        headings = ["TIME", "PRINCIPAL", "RESOURCE", "REQUESTS", "RECORDS IN", "BYTES IN"]
        headings += ["RECORDS OUT", "BYTES OUT"]
        rows = [each.cells() for each in sums.rows()]
        print_table(headings, rows, right=headings[3:])


def matcher(options: _Filter, kinds: Sequence[str]) -> Callable[[Fields], bool]:
    """Return the function that tells whether a record is chosen."""
    patterns = [
        (name, str(options[name]))
        for name in ("principal", "action", "resource", "result")
        if options[name] != "*"
    ]

    def is_chosen(fields: Fields) -> bool:
        return fields.get("kind") in kinds and all(
            fnmatchcase(str(fields.get(name, "")), pattern) for name, pattern in patterns
        )

    return is_chosen


class UsageRow(NamedTuple):
    """Summed usage."""

    time: str
    principal: str
    resource: str
    requests: int = 0
    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0

    def cells(self) -> list[object]:
        """Return the cells of a table."""
        return [
            *(self.time, self.principal, self.resource, self.requests, self.records_in),
            *(size_text(self.bytes_in), self.records_out, size_text(self.bytes_out)),
        ]

    def as_json(self) -> dict[str, object]:
        """Return the fields."""
        return self._asdict()


@final
class UsageSums:
    """Sums of usage records by time, principal and resource."""

    def __init__(self, by: str) -> None:
        """Sum up by `day`, `hour` or `total`."""
        self._chars = {"day": _DAY_CHARS, "hour": _HOUR_CHARS}.get(by, 0)
        self._rows: dict[tuple[str, str, str], UsageRow] = {}

    def add(self, fields: Fields) -> None:
        """Add a usage record."""
        time = moment_text(int(fields["time_ms"]))[: self._chars]
        key = (time, str(fields["principal"]), str(fields["resource"]))
        row = self._rows.get(key, UsageRow(*key))
        names = UsageRow._fields[len(key) :]
        counts = (int(getattr(row, name)) + int(fields.get(name, 0)) for name in names)
        self._rows[key] = UsageRow(*key, *counts)

    def rows(self) -> list[UsageRow]:
        """Return the sums, by time, principal and resource."""
        return [self._rows[key] for key in sorted(self._rows)]


async def _read(
    client: Client,
    place: Place,
    take: Callable[[Sequence[bytes]], Awaitable[bool]],
    *,
    follow: bool,
) -> None:
    """Read audit records until the end, or until `take` returns that it has enough."""
    try:
        offsets = await offsets_at(client, AUDIT_TOPIC, place)
    except UnknownTopicError:
        raise TidelogError(
            "there are no audit records: no broker runs with audit = on, or you may not read"
            f" {AUDIT_TOPIC}"
        ) from None
    async with client.consumer(AUDIT_TOPIC) as consumer:
        for number, offset in offsets.items():
            consumer.seek(AUDIT_TOPIC, number, offset)
        until = None if follow else await consumer.end_offsets()
        async for batch in consumer.batches(until):
            if await take([record.value or b"{}" for record in batch]):
                return


def _json_line(fields: Fields, data: bytes) -> bytes:
    del fields
    return data + b"\n"


def _text_line(fields: Fields, data: bytes) -> bytes:
    del data
    kind, result = fields.get("kind"), fields.get("result")
    parts = [
        moment_text(int(fields.get("time_ms", 0))),
        str(kind),
        str(fields.get("principal") or f"node:{fields.get('node')}"),
        str(fields.get("action")),
        str(fields.get("resource") or "-"),
        str(fields.get("stage") if fields.get("stage") == "intent" else result),
    ]
    if fields.get("count", 1) != 1:
        parts.append(counted(int(fields["count"]), "time"))
    if fields.get("address"):
        parts.append(f"from {fields['address']}")
    if fields.get("rule"):
        parts.append(f"by {fields['rule']}")
    parts += [f"{name}={value}" for name, value in dict(fields.get("detail", {})).items()]
    return printable("  ".join(parts)).encode() + b"\n"


def printable(text: str) -> str:
    """Return a text without control characters: clients choose names and settings."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
