"""`docs/protocol.md` describes every message, field, default, version and error."""

import re
import types
import typing
from enum import IntEnum

import msgspec
import pytest

from tests.paths import ROOT
from tests.wire.samples import EXCHANGES, Exchange
from tidelog.wire.errors import (
    ERROR_CLASSES,
    ErrorCode,
    ErrorDetail,
)
from tidelog.wire.messages.groups import ResetTo
from tidelog.wire.messages.produce import AckLevel, Acks
from tidelog.wire.messages.queues import MessageState, SettleAction
from tidelog.wire.protocol.api import ApiKey

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
TYPES: dict[object, str] = {
    int: "int",
    float: "float",
    str: "str",
    bytes: "bin",
    bool: "bool",
    type(None): "nil",
}
DEFAULTS = {"False": "false", "True": "true", "None": "nil", "": "empty", "b''": "empty"}


def section(heading: str) -> str:
    """Return the text between a heading of the page and the next heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no heading {heading!r}"
    return found[1]


def rows_of_tables(text: str) -> list[list[str]]:
    """Return the cells of each row of all tables, heads included."""
    rows = [line[1:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


def shown_type(hint: object) -> str:
    """Return the page's notation of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return shown_type(arguments[0])
    if origin in {list, tuple}:
        shown = ", ".join(map(shown_type, arguments))
        return f"array of {shown}" if origin is list else f"[{shown}]"
    if origin is dict:
        return f"map of {shown_type(arguments[0])} to {shown_type(arguments[1])}"
    if origin in {types.UnionType, typing.Union}:
        return " or ".join(map(shown_type, arguments))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"`{hint.__name__}`"
    return TYPES[hint]


def shown_fields(message_type: type[msgspec.Struct]) -> list[list[str]]:
    """Return the first three cells of each row that a message must have on the page."""
    hints = typing.get_type_hints(message_type, include_extras=True)
    rows: list[list[str]] = []
    for place, info in enumerate(msgspec.structs.fields(message_type)):
        shown = shown_type(hints[info.name])
        if not info.required:
            has_factory = info.default is msgspec.NODEFAULT
            default = str(info.default_factory() if has_factory else info.default)
            shown += f", default {DEFAULTS.get(default, default)}"
        rows.append([str(place), f"`{info.name}`", shown])
    return rows


def messages_of(hint: object) -> list[type[msgspec.Struct]]:
    """Return the message types that a type is made of, itself first, without errors."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint is ErrorDetail:
            return []
        inner = typing.get_type_hints(hint, include_extras=True).values()
        return [hint, *(found for field in inner for found in messages_of(field))]
    return [found for argument in typing.get_args(hint) for found in messages_of(argument)]


def table_of(name: str, text: str) -> list[list[str]]:
    """Return the rows of the table that follows the name of a message.

    A message that is also part of another API may have its table in the section of that API.
    """
    pattern = re.compile(rf"^`{name}`\n\n((?:\|.*\n)+)", re.MULTILINE)
    found = pattern.search(text) or pattern.search(PAGE)
    assert found is not None, f"{name} has no table"
    return rows_of_tables(found[1])[1:]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_every_message_of_an_api_is_described(exchange: Exchange) -> None:
    served = exchange.api
    text = section(f"{served.key.name} ({int(served.key)})")

    assert text.lstrip().startswith(f"Versions {served.min_version} to {served.max_version}.")
    for message_type in (*messages_of(type(exchange.request)), *messages_of(type(exchange.reply))):
        rows = table_of(message_type.__name__, text)
        assert [row[:3] for row in rows] == shown_fields(message_type), message_type.__name__


def test_every_api_has_a_section_in_order() -> None:
    headings = re.findall(r"^### ([A-Z_]+) \((\d+)\)$", PAGE, re.MULTILINE)

    assert headings == [(key.name, str(int(key))) for key in ApiKey]


def test_an_error_is_described() -> None:
    rows = table_of("ErrorDetail", section("Errors"))

    assert [row[:3] for row in rows] == shown_fields(ErrorDetail)


def test_every_error_code_is_in_the_table() -> None:
    rows = [row for row in rows_of_tables(section("Errors")) if row[0].isdigit() and len(row) == 5]

    assert [row[:4] for row in rows] == [
        [
            str(int(code)),
            f"`{code.name}`",
            "yes" if ERROR_CLASSES[code].is_retriable else "no",
            ", ".join(f"`{name}`" for name in ERROR_CLASSES[code].detail_names),
        ]
        for code in ErrorCode
    ]


@pytest.mark.parametrize(
    ("enum", "heading", "column"),
    [
        (Acks, "Producing", "acks"),
        (AckLevel, "Producing", "ack_level"),
        (ResetTo, "RESET_OFFSETS (16)", "to"),
    ],
)
def test_every_number_with_a_name_is_in_its_table(
    enum: type[IntEnum], heading: str, column: str
) -> None:
    found = re.search(
        rf"^\| `{column}` \| name \|.*\n((?:\|.*\n)+)", section(heading), re.MULTILINE
    )
    assert found is not None

    rows = rows_of_tables(found[1])

    assert [row[:2] for row in rows] == [[str(int(item)), f"`{item.name}`"] for item in enum]


def test_every_error_that_a_section_names_exists() -> None:
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", PAGE))

    others = {
        AckLevel.LEADER_DURABLE.name,
        MessageState.IN_FLIGHT.name,
        SettleAction.CHANGE_VISIBILITY.name,
    }
    assert named - {code.name for code in ErrorCode} == others


def test_links_within_the_page_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }

    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
