"""Messages of every API: round trips, older and newer peers, wrong types, versions."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, cast

import msgpack
import msgspec
import msgspec.inspect as mi
import pytest

from tests.wire.replication_samples import DURABLE, FETCH, IDENTITY
from tests.wire.samples import CORRELATION_ID, EXCHANGES, OUT_OF_RANGE, VERSION, Exchange
from tidelog.wire.errors import ErrorDetail, UnsupportedVersionError, WireFormatError
from tidelog.wire.messages import groups, queue_admin, queues, redrives
from tidelog.wire.messages.field_types import LIST_LENGTH_MAX, LONG_LIST_LENGTH_MAX
from tidelog.wire.messages.handshake import ApiVersions
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.replication import ReplicaFetchRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api, ApiKey, choose_version, decode_error, encode_error
from tidelog.wire.protocol.frame import PREFIX_SIZE, Frame, FrameDecoder, FrameKind

WITHOUT_REQUIRED_FIELDS = (
    api.INIT_PRODUCER,
    api.LIST_GROUPS,
    api.DESCRIBE_CONFIG,
    api.LIST_KEYS,
    api.LIST_CERTIFICATES,
)
each_exchange = pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)


def only_frame(data: bytes) -> Frame:
    decoder = FrameDecoder(max_frame_bytes=1 << 20)
    decoder.get_buffer()[: len(data)] = data
    decoder.bytes_received(len(data))
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.buffered_bytes == 0
    return frame


def request_header(exchange: Exchange) -> bytes:
    data = exchange.api.encode_request(
        exchange.request, version=VERSION, correlation_id=CORRELATION_ID
    )
    return bytes(only_frame(data).header)


def reply_header(exchange: Exchange) -> bytes:
    data = exchange.api.encode_reply(exchange.reply, version=VERSION, correlation_id=CORRELATION_ID)
    return bytes(only_frame(data).header)


def fields(header: bytes) -> list[object]:
    """Return the fields of a message as the msgpack package reads them."""
    return cast("list[object]", msgpack.unpackb(header))


def packed(message_fields: list[object]) -> memoryview:
    return memoryview(msgpack.packb(message_fields))


def test_every_api_has_a_sample_and_a_register_entry() -> None:
    assert [exchange.api.key for exchange in EXCHANGES] == list(ApiKey)
    assert all(getattr(api, exchange.api.key.name) is exchange.api for exchange in EXCHANGES)


@each_exchange
def test_a_request_round_trips(exchange: Exchange) -> None:
    data = exchange.api.encode_request(
        exchange.request, version=VERSION, correlation_id=CORRELATION_ID
    )

    frame = only_frame(data)

    assert frame.kind is FrameKind.REQUEST
    assert (frame.api_key, frame.api_version) == (exchange.api.key, VERSION)
    assert frame.correlation_id == CORRELATION_ID
    assert exchange.api.decode_request(frame.header) == exchange.request


@each_exchange
def test_a_reply_round_trips(exchange: Exchange) -> None:
    data = exchange.api.encode_reply(exchange.reply, version=VERSION, correlation_id=CORRELATION_ID)

    frame = only_frame(data)

    assert frame.kind is FrameKind.REPLY
    assert (frame.api_key, frame.api_version) == (exchange.api.key, VERSION)
    assert frame.correlation_id == CORRELATION_ID
    assert exchange.api.decode_reply(frame.header) == exchange.reply


@each_exchange
def test_the_msgpack_package_reads_our_messages(exchange: Exchange) -> None:
    for message, header in (
        (exchange.request, request_header(exchange)),
        (exchange.reply, reply_header(exchange)),
    ):
        builtins = msgspec.to_builtins(message, builtin_types=(bytes,))
        assert fields(header) == fields(msgpack.packb(builtins))  # Tuples are arrays as well.


@each_exchange
def test_fields_of_a_newer_peer_are_ignored(exchange: Exchange) -> None:
    newer = [1, None, {"new": [b"field"]}, "text"]

    request = exchange.api.decode_request(packed(fields(request_header(exchange)) + newer))
    reply = exchange.api.decode_reply(packed(fields(reply_header(exchange)) + newer))

    assert request == exchange.request
    assert reply == exchange.reply


@each_exchange
def test_fields_that_an_older_peer_leaves_out_take_their_defaults(exchange: Exchange) -> None:
    for message, header, decode in (
        (exchange.request, request_header(exchange), exchange.api.decode_request),
        (exchange.reply, reply_header(exchange), exchange.api.decode_reply),
    ):
        assert isinstance(message, msgspec.Struct)
        infos = msgspec.structs.fields(message)
        required_count = sum(info.required for info in infos)
        older = decode(packed(fields(header)[:required_count]))

        assert [getattr(older, info.name) for info in infos] == [
            getattr(message, info.name) if info.required else default_of(info) for info in infos
        ]


def default_of(info: msgspec.structs.FieldInfo) -> object:
    return info.default_factory() if info.default is msgspec.NODEFAULT else info.default


@each_exchange
def test_a_message_cut_off_anywhere_is_refused(exchange: Exchange) -> None:
    for header, decode in (
        (request_header(exchange), exchange.api.decode_request),
        (reply_header(exchange), exchange.api.decode_reply),
    ):
        for length in range(len(header)):
            with pytest.raises(WireFormatError, match="a message cannot be decoded"):
                decode(memoryview(header)[:length])


@each_exchange
def test_a_required_field_cannot_be_left_out(exchange: Exchange) -> None:
    for header, decode in (
        (request_header(exchange), exchange.api.decode_request),
        (reply_header(exchange), exchange.api.decode_reply),
    ):
        try:
            decode(packed([]))
        except WireFormatError:
            continue
        assert exchange.api in WITHOUT_REQUIRED_FIELDS, f"all of {fields(header)} have defaults"


@each_exchange
def test_a_field_of_a_wrong_type_is_refused(exchange: Exchange) -> None:
    for header, decode in (
        (request_header(exchange), exchange.api.decode_request),
        (reply_header(exchange), exchange.api.decode_reply),
    ):
        for place in range(len(fields(header))):
            damaged = fields(header)
            damaged[place] = 0.5
            with pytest.raises(WireFormatError, match=rf"\$\[{place}\]"):
                decode(packed(damaged))


NOT_MESSAGES = {
    "nothing": b"",
    "a number": b"\x01",
    "a map": b"\x80",
    "a byte that msgpack never uses": b"\xc1",
    "an array of 4 billion": b"\xdd\xff\xff\xff\xff",
    "a text that is not UTF-8": b"\x92\xa1\xff\xa1a",
    "a text of 4 GB": b"\x92\xdb\xff\xff\xff\xffabc",
    "an extension": b"\xc7\x03\x05abc",
    "arrays in arrays in arrays": b"\x91" * 2_000_000,
    "a new field of arrays in arrays": b"\x93\xa1a\xa1a" + b"\x91" * 2_000_000 + b"\x00",
    "a new field of maps in maps": b"\x93\xa1a\xa1a" + b"\x81\x00" * 1_000_000 + b"\x00",
    "a new field of 4 billion": b"\x93\xa1a\xa1a\xdd\xff\xff\xff\xff",
    "something behind the message": b"\x92\xa1a\xa1a\x00",
}


@pytest.mark.parametrize("name", NOT_MESSAGES)
def test_what_is_not_a_message_is_refused(name: str) -> None:
    header = memoryview(NOT_MESSAGES[name])

    with pytest.raises(WireFormatError, match="a message cannot be decoded"):
        api.HELLO.decode_request(header)


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63, 2**64 - 1])
def test_sizes_times_and_ids_are_never_negative_or_huge(number: int) -> None:
    messages: list[tuple[Callable[[memoryview], object], list[object]]] = [
        (api.PRODUCE.decode_request, [1, number, []]),
        (api.PRODUCE.decode_request, [1, 1000, [[bytes(16), 0, number]]]),
        (api.FETCH.decode_request, [number, 1, 1000, []]),
        (api.FETCH.decode_request, [500, number, 1000, []]),
        (api.FETCH.decode_request, [500, 1, number, []]),
        (api.FETCH.decode_request, [500, 1, 1000, [[bytes(16), 0, 7, number]]]),
        (api.FETCH.decode_reply, [[[number, 0, 0]]]),
        (api.HELLO.decode_reply, ["v", "c", 1, [], number, 1]),
        (api.INIT_PRODUCER.decode_request, [number, 0]),
        (api.INIT_PRODUCER.decode_request, [42, number]),
        (api.INIT_PRODUCER.decode_reply, [number, 0]),
        (api.INIT_PRODUCER.decode_reply, [42, number]),
    ]

    for decode, message in messages:
        with pytest.raises(WireFormatError, match=r"Expected `int` .* at `\$"):
            decode(packed(message))


def test_an_error_survives_the_wire() -> None:
    data = encode_error(OUT_OF_RANGE, api_key=9, api_version=1, correlation_id=CORRELATION_ID)

    frame = only_frame(data)

    assert frame.kind is FrameKind.ERROR
    assert (frame.api_key, frame.api_version) == (9, 1)
    assert frame.correlation_id == CORRELATION_ID
    assert decode_error(frame.header) == OUT_OF_RANGE


def test_an_error_may_come_without_details_and_with_new_fields() -> None:
    assert decode_error(packed([8, "no topic"])) == ErrorDetail(8, "no topic", {})
    assert decode_error(packed([8, "no topic", {}, "new"])) == ErrorDetail(8, "no topic", {})


@pytest.mark.parametrize("wrong", [[8], ["8", "m"], [8, b"m"], [8, "m", {"offset": "7"}]])
def test_what_is_not_an_error_is_refused(wrong: list[object]) -> None:
    with pytest.raises(WireFormatError):
        decode_error(packed(wrong))


def spoken(min_version: int, max_version: int) -> api.Api[object, object]:
    return api.Api(ApiKey.FETCH, object, object, min_version=min_version, max_version=max_version)


@pytest.mark.parametrize(
    ("ours", "theirs", "chosen"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 3), (1, 1), 1),
        ((1, 1), (1, 3), 1),
        ((1, 3), (2, 5), 3),
        ((2, 5), (1, 3), 3),
        ((3, 3), (1, 9), 3),
    ],
)
def test_the_highest_common_version_is_chosen(
    ours: tuple[int, int], theirs: tuple[int, int], chosen: int
) -> None:
    offered = [ApiVersions(ApiKey.HELLO, 9, 9), ApiVersions(ApiKey.FETCH, *theirs)]

    assert choose_version(spoken(*ours), offered) == chosen


@pytest.mark.parametrize(("ours", "theirs"), [((1, 2), (3, 4)), ((3, 4), (1, 2)), ((1, 1), (2, 1))])
def test_an_error_without_a_common_version_names_both_ranges(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        choose_version(spoken(*ours), [ApiVersions(ApiKey.FETCH, *theirs)])

    assert str(caught.value) == (
        f"the broker supports FETCH {theirs[0]} to {theirs[1]},"
        f" this client {ours[0]} to {ours[1]}; upgrade the older of the two"
    )
    assert (caught.value.min_version, caught.value.max_version) == theirs


def test_an_api_without_an_offered_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError, match="the broker does not offer FETCH"):
        choose_version(api.FETCH, [ApiVersions(ApiKey.HELLO, 1, 1)])


@pytest.mark.parametrize(
    ("bounded", "request_of", "most"),
    [
        (api.DESCRIBE_TOPICS, DescribeTopicsRequest, LIST_LENGTH_MAX),
        (api.METADATA, MetadataRequest, LONG_LIST_LENGTH_MAX),
    ],
)
def test_lists_in_requests_are_bounded(
    bounded: Api[Any, Any], request_of: Callable[[list[str]], object], most: int
) -> None:
    longest, longer = (
        bounded.encode_request(request_of(["t"] * count), version=1, correlation_id=1)
        for count in (most, most + 1)
    )

    bounded.decode_request(memoryview(longest)[PREFIX_SIZE:])
    with pytest.raises(WireFormatError, match=f"array` of length <= {most}"):
        bounded.decode_request(memoryview(longer)[PREFIX_SIZE:])


def _unbounded_lists(of: mi.Type, path: str, within: frozenset[type]) -> Iterator[str]:
    """Yield where a message may have lists of any length."""
    if isinstance(of, mi.StructType):
        for field in () if of.cls in within else of.fields:
            yield from _unbounded_lists(field.type, f"{path}.{field.name}", within | {of.cls})
    elif isinstance(of, mi.ListType):
        if of.max_length is None:
            yield path
        yield from _unbounded_lists(of.item_type, path, within)
    elif isinstance(of, mi.UnionType):
        for each in of.types:
            yield from _unbounded_lists(each, path, within)


@pytest.mark.parametrize("module", [groups, queue_admin, queues, redrives])
def test_all_lists_in_requests_about_groups_and_queues_are_bounded(module: ModuleType) -> None:
    for name, kind in vars(module).items():
        if name.endswith("Request"):
            assert list(_unbounded_lists(mi.type_info(kind), name, frozenset())) == []


def test_a_fetch_with_nothing_new_is_small() -> None:
    idle = ReplicaFetchRequest(IDENTITY, False, 500, 8 << 20, [], [], [])

    assert len(api.REPLICA_FETCH.encode_request(idle, version=1, correlation_id=1)) < 120


def test_a_report_of_a_partition_takes_few_bytes() -> None:
    request, _ = DURABLE
    more = type(request)(IDENTITY, [*request.partitions] * 101, True)

    sizes = [
        len(api.REPLICA_DURABLE.encode_request(each, version=1, correlation_id=1))
        for each in (request, more)
    ]

    assert sizes[1] - sizes[0] < 100 * 8


def test_a_follower_asks_for_each_new_partition_from_a_position() -> None:
    request, _ = FETCH

    followed = {each.number_in_session for each in request.followed}
    assert followed <= {each.number_in_session for each in request.positions}
