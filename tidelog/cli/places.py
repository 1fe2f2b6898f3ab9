"""Places in a log, as options name them: one dialect for all commands (kcat: `-o`).

`beginning` and `end`; an offset; `-N`, the last N records of each partition; a time.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, TypeVar, final

import click

from tidelog.cli.output.times import parse_since_ms
from tidelog.client.client import Client
from tidelog.client.cluster.list_offsets import OffsetSpec
from tidelog.wire.env.real.real_env import RealClock

Place = Literal["earliest", "latest"] | tuple[Literal["offset", "time", "last"], int]
"""The first readable record, the end, `("offset", n)`, `("time", unix_ms)`: the first record of
this time or later, or `("last", n)`: n offsets before the end."""

PLACE_METAVAR: Final = "beginning|end|OFFSET|TIME|-N"
_NAMES: Final[dict[str, Literal["earliest", "latest"]]] = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
}
_OFFSET_DIGITS: Final = 12
"""Digits of an offset at most: Unix milliseconds have 13."""
_TIME_OF_KCAT: Final = "s@"

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def parse_place(text: str, *, now_ms: int) -> Place:
    """Return the place that a text names; a bare number is an offset.

    Raises:
        ValueError: The text names no place, or may be an offset or a time.
    """
    text = text.strip()
    if text in _NAMES:
        return _NAMES[text]
    if _is_number(text):
        if len(text) > _OFFSET_DIGITS:
            raise ValueError(
                f"{text} may be an offset or Unix milliseconds: write {_TIME_OF_KCAT}{text} for the"
                f" time; an offset has at most {_OFFSET_DIGITS} digits"
            )
        return ("offset", int(text))
    if text.startswith("-") and _is_number(text[1:]) and int(text):
        return ("last", -int(text))
    if text.startswith(_TIME_OF_KCAT) and _is_number(text[2:]):
        return ("time", int(text[2:]))
    try:
        return ("time", parse_since_ms(text, now_ms=now_ms))
    except ValueError:
        raise ValueError(
            f"{text!r} is no place in a log: write beginning, end, an offset, -N for the last N"
            " records, a time such as 2025-01-31T12:00:00Z, or an age such as 30min or 7d"
        ) from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


@final
class PlaceType(click.ParamType[Place]):
    """The parameter type of places."""

    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Return the place."""
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default that was converted before
        try:
            return parse_place(value, now_ms=RealClock().now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


def place_option(
    *names: str,
    verb: str = "Start",
    **attributes: Any,  # noqa: ANN401  (those of `click.option`)
) -> Callable[[Decorated], Decorated]:
    """Return the option of a place, the parameter `place`."""
    return click.option(
        *names,
        "place",
        type=PlaceType(),
        metavar=PLACE_METAVAR,
        help=f"{verb} here; TIME: ISO 8601 or an age (1h), -N: the last N.",
        **attributes,
    )


def replaced_option(
    old: str, new: str, *, is_flag: bool = False
) -> Callable[[Decorated], Decorated]:
    """Return a hidden option whose error names the option that replaced it."""

    def refuse(ctx: click.Context, param: click.Parameter, value: object) -> None:
        del param
        if value:
            raise click.UsageError(f"{old} is now {new}", ctx)

    return click.option(old, is_flag=is_flag, hidden=True, expose_value=False, callback=refuse)


def time_or_end(place: Place) -> OffsetSpec:
    """Return a place that does not depend on the partition.

    Raises:
        click.UsageError: The place is an offset, or counts from the end.
    """
    if isinstance(place, str):
        return place
    if place[0] == "time":
        return place[1]
    raise click.UsageError(
        "a new queue starts at beginning, end or a time; `tidelog queue seek` takes all places"
    )


def require_one_partition(offset: int, partitions: Collection[object]) -> None:
    """Raise if an offset is meant for several partitions, where it has no common meaning.

    Raises:
        click.UsageError: There are several partitions.
    """
    if len(partitions) > 1:
        ctx = click.get_current_context(silent=True)
        can_choose = ctx is not None and any(
            "--partition" in each.opts for each in ctx.command.params
        )
        raise click.UsageError(
            f"offset {offset} is a place in one partition, and there are {len(partitions)}:"
            f" {'choose one with --partition, or ' if can_choose else ''}name a place in all:"
            " beginning, end, a time or -N"
        )


async def offsets_at(
    client: Client, topic: str, place: Place, *, partitions: Sequence[int] | None = None
) -> dict[int, int]:
    """Return the offset of a place in each partition; the end where no record is that young.

    Raises:
        click.UsageError: The place is an offset, and there are several partitions.
        TidelogError: There is no such topic or partition, or no broker answered.
    """
    if isinstance(place, str) or place[0] == "time":
        at = place if isinstance(place, str) else place[1]
        found = await client.admin.list_offsets(topic, at, partitions=partitions)
        missing = [number for number, each in found.items() if each.offset is None]
        ends = await client.admin.list_offsets(topic, "latest", partitions=missing)
        return {number: _known(each.offset) for number, each in (found | ends).items()}
    kind, count = place
    starts = await client.admin.list_offsets(topic, "earliest", partitions=partitions)
    if kind == "offset":
        require_one_partition(count, starts)
        return dict.fromkeys(starts, count)
    ends = await client.admin.list_offsets(topic, "latest", partitions=partitions)
    return {
        number: max(_known(starts[number].offset), _known(ends[number].offset) - count)
        for number in starts
    }


def _known(offset: int | None) -> int:
    assert offset is not None, "start and end of a partition are known"
    return offset
