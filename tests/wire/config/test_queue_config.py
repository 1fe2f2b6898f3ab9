"""Settings of queues: their texts, values and combinations."""

import pytest

from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.config.queue_config import (
    FIFO_SETTINGS,
    QUEUE_SETTINGS,
    RANGES,
    DeduplicationScope,
    PriorityDelivery,
    QueueConfig,
    ReceiveAcks,
    check_queue_name,
    check_queue_setting_name,
    check_queue_settings,
    effective_queue_settings,
    first_difference,
    frozen_settings,
    queue_config,
)
from tidelog.wire.config.retry_backoff import NO_BACKOFF
from tidelog.wire.config.settings import parse_size_bytes
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError
from tidelog.wire.messages.queues import VISIBILITY_TIMEOUT_MS_MAX

HOUR_MS = 3_600_000
TARGET = (b"dead letter topic", 3)


def test_a_queue_without_settings_has_the_defaults() -> None:
    config = queue_config({}, is_fifo=False)

    assert config.visibility_timeout_ms == 30_000
    assert config.delivery_delay_ms == 0
    assert config.retention_ms == 4 * 24 * HOUR_MS
    assert (config.max_receive_count, config.dead_letter_queue) == (None, None)
    assert config.retry_backoff == NO_BACKOFF
    assert config.receive_acks is ReceiveAcks.LEADER
    assert not config.require_latest_receipt
    assert (config.max_in_flight, config.priority_weights, config.send_rate) == (120_000, (), None)
    assert not config.fair_delivery
    assert config.deduplication_window_ms == 5 * 60_000
    assert config.receive_message_wait_time_ms == 0


def test_a_fifo_queue_fences_and_is_strict() -> None:
    config = queue_config({}, is_fifo=True)

    assert config.require_latest_receipt
    assert config.receive_acks is ReceiveAcks.ALL
    assert not config.content_based_deduplication


@pytest.mark.statement("b58")
def test_a_dead_letter_queue_sets_receive_acks_all_by_default() -> None:
    with_dead_letters = {"dead_letter_queue": "dead"}

    strict = queue_config(with_dead_letters, is_fifo=False)
    lazy = queue_config({**with_dead_letters, "receive_acks": "leader"}, is_fifo=False)
    without = queue_config({"dead_letter_queue": "None"}, is_fifo=False)

    assert strict.dead_letter_queue == "dead"
    assert strict.receive_acks is ReceiveAcks.ALL
    assert lazy.receive_acks is ReceiveAcks.LEADER
    assert without.dead_letter_queue is None
    assert without.receive_acks is ReceiveAcks.LEADER


def test_every_default_is_legal() -> None:
    for is_fifo in (True, False):
        texts = effective_queue_settings({}, is_fifo=is_fifo)

        check_queue_settings(texts, is_fifo=is_fifo)
        assert queue_config(texts, is_fifo=is_fifo) == queue_config({}, is_fifo=is_fifo)


def test_settings_are_listed_by_name() -> None:
    assert list(QUEUE_SETTINGS) == sorted(QUEUE_SETTINGS)
    assert set(effective_queue_settings({}, is_fifo=True)) == set(QUEUE_SETTINGS)
    assert set(effective_queue_settings({}, is_fifo=False)) == set(QUEUE_SETTINGS) - set(
        FIFO_SETTINGS
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("visibility_timeout_ms", "13h", "at most 43200000"),
        ("visibility_timeout_ms", "soon", "a duration such as"),
        ("retention_ms", "59s", "at least 60000"),
        ("delivery_delay_ms", "40000d", "at most"),
        ("max_receive_count", "0", "at least 1"),
        ("max_receive_count", "1001", "at most 1000"),
        ("dead_letter_queue", "a/b", "the name of a queue, or none"),
        ("receive_acks", "loose", "one of all, leader"),
        ("require_latest_receipt", "maybe", "on or off"),
        ("max_in_flight", "0", "at least 1"),
        ("priority_weights", "8,0", "1 to 16 weights from 1 to 999"),
        ("priority_weights", ",".join(["1"] * 17), "1 to 16 weights"),
        ("priority_weights", "", "must be none, or"),
        ("send_rate", "0", "at least 1"),
        ("send_rate", "-3", "must be a number"),
        ("receive_message_wait_time_ms", "11min", "at most 600000"),
        ("retry_backoff", "often", "it must be `none`, delays such as"),
        ("alert_age_ms", "999", "at least 1000"),
        ("alert_age_ms", "never", "a duration such as"),
        ("alert_depth", "-1", "must be a number"),
        ("alert_dead_letters", "many", "must be a number"),
        ("owner", " ", "none, or a text of 1 to 256 bytes without control characters"),
        ("owner", "x" * 257, "1 to 256 bytes"),
        ("owner", "é" * 129, "1 to 256 bytes"),
        ("owner", "a\nb", "without control characters"),
        ("owner", "\udcff", "without control characters"),
        ("colour", "red", "there is no queue setting 'colour'; there are alert_age_ms, "),
        ("deduplication_window_ms", "5min", "a setting of FIFO queues, and this queue is not FIFO"),
        ("content_based_deduplication", "on", "a setting of FIFO queues"),
    ],
)
def test_an_illegal_setting_is_refused_with_the_legal_values(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        check_queue_settings({name: text}, is_fifo=False)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("require_latest_receipt", "off", "it must be on"),
        ("priority_weights", "2,1", "priority_weights is not for FIFO queues"),
        ("fair_delivery", "on", "fair_delivery is not for FIFO"),
        ("deduplication_scope", "topic", "one of queue, group"),
        ("deduplication_window_ms", "8d", "at most"),
    ],
)
def test_a_fifo_queue_requires_the_latest_receipt(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        check_queue_settings({name: text}, is_fifo=True)


def test_fair_delivery_excludes_priorities() -> None:
    with pytest.raises(InvalidConfigError, match="either priority_weights or fair_delivery"):
        check_queue_settings({"priority_weights": "8,1", "fair_delivery": "on"}, is_fifo=False)


@pytest.mark.parametrize("text", ["on", "true", "True"])
def test_a_switch_accepts_true_and_false(text: str) -> None:
    config = queue_config({"require_latest_receipt": text}, is_fifo=False)

    assert config.require_latest_receipt


@pytest.mark.parametrize(
    ("text", "weights"),
    [("none", ()), ("8,4,1", (8, 4, 1)), ("2", (2,)), (" 3 , 1 ", (3, 1))],
)
def test_priority_weights_are_read(text: str, weights: tuple[int, ...]) -> None:
    assert queue_config({"priority_weights": text}, is_fifo=False).priority_weights == weights


@pytest.mark.parametrize(
    ("settings", "default_priority", "is_strict"),
    [
        ({}, None, False),
        ({"priority_weights": "8,4,1"}, 2, False),
        ({"priority_weights": "8,4,1", "default_priority": "auto"}, 2, False),
        ({"priority_weights": "8,4,1", "default_priority": "0"}, 0, False),
        ({"priority_weights": "1,1", "priority_delivery": "strict"}, 1, True),
    ],
)
def test_a_message_without_a_priority_gets_the_least_urgent_one_by_default(
    settings: dict[str, str], default_priority: int | None, *, is_strict: bool
) -> None:
    config = queue_config(settings, is_fifo=False)

    assert config.default_priority == default_priority
    assert (config.priority_delivery is PriorityDelivery.STRICT) == is_strict
    told = effective_queue_settings(settings, is_fifo=False)["default_priority"]
    assert told == ("none" if default_priority is None else str(default_priority))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"priority_weights": "8,4,1", "default_priority": "3"},
            "default_priority is 3, it must be from 0 to 2: priority_weights has 3 weights",
        ),
        ({"default_priority": "0"}, "default_priority is 0, and the queue has no priorities"),
        ({"priority_delivery": "strict"}, "priority_delivery is strict, and .* no priorities"),
        ({"priority_weights": "1", "priority_delivery": "fast"}, "one of weighted, strict"),
        ({"priority_weights": "1", "default_priority": "16"}, "at most 15"),
    ],
)
def test_settings_of_priorities_must_fit_each_other(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        check_queue_settings(settings, is_fifo=False)


def test_the_order_of_delivery_depends_on_the_settings_of_priorities() -> None:
    base = QueueConfig(priority_weights=(2, 1))
    others = [
        QueueConfig(priority_weights=(2, 1), default_priority=0),
        QueueConfig(priority_weights=(2, 1), priority_delivery=PriorityDelivery.STRICT),
        QueueConfig(priority_weights=(3, 1)),
        QueueConfig(fair_delivery=True),
    ]

    assert all(base.order_settings != other.order_settings for other in others)
    assert (
        base.order_settings == QueueConfig(priority_weights=(2, 1), max_in_flight=1).order_settings
    )


@pytest.mark.statement("b44")
@pytest.mark.parametrize(
    ("asked", "partition_count", "scope"),
    [({}, 1, "queue"), ({}, 3, "group"), ({"deduplication_scope": "group"}, 1, "group")],
)
def test_the_deduplication_scope_is_fixed_at_creation(
    asked: dict[str, str], partition_count: int, scope: str
) -> None:
    frozen = frozen_settings(asked, is_fifo=True, partition_count=partition_count)

    assert frozen == {"deduplication_scope": scope}
    assert queue_config(frozen, is_fifo=True).deduplication_scope is DeduplicationScope(scope)


def test_deduplication_scope_queue_needs_a_single_partition() -> None:
    with pytest.raises(InvalidConfigError, match="must be group: the queue has 2 partitions"):
        frozen_settings({"deduplication_scope": "queue"}, is_fifo=True, partition_count=2)

    assert frozen_settings({}, is_fifo=False, partition_count=2) == {}


@pytest.mark.parametrize(
    ("asked", "there", "difference"),
    [
        ({}, {}, None),
        ({"visibility_timeout_ms": "30s"}, {}, None),
        ({"retry_backoff": "1s,2s"}, {"retry_backoff": "1000, 2000"}, None),
        ({"require_latest_receipt": "true"}, {"require_latest_receipt": "on"}, None),
        ({}, {"priority_weights": "3,1"}, "its priority_weights is 3,1, not none"),
        (
            {"priority_weights": "3,1"},
            {"priority_weights": "3,1", "default_priority": "0"},
            "its default_priority is 0, not 1",
        ),
        (
            {"dead_letter_queue": "dead"},
            {"receive_acks": "all"},
            "its dead_letter_queue is none, not dead",
        ),
    ],
)
def test_settings_are_compared_by_value(
    asked: dict[str, str], there: dict[str, str], difference: str | None
) -> None:
    assert first_difference(asked, there, is_fifo=False) == difference


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "queue@a", "x" * 250, "none"])
def test_a_name_that_no_queue_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be the name of a queue"):
        check_queue_name(name)


def test_an_unknown_setting_is_refused_by_name_alone() -> None:
    check_queue_setting_name("priority_weights")

    with pytest.raises(InvalidConfigError, match="no queue setting 'priority'"):
        check_queue_setting_name("priority")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"visibility_timeout_ms": -1}, "visibility_timeout_ms is"),
        ({"visibility_timeout_ms": VISIBILITY_TIMEOUT_MS_MAX + 1}, "visibility_timeout_ms is"),
        ({"delivery_delay_ms": -1}, "delivery_delay_ms is -1"),
        ({"retention_ms": 59_999}, "from 60000 to"),
        ({"max_receive_count": 0}, "max_receive_count is 0, it must be from 1"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"priority_weights": (4, 0)}, "weight"),
        ({"priority_weights": (4, 1), "is_fifo": True}, "FIFO"),
        ({"fair_delivery": True, "is_fifo": True}, "FIFO"),
        ({"priority_weights": (4, 1), "fair_delivery": True}, "either"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    settings: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidConfigError, match=complaint):
        QueueConfig(**settings)  # type: ignore[arg-type]


def test_messages_do_not_die_where_there_is_no_place_for_the_dead() -> None:
    assert QueueConfig(max_receive_count=3).max_deliveries is None
    assert QueueConfig(max_receive_count=3, dead_letter_target=TARGET).max_deliveries == 3


def test_a_fifo_queue_is_always_fenced() -> None:
    assert QueueConfig(is_fifo=True).is_fenced
    assert QueueConfig(require_latest_receipt=True).is_fenced
    assert not QueueConfig().is_fenced


@pytest.mark.parametrize("is_fifo", [False, True])
def test_a_config_without_texts_has_the_defaults_of_the_texts(*, is_fifo: bool) -> None:
    config = QueueConfig(is_fifo=is_fifo)
    auto = {"receive_acks", "require_latest_receipt"} if is_fifo else set[str]()

    assert {
        name
        for name in QUEUE_SETTINGS
        if getattr(config, name) != getattr(queue_config({}, is_fifo=is_fifo), name)
    } == auto


def test_ranges_are_those_of_settings() -> None:
    assert set(RANGES) <= set(QUEUE_SETTINGS)
    for name, (low, high) in RANGES.items():
        setting = QUEUE_SETTINGS[name]
        assert (setting.parse(name, str(low)), setting.parse(name, str(high))) == (low, high)
        with pytest.raises(InvalidConfigError, match="at most"):
            setting.parse(name, str(high + 1))
        if low:
            with pytest.raises(InvalidConfigError, match="at least"):
                setting.parse(name, str(low - 1))


@pytest.mark.parametrize("name", RANGES)
def test_a_config_accepts_both_ends_of_each_range_and_nothing_beyond(name: str) -> None:
    low, high = RANGES[name]

    for value in (low, high):
        assert getattr(QueueConfig(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidConfigError, match=f"{name} is {value}, .* from {low} to {high}"):
            QueueConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RANGES)
def test_the_documented_range_of_a_setting_is_the_accepted_range(name: str) -> None:
    """A range "1 or more" ends where no sensible value is."""
    parse = parse_duration_ms if name.endswith("_ms") else parse_size_bytes
    documented = QUEUE_SETTINGS[name].allowed.removesuffix(", unlimited").removesuffix(", none")
    low, _, high = documented.removesuffix(" or more").partition(" to ")

    assert RANGES[name][0] == parse(name, low)
    if high:
        assert RANGES[name][1] == parse(name, high)
    else:
        assert RANGES[name][1] >= 1_000_000_000


def test_as_many_priorities_as_documented_can_have_weights() -> None:
    most = ",".join(["999"] * 15 + ["1"])

    weights = queue_config({"priority_weights": most}, is_fifo=False).priority_weights

    assert weights == (999,) * 15 + (1,)
    assert "up to 16 weights" in QUEUE_SETTINGS["priority_weights"].allowed


def test_owner_and_thresholds_are_unset_by_default() -> None:
    texts = {
        "owner": " Payments <pay@example.org> ",
        "alert_age_ms": "1h30m",
        "alert_depth": "10000",
        "alert_dead_letters": "0",
    }

    default, config = queue_config({}, is_fifo=False), queue_config(texts, is_fifo=False)
    unset = queue_config(dict.fromkeys(texts, "none"), is_fifo=False)

    assert unset == default
    assert (default.owner, default.alert_age_ms) == (None, None)
    assert (default.alert_depth, default.alert_dead_letters) == (None, None)
    assert (config.owner, config.alert_age_ms) == ("Payments <pay@example.org>", 5_400_000)
    assert (config.alert_depth, config.alert_dead_letters) == (10_000, 0)
    assert queue_config({"owner": "é" * 128}, is_fifo=False).owner == "é" * 128


@pytest.mark.parametrize("name", ["a", "x" * 249, "A.b_c-9", "_..."])
def test_a_name_at_the_limits_is_accepted(name: str) -> None:
    check_queue_name(name)

    config = queue_config({"dead_letter_queue": "x" * 249}, is_fifo=False)
    assert config.dead_letter_queue == "x" * 249


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-rf", ".hidden", "none", "None", "a b", "x" * 250]
)
def test_a_name_that_a_shell_or_a_setting_would_misread_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be the name of a queue"):
        check_queue_name(name)


@pytest.mark.parametrize("text", ["off", "false", " OFF "])
def test_a_switch_is_off_by_two_words(text: str) -> None:
    config = queue_config({"fair_delivery": text}, is_fifo=False)

    assert not config.fair_delivery
