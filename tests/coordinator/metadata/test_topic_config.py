"""Topic settings as text: accepted values, refused values, and the texts of the errors."""

import pytest

from tidelog.coordinator.metadata.topic_config import (
    SETTINGS,
    check_settings,
    effective_settings,
    topic_config,
)
from tidelog.isr.durability import Durability
from tidelog.logstore.compaction.policy import CompactionConfig
from tidelog.logstore.config import LogConfig
from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.config.settings import parse_size_bytes
from tidelog.wire.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250", 250),
        ("250ms", 250),
        ("5s", 5_000),
        ("30min", 1_800_000),
        ("30m", 1_800_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        (" 7 D ", 604_800_000),
    ],
)
def test_a_duration_may_have_a_unit(text: str, milliseconds: int) -> None:
    assert parse_duration_ms("retention_ms", text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4KiB", 4096),
        ("256MiB", 256 << 20),
        ("1gib", 1 << 30),
        ("1GB", 10**9),
        ("3 kb", 3000),
    ],
)
def test_a_size_may_have_a_binary_or_a_decimal_unit(text: str, size: int) -> None:
    assert parse_size_bytes("segment_bytes", text) == size


@pytest.mark.parametrize("text", ["", "seven days", "-1", "1.5h", "5 parsecs", "h"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"retention_ms is .*such as 8d, 1h30m"):
        parse_duration_ms("retention_ms", text)


@pytest.mark.parametrize("text", ["", "big", "-1", "1.5MiB", "5 parsecs"])
def test_an_invalid_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"segment_bytes is .*such as 256MiB"):
        parse_size_bytes("segment_bytes", text)


def test_the_defaults_are_those_of_a_log() -> None:
    config = topic_config({})

    assert config.log == LogConfig()
    assert config.durability is Durability.FSYNC
    assert config.min_insync_replicas == 1


def test_topics_with_equal_overrides_share_their_config() -> None:
    one = topic_config({"retention_ms": "1h", "segment_ms": "1h"})

    assert topic_config({"segment_ms": "1h", "retention_ms": "1h"}) is one
    assert topic_config({"segment_ms": "2h", "retention_ms": "1h"}) is not one


def test_every_setting_reaches_the_configuration() -> None:
    config = topic_config(
        {
            "max_message_bytes": "2MiB",
            "cleanup_policy": "delete,compact",
            "delete_retention_ms": "2d",
            "durability": "replicated",
            "index_interval_bytes": "8KiB",
            "max_compaction_lag_ms": "30min",
            "min_compaction_lag_ms": "1s",
            "min_cleanable_dirty_ratio": "0.25",
            "min_insync_replicas": "1",
            "max_partition_bytes": "2GiB",
            "retention_bytes": "1GiB",
            "retention_ms": "unlimited",
            "segment_bytes": "1MiB",
            "segment_ms": "1h",
        }
    )

    assert config.durability is Durability.REPLICATED
    assert config.log == LogConfig(
        max_message_bytes=2 << 20,
        index_interval_bytes=8 << 10,
        max_partition_bytes=2 << 30,
        retention_bytes=1 << 30,
        retention_ms=None,
        segment_bytes=1 << 20,
        segment_ms=1_800_000,
    )
    assert config.compaction == CompactionConfig(
        min_compaction_lag_ms=1000,
        max_compaction_lag_ms=1_800_000,
        min_cleanable_dirty_ratio=0.25,
        delete_retention_ms=2 * 24 * 3_600_000,
    )
    assert not config.is_kept


def test_a_compact_only_topic_ignores_retention_limits() -> None:
    config = topic_config({"cleanup_policy": "compact", "retention_bytes": "1GiB"})

    assert config.compaction == CompactionConfig()
    assert config.is_kept
    assert (config.log.retention_ms, config.log.retention_bytes) == (None, None)
    assert topic_config({}).compaction is None


def test_max_compaction_lag_must_not_be_below_min_compaction_lag() -> None:
    with pytest.raises(InvalidConfigError, match="must not be below min_compaction_lag_ms, 2h"):
        check_settings(
            {
                "cleanup_policy": "compact",
                "min_compaction_lag_ms": "2h",
                "max_compaction_lag_ms": "1h",
            }
        )


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("max_message_bytes", "1", "at least 1024"),
        ("max_message_bytes", "1GiB", "at most 67108864"),
        ("cleanup_policy", "compact,delete", "one of delete, compact, delete,compact"),
        ("delete_retention_ms", "long", "a duration"),
        ("durability", "maybe", "one of fsync, replicated"),
        ("index_interval_bytes", "1", "at least 256"),
        ("min_cleanable_dirty_ratio", "1.5", "a number from 0 to 1"),
        ("min_cleanable_dirty_ratio", "half", "a number from 0 to 1"),
        ("min_insync_replicas", "0", "at least 1"),
        ("min_insync_replicas", "two", "must be a number"),
        ("max_partition_bytes", "8kB", "at least 8192"),
        ("max_partition_bytes", "511MiB", "at least twice segment_bytes, 256MiB"),
        ("retention_ms", "10ms", "at least 1000"),
        ("segment_bytes", "1KiB", "at least 4096"),
        ("segment_bytes", "4GiB", "at most 2147483648"),
        ("segment_ms", "0", "at least 1000"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(name: str, text: str, wanted: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is .*{wanted}"):
        check_settings({name: text})


def test_an_unknown_setting_is_refused_and_the_known_ones_listed() -> None:
    with pytest.raises(InvalidConfigError, match=r"no topic setting 'retention'.*retention_ms"):
        check_settings({"retention": "7d"})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="index_interval_bytes is 1MiB, it must not be"):
        check_settings({"index_interval_bytes": "1MiB", "segment_bytes": "4KiB"})


def test_settings_in_force_are_the_overrides_over_the_defaults() -> None:
    settings = effective_settings({"retention_ms": "1h"})

    assert settings == {
        **{name: setting.default for name, setting in SETTINGS.items()},
        "retention_ms": "1h",
    }


def test_topic_settings_are_sorted_and_documented() -> None:
    assert list(SETTINGS) == sorted(SETTINGS)
    for setting in SETTINGS.values():
        assert setting.about.endswith(".")


@pytest.mark.parametrize("name", [name for name in SETTINGS if " to " in SETTINGS[name].allowed])
def test_the_documented_range_is_the_accepted_range(name: str) -> None:
    low, high = SETTINGS[name].allowed.split(" to ")
    below = parse_size_bytes(name, low) - 1
    above = parse_size_bytes(name, high) + 1

    for text in (low, high):
        SETTINGS[name].parse(name, text)
    for size in (below, above):
        with pytest.raises(InvalidConfigError):
            SETTINGS[name].parse(name, str(size))


@pytest.mark.parametrize(
    "name", [name for name in SETTINGS if " or more" in SETTINGS[name].allowed]
)
def test_the_documented_minimum_is_accepted_and_less_is_refused(name: str) -> None:
    setting = SETTINGS[name]
    parse = parse_duration_ms if name.endswith("_ms") else parse_size_bytes
    low = parse(name, setting.allowed.partition(" or more")[0])

    assert setting.parse(name, str(low)) == low
    with pytest.raises(InvalidConfigError, match=f"at least {low}"):
        setting.parse(name, str(low - 1))


@pytest.mark.parametrize(
    "name", ["delete_retention_ms", "min_compaction_lag_ms", "retention_bytes"]
)
def test_a_limit_of_0_is_legal(name: str) -> None:
    assert SETTINGS[name].parse(name, "0") == 0


@pytest.mark.parametrize("text", ["0", "1", ".5", "0.123456789", "1.0"])
def test_a_ratio_is_a_number_from_0_to_1(text: str) -> None:
    config = topic_config({"cleanup_policy": "compact", "min_cleanable_dirty_ratio": text})

    assert config.compaction is not None
    assert config.compaction.min_cleanable_dirty_ratio == float(text)


@pytest.mark.parametrize("text", ["1.000000001", "2", "-0.5", "0.1234567891", "1."])
def test_another_number_is_no_ratio(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="a number from 0 to 1"):
        topic_config({"min_cleanable_dirty_ratio": text})


def test_settings_that_just_fit_each_other_are_accepted() -> None:
    config = topic_config(
        {
            "cleanup_policy": "compact",
            "index_interval_bytes": "1MiB",
            "max_compaction_lag_ms": "2h",
            "max_partition_bytes": "2MiB",
            "min_compaction_lag_ms": "2h",
            "segment_bytes": "1MiB",
        }
    )

    assert config.log.max_partition_bytes == 2 * config.log.segment_bytes
    assert config.log.index_interval_bytes == config.log.segment_bytes
    with pytest.raises(InvalidConfigError, match="max_partition_bytes is 2097151"):
        topic_config({"segment_bytes": "1MiB", "max_partition_bytes": "2097151"})


def test_a_segment_is_sealed_at_the_shorter_one_of_its_two_limits() -> None:
    lag = {"cleanup_policy": "compact", "max_compaction_lag_ms": "2h"}

    assert topic_config({**lag, "segment_ms": "1h"}).log.segment_ms == 3_600_000
    assert topic_config({**lag, "segment_ms": "3h"}).log.segment_ms == 7_200_000
    assert topic_config({**lag, "cleanup_policy": "delete"}).log.segment_ms == 7 * 86_400_000


def test_all_replicas_may_be_required() -> None:
    check_settings({"min_insync_replicas": "3"}, replication_factor=3)
    check_settings({"min_insync_replicas": "1"})
    with pytest.raises(InvalidConfigError, match="is 2, it must be at most 1"):
        check_settings({"min_insync_replicas": "2"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention_ms", "9" * 5000),
        ("min_insync_replicas", "9" * 5000),
        ("min_insync_replicas", "\u00b2"),
        ("retention_bytes", "\u0663"),
        ("segment_bytes", "1MiB\n2"),
    ],
)
def test_non_ascii_digits_and_huge_numbers_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is .*it must be"):
        check_settings({name: text})
