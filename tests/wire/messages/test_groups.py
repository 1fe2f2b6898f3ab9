"""Messages of consumer groups: every field is encoded, and older and newer peers are supported."""

import typing
from types import NoneType

import msgspec
import pytest

from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages import groups

MESSAGES = [
    found
    for found in vars(groups).values()
    if isinstance(found, type)
    and issubclass(found, msgspec.Struct)
    and found.__module__ == groups.__name__
]

every_message = pytest.mark.parametrize(
    "message_type", MESSAGES, ids=lambda message_type: message_type.__name__
)


def value_of(hint: object) -> object:
    """Return a value of a type that is no default."""
    arguments = typing.get_args(hint)
    if hint is ErrorDetail:
        return ErrorDetail(24, "there is no group", {})
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return filled(hint)
    if typing.get_origin(hint) is dict:
        return {value_of(arguments[0]): value_of(arguments[1])}
    if typing.get_origin(hint) is list:
        return [value_of(arguments[0]), value_of(arguments[0])]
    if arguments:
        return value_of(next(one for one in arguments if one is not NoneType))
    return {int: 77, str: "text", bytes: bytes(range(16)), bool: True}[typing.cast("type", hint)]


def filled(message_type: type[msgspec.Struct]) -> msgspec.Struct:
    hints = typing.get_type_hints(message_type, include_extras=True)
    return message_type(*(value_of(hints[name]) for name in message_type.__struct_fields__))


@every_message
def test_every_field_travels(message_type: type[msgspec.Struct]) -> None:
    sent = filled(message_type)

    received = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=message_type)

    assert received == sent


@every_message
def test_fields_with_defaults_may_be_missing(message_type: type[msgspec.Struct]) -> None:
    values: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(filled(message_type)))
    required = [info for info in msgspec.structs.fields(message_type) if info.required]

    received = msgspec.convert(values[: len(required)], message_type)

    for info in msgspec.structs.fields(message_type)[len(required) :]:
        factory = info.default_factory
        default = info.default if factory is msgspec.NODEFAULT else factory()
        assert getattr(received, info.name) == default


@every_message
def test_fields_of_a_newer_peer_are_ignored_by_groups(message_type: type[msgspec.Struct]) -> None:
    sent = filled(message_type)
    values: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(sent))

    received = msgspec.msgpack.decode(msgspec.msgpack.encode([*values, "new"]), type=message_type)

    assert received == sent


@every_message
def test_a_message_that_is_cut_short_is_no_message(message_type: type[msgspec.Struct]) -> None:
    whole = msgspec.msgpack.encode(filled(message_type))

    for length in range(len(whole)):
        with pytest.raises(msgspec.DecodeError):
            msgspec.msgpack.decode(whole[:length], type=message_type)
