"""Tests of the source's options: meanings of Spark's Kafka source, and errors."""

import pickle

import pytest

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.options import ConnectionOptions, GivenOptions
from tidelog.spark_connector.read.moments import Moment
from tidelog.spark_connector.read.read_options import (
    READ_NAMES,
    OffsetLimit,
    ReadOptions,
    Selection,
    json_text,
)
from tidelog.wire.errors import ConfigError

SERVERS = {"bootstrap.servers": "here:1"}


def parse(is_stream: bool | None = False, /, **options: str) -> ReadOptions:
    return ReadOptions.parse({**SERVERS, "subscribe": "orders", **options}, is_stream=is_stream)


def test_a_batch_reads_from_the_first_record_to_the_end_and_a_stream_from_the_end_on() -> None:
    batch, stream = parse(False), parse(True)

    assert (batch.starting.at, batch.ending.at) == ("earliest", "latest")
    assert stream.starting.at == "latest"
    assert (batch.max_records_per_partition, stream.max_records_per_partition) == (250_000, None)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert isinstance(batch.connection, ConnectionOptions)
    assert pickle.loads(pickle.dumps(batch)) == batch


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": " b, a,b"}, Selection(topics=("a", "b"))),
        ({"subscribePattern": "or.*"}, Selection(pattern="or.*")),
        (
            {"assign": '{"b":[1,0],"a":[2]}'},
            Selection(
                partitions=(
                    TopicPartition("a", 2),
                    TopicPartition("b", 0),
                    TopicPartition("b", 1),
                )
            ),
        ),
        ({"queueDeadLetters": "pay"}, Selection(dead_letters_of="pay")),
        ({"queueHistory": "pay"}, Selection(history_of="pay")),
        (
            {"subscribe": "a", "partitions": "9, 0,2-4"},
            Selection(topics=("a",), numbers=(0, 2, 3, 4, 9)),
        ),
    ],
)
def test_each_selection_is_parsed(given: dict[str, str], expected: Selection) -> None:
    selection = Selection.parse(GivenOptions(given, READ_NAMES))

    assert selection == expected
    assert str(selection)


@pytest.mark.statement("s3")
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"subscribe": "a", "subscribePattern": "b"},
        {"subscribe": "a", "queueDeadLetters": "b"},
        {"queueDeadLetters": "b", "queueHistory": "b"},
    ],
)
def test_no_selection_or_two_selections_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="exactly one of subscribe, subscribePattern, assign"):
        ReadOptions.parse({**SERVERS, **given}, is_stream=None)


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": ","},
        {"subscribePattern": "("},
        {"assign": "{}"},
        {"assign": '{"a":[]}'},
        {"assign": '{"a":[true]}'},
        {"assign": '{"a":[-1]}'},
        {"assign": '{"a":[1.0]}'},
        {"assign": '{"a":[1,1]}'},
        {"assign": '{"a":0}'},
        {"assign": '{"a":[0]}', "partitions": "0"},
        {"partitions": "x", "subscribe": "a"},
        {"partitions": "4-2", "subscribe": "a"},
        {"partitions": "-1", "subscribe": "a"},
        {"partitions": "1,1", "subscribe": "a"},
    ],
)
def test_an_invalid_selection_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(given))}"):
        Selection.parse(GivenOptions(given, READ_NAMES))


def test_starting_timestamp_precedes_timestamps_by_partition_and_offsets() -> None:
    offsets = {"startingOffsets": '{"orders":{"0":5}}'}
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":1000}}'}

    assert parse(False, **offsets).starting == OffsetLimit(
        "startingOffsets", "offsets", by_partition={TopicPartition("orders", 0): 5}
    )
    assert parse(False, **offsets, **times).starting.at == "times"
    assert parse(False, **offsets, **times, startingTimestamp="7").starting == OffsetLimit(
        "startingTimestamp", "time", Moment(7)
    )
    assert parse(endingTimestamp="9").ending.time == Moment(9)


@pytest.mark.statement("s4")
@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"orders":{"0":-2}}'},
        {"startingOffsets": '{"orders":{"0":-3}}'},
        {"startingOffsets": '{"orders":{"0":true}}'},
        {"startingOffsets": '{"orders":{"0":1.5}}'},
        {"startingOffsets": '{"orders":{"0":"1"}}'},
        {"startingOffsets": '{"orders":{"00":1}}'},
        {"startingOffsets": '{"orders":{"x":1}}'},
        {"startingOffsets": '{"orders":[1]}'},
        {"startingOffsets": "{}"},
        {"startingOffsets": "newest"},
        {"startingOffsets": "-5"},
        {"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'},
        {"startingTimestamp": "-1"},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "2026-01-31T12:00"},
        {"startingOffsetsByTimestamp": '{"orders":{"0":true}}'},
        {"startingOffsetsByTimestamp": '{"orders":{"0":null}}'},
        {"endingOffsets": '{"orders":{"0":9223372036854775808}}'},
        {"maxOffsetsPerTrigger": "0"},
        {"minPartitions": "0"},
        {"failOnDataLoss": "no"},
        {"startingOffsetsByTimestampStrategy": "guess"},
        {"largeMessages": "skip"},
    ],
)
def test_a_batch_refuses_invalid_options_and_names_them(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        parse(False, **given)


@pytest.mark.statement("s6")
@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"orders":{"0":5}}')

    with pytest.raises(ConfigError, match=f"{name}.*a stream has no end"):
        parse(True, **{name: text})


def test_a_partition_without_so_young_a_record_is_no_error_in_a_batch() -> None:
    strategy = "startingOffsetsByTimestampStrategy"

    assert (parse(False).starting_strategy, parse(True).starting_strategy) == ("latest", "error")
    assert parse(False, **{strategy: "error"}).starting_strategy == "error"
    assert parse(True, **{strategy: "latest"}).starting_strategy == "latest"


@pytest.mark.parametrize(
    ("given", "is_moving"),
    [
        ({}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"orders":{"0":7,"1":-1}}'}, True),
        ({"startingOffsets": '{"orders":{"0":7,"1":-2}}'}, False),
        ({"startingTimestamp": "1h"}, True),
        ({"startingTimestamp": "2026-01-31T12:00Z"}, False),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":7,"1":"1h"}}'}, True),
    ],
)
def test_the_end_and_an_age_are_other_offsets_later(given: dict[str, str], is_moving: bool) -> None:
    assert parse(True, **given).starting.is_moving == is_moving


def test_one_offset_may_be_given_for_all_partitions() -> None:
    options = parse(subscribe="a", startingOffsets="17", endingOffsets="20")

    assert (options.starting.at, options.starting.offset) == ("offset", 17)
    assert (options.ending.at, options.ending.offset) == ("offset", 20)


@pytest.mark.parametrize("names", ["", ",", "value,value"])
def test_columns_are_different_names(names: str) -> None:
    with pytest.raises(ConfigError, match=r"^columns must"):
        parse(subscribe="a", columns=names)


def test_a_stream_may_begin_anywhere() -> None:
    offsets = '{"orders":{"0":-1,"1":-2,"2":7}}'

    assert parse(True, startingOffsets=offsets).starting.by_partition == {
        TopicPartition("orders", 0): -1,
        TopicPartition("orders", 1): -2,
        TopicPartition("orders", 2): 7,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"maxOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5"},
        {"maxTriggerDelay": "5s"},
        {"maxBytesPerTrigger": "5"},
        {"groupId": "billing"},
        {"groupIdPrefix": "billing"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_a_batch_takes_the_options_of_a_stream_and_says_that_it_ignores_them(
    given: dict[str, str],
) -> None:
    (name,) = given

    assert parse(False, **given).ignored == (
        f"option {name!r} is ignored: it is for streams, and this is a batch",
    )
    assert parse(True, **given).ignored == ()
    assert parse(None, **given).ignored == ()


def test_min_offsets_per_trigger_above_the_max_is_refused() -> None:
    with pytest.raises(ConfigError, match="9 is above maxOffsetsPerTrigger 5"):
        parse(True, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5")


def test_group_id_and_group_id_prefix_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="not both"):
        parse(True, groupId="a", groupIdPrefix="b")


def test_option_names_of_sparks_kafka_source_are_aliases() -> None:
    options = ReadOptions.parse(
        {
            "kafka.bootstrap.servers": "here:1",
            "subscribe": "a",
            "kafka.group.id": "billing",
            "kafka.isolation.level": "read_committed",
            "kafkaConsumer.pollTimeoutMs": "500",
        },
        is_stream=True,
    )

    assert (options.group_id, options.fetch_timeout_ms) == ("billing", 500)


def test_batch_and_stream_options_are_checked_once_the_mode_is_known() -> None:
    options = parse(None, endingOffsets="latest", maxOffsetsPerTrigger="5")

    assert options.max_offsets_per_trigger == 5


def test_errors_show_booleans_as_json() -> None:
    assert [json_text(each) for each in (True, False, 1.5, "1")] == ["true", "false", "1.5", "'1'"]


@pytest.mark.parametrize(
    "option",
    [
        {"includeHeaders": "true"},
        {"largeMessages": "join"},
        {"largeMessageMaxBytes": "1000"},
        {"maxBytesPerTrigger": "1000"},
        {"groupId": "audit"},
        {"groupIdPrefix": "audit"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_a_history_refuses_options_about_records(option: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(option))} cannot be used here"):
        ReadOptions.parse({**SERVERS, "queueHistory": "pay", **option}, is_stream=True)
