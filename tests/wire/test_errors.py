"""Every error keeps its class over the wire, and the tree in the docstring is complete."""

import pickle
import re

import msgspec
import pytest

from tidelog.wire import errors
from tidelog.wire.errors import (
    ERROR_CLASSES,
    BrokerError,
    ErrorCode,
    ErrorDetail,
    OffsetOutOfRangeError,
    RetriableError,
    TidelogError,
    UnexpectedServerError,
    from_wire,
)

all_broker_errors = pytest.mark.parametrize(
    "cls", ERROR_CLASSES.values(), ids=lambda cls: cls.__name__
)


def an_error(cls: type[BrokerError]) -> BrokerError:
    details = {name: 10 + place for place, name in enumerate(cls.detail_names)}
    return cls("what is wrong and what would be right", **details)


def all_subclasses(cls: type[TidelogError]) -> set[type[TidelogError]]:
    found = set(cls.__subclasses__())
    return found.union(*(all_subclasses(child) for child in found))


def test_every_error_code_belongs_to_exactly_one_exception() -> None:
    codes_of_classes = sorted(int(cls.code) for cls in ERROR_CLASSES.values())

    assert codes_of_classes == sorted(int(code) for code in ErrorCode)
    assert all(ERROR_CLASSES[cls.code] is cls for cls in ERROR_CLASSES.values())


@all_broker_errors
def test_an_error_survives_the_wire(cls: type[BrokerError]) -> None:
    sent = an_error(cls)
    detail = msgspec.msgpack.decode(msgspec.msgpack.encode(sent.to_wire()), type=ErrorDetail)

    received = from_wire(detail)

    assert type(received) is cls
    assert str(received) == str(sent)
    assert received.is_retriable == issubclass(cls, RetriableError)
    for name in cls.detail_names:
        assert getattr(received, name) == getattr(sent, name) == sent.detail(name) is not None
    assert received.to_wire() == sent.to_wire()


@all_broker_errors
def test_an_error_survives_pickling_between_processes(cls: type[BrokerError]) -> None:
    sent = an_error(cls)

    received = pickle.loads(pickle.dumps(sent))

    assert type(received) is cls
    assert received.to_wire() == sent.to_wire()


def test_a_missing_error_detail_is_none() -> None:
    error = OffsetOutOfRangeError("offset 5 is not in the log", log_start_offset=7)

    assert error.log_start_offset == 7
    assert error.log_end_offset is None
    assert error.detail("log_end_offset") is None


def test_details_of_a_newer_broker_are_dropped() -> None:
    detail = ErrorDetail(
        int(ErrorCode.OFFSET_OUT_OF_RANGE), "no", {"log_start_offset": 7, "colour": 3}
    )

    error = from_wire(detail)

    assert isinstance(error, OffsetOutOfRangeError)
    assert error.to_wire().details == {"log_start_offset": 7}


def test_a_detail_that_an_error_does_not_have_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="OffsetOutOfRangeError takes"):
        OffsetOutOfRangeError("no", colour=3)


@pytest.mark.parametrize("code", [0, -1, 9999, 2**64 - 1])
def test_a_code_of_a_newer_broker_is_an_unexpected_server_error(code: int) -> None:
    error = from_wire(ErrorDetail(code, "the moon is full"))

    assert isinstance(error, UnexpectedServerError)
    assert str(error) == f"error {code} of a newer broker: the moon is full"


def test_control_characters_of_a_broker_do_not_reach_the_terminal() -> None:
    error = from_wire(ErrorDetail(2, "wrong\x1b[2J\nname \u2026 caf\u00e9"))

    assert str(error) == r"wrong\x1b[2J\nname " + "\u2026 caf\u00e9"


def test_an_error_about_a_file_name_that_is_not_utf8_can_be_sent() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")

    detail = UnexpectedServerError(f"cannot open {name}").to_wire()

    assert msgspec.msgpack.encode(detail)
    assert detail.message == r"cannot open caf\udce9"


def test_the_tree_in_the_docstring_is_the_real_tree() -> None:
    drawn: dict[str, str] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<indent>    [│├└─ ]*)(?P<names>\w+Error(?: / \w+Error)*)", line)
        if found:
            depth = (len(found["indent"]) - 4) // 4
            del branch[depth:]
            for name in found["names"].split(" / "):
                drawn[name] = branch[-1] if branch else "Exception"
            branch.append(found["names"].split(" / ")[-1])

    classes = {
        cls
        for cls in {TidelogError} | all_subclasses(TidelogError)
        # The command line has errors of its own.
        if cls.__module__ == errors.__name__
    }

    assert drawn == {cls.__name__: cls.__base__.__name__ for cls in classes if cls.__base__}


@all_broker_errors
def test_the_tree_in_the_docstring_names_the_attributes(cls: type[BrokerError]) -> None:
    (line,) = re.findall(rf"^.* {cls.__name__}\b.*$", errors.__doc__ or "", re.MULTILINE)

    assert re.findall(r" \.(\w+)", line) == list(cls.detail_names)


def test_a_missing_error_number_is_none() -> None:
    error = OffsetOutOfRangeError("too low", log_start_offset=7)

    assert error.log_start_offset == error.detail("log_start_offset") == 7
    assert error.log_end_offset is None
    assert error.detail("log_end_offset") is None


def test_an_unknown_error_number_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        OffsetOutOfRangeError("too low", size_bytes=7)
