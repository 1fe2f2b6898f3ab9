"""Tests of each checker: histories that keep and that break its promise."""

from math import inf

import pytest

from tests.simulation.broker.keys import Superseded
from tests.simulation.broker.sample_histories import (
    DIRECTORY,
    RULES,
    Story,
    acked,
    altered,
    compacted,
    complained,
    consumed,
    consumed_and_corrupted,
    corrupted_and_found,
    corrupted_and_reported,
    corrupted_and_served,
    corrupted_while_deleted,
    deleted_and_corrupted,
    deleted_then_start_at,
    ended,
    fetched,
    grown,
    high_watermark_after_a_loss,
    lost,
    opened_after_a_clean_stop_at,
    probed,
    record,
    refused,
    refused_and_read,
    repeated_after_deletion,
    repeated_after_rot,
    repeated_behind,
    reported,
    sent_then,
    sought,
    stopped_cleanly_at,
    stopped_then_start_falls,
    told,
    told_of,
    told_of_a_truncation,
    told_with_loss,
    topics,
    trespassed,
)
from tests.simulation.checkers.admin_checkers import (
    DeletedStays,
    PartitionsStay,
    SettingsStay,
    TopicsStay,
)
from tests.simulation.checkers.broker_checkers import (
    CleanStopKeeps,
    CorruptionIsFound,
    DamageIsReal,
    DurableStays,
    HonestStatus,
    LogStartRises,
)
from tests.simulation.checkers.compaction_checkers import OnlySupersededGoes
from tests.simulation.checkers.consumer_checkers import ConsumersReadAll
from tests.simulation.checkers.log_checkers import (
    AcknowledgedStays,
    BelowHighWatermark,
    Contiguous,
    HighWatermarkRises,
    NoDuplicates,
    NothingPhantom,
    NoTrespass,
    ProducerOrder,
    StableOffsets,
    TimeIsFound,
)
from tests.simulation.checkers.loss_checkers import LossIsBounded
from tests.simulation.checkers.run_history import (
    Acknowledged,
    Checker,
    DamageReported,
    RunHistory,
    ViolationError,
)
from tidelog.wire.errors import (
    DiskFullError,
    LogOfflineError,
    NotLeaderError,
    RequestTimedOutError,
    ShuttingDownError,
    UnexpectedServerError,
)
from tidelog.wire.messages.produce import AckLevel

COMPACTED = Superseded([0])

KEPT: list[tuple[Checker, Story]] = [
    (OnlySupersededGoes(COMPACTED), compacted(COMPACTED, has_key=True, left=1)),
    (AcknowledgedStays(COMPACTED), compacted(COMPACTED, has_key=True, left=1)),
    (Contiguous(COMPACTED), told(fetched((1, 1), fetch_offset=0))),
    (TimeIsFound(), sought(10, 5)),
    (TimeIsFound(), sought(21, 7)),
    (NoTrespass(), told(acked(1, 5), fetched((5, 1)))),
    (NoTrespass(), trespassed(has_rot=True, start=4)),
    (StableOffsets(), told(acked(1, 0), fetched((0, 1)), fetched((0, 1)))),
    (StableOffsets(), told_with_loss(acked(1, 0), fetched((0, 2), asked_at=3.0))),
    (NoDuplicates(RULES), told(acked(1, 0), acked(1, 0), fetched((0, 1)))),
    (NoDuplicates(RULES), told(acked(1, 0, "q"), fetched((1, 1), producer="q"))),
    (NoDuplicates(RULES), repeated_after_deletion(has_rot=True, start=5)),
    (NoDuplicates(RULES), repeated_after_rot(4)),
    (NothingPhantom(), sent_then(told(fetched((0, 1))), 1)),
    (AcknowledgedStays(), ended((0, 1), acks=(acked(1, 0),))),
    (AcknowledgedStays(), ended(start=1, acks=(acked(1, 0),))),
    (AcknowledgedStays(), lost(5)),
    (LossIsBounded(2.0), lost(4)),
    (LossIsBounded(2.0), lost(5, after=2.9)),
    (LossIsBounded(2.0), lost(5, hold=6.1)),
    (LossIsBounded(2.0), lost(5, hold=inf)),
    (ProducerOrder(RULES), ended((0, 1), (4, 2))),
    (ProducerOrder(RULES), repeated_behind(start=2)),
    (ConsumersReadAll(), consumed((0, 1), (1, 2), next_offset=2)),
    (ConsumersReadAll(), consumed((1, 2), next_offset=2, left_out=(DamageReported(0, 0, 1),))),
    (ConsumersReadAll(), consumed((0, 1), (1, 3), next_offset=2, has_loss=True)),
    (ConsumersReadAll(), consumed_and_corrupted),
    (ConsumersReadAll(), told_of_a_truncation(4, fetch_offset=5)),
    (Contiguous(), told(fetched((0, 1), (1, 2)))),
    (BelowHighWatermark(), told(fetched((0, 1), high_watermark=1))),
    (HighWatermarkRises(), told(fetched(high_watermark=3), fetched(high_watermark=3))),
    (HighWatermarkRises(), told(acked(1, 5), fetched(high_watermark=6, asked_at=3.0))),
    (HighWatermarkRises(), told(acked(1, 5), fetched(high_watermark=0, asked_at=1.0))),
    (HighWatermarkRises(), high_watermark_after_a_loss(4, acknowledged=True)),
    (HighWatermarkRises(), high_watermark_after_a_loss(4, acknowledged=False)),
    (
        DurableStays(),
        probed(("log_flushed", {"durable_end_offset": 3}), ("log_opened", {"log_end_offset": 3})),
    ),
    (CleanStopKeeps(), opened_after_a_clean_stop_at(6)),
    (LogStartRises(), told(fetched(log_start_offset=3), fetched(log_start_offset=3))),
    (Contiguous(), refused(2)),
    (Contiguous(), refused(10, has_loss=True)),
    (Contiguous(), refused(10, has_loss=True, read_at=None)),
    (DeletedStays(has_retention=False), deleted_then_start_at(5)),
    (DeletedStays(has_retention=False), deleted_then_start_at(0, is_told=False)),
    (DeletedStays(has_retention=False), deleted_then_start_at(7, asked=None)),
    (DeletedStays(has_retention=True), deleted_then_start_at(7)),
    (DeletedStays(has_retention=False), deleted_and_corrupted(3)),
    (DeletedStays(has_retention=False), corrupted_while_deleted),
    (SettingsStay(), altered("2", "2", is_told=True, has_restart=True)),
    (SettingsStay(), altered("1", "1", is_told=False, has_restart=True)),
    (SettingsStay(), altered("1", "2", is_told=False)),
    (TopicsStay(), topics("create", "created A", "start", "sees A", "delete", "deleted", "sees")),
    (TopicsStay(), topics("create", "created A", "delete", "deleted", "create", "created B")),
    (TopicsStay(), topics("create", "start", "sees A", "delete", "start", "sees A", "sees A")),
    (TopicsStay(), topics("create", "sees", "sees A", "delete", "sees A", "sees")),
    (
        PartitionsStay(),
        grown(("growing", 2), ("seen", 2), ("growing", 4), ("seen", 2), ("seen", 4)),
    ),
    (PartitionsStay(), grown(("growing", 2), ("seen", 2), ("seen", 1), asked_at=1.0)),
    (DamageIsReal(), corrupted_and_reported),
    (CorruptionIsFound(), corrupted_and_found),
    (LogStartRises(), stopped_then_start_falls(is_clean=False)),
    (LogStartRises(), stopped_then_start_falls(is_clean=True, has_rot=True)),
    (HonestStatus(), complained("offline", fault="failed")),
    (HonestStatus(), complained("read-only", fault="full")),
    (HonestStatus(), told_of(LogOfflineError("bad"), "failed")),
    (HonestStatus(), told_of(LogOfflineError("bad"), "failed", "start")),
    (HonestStatus(), told_of(LogOfflineError("closed"), "stopping")),
    (HonestStatus(), told_of(DiskFullError("full"), "full", "freed")),
    (HonestStatus(), told_of(ShuttingDownError("bye"), "stopping", "start")),
    (HonestStatus(), told_of(RequestTimedOutError("late"))),
]

BROKEN: list[tuple[Checker, Story]] = [
    (OnlySupersededGoes(Superseded([0])), compacted(Superseded([0]), has_key=True, left=0)),
    (OnlySupersededGoes(Superseded([0])), compacted(Superseded([0]), has_key=False, left=1)),
    (AcknowledgedStays(Superseded([0])), compacted(Superseded([0]), has_key=True, left=0)),
    (Contiguous(COMPACTED), told(fetched((1, 1), fetch_offset=2))),
    (TimeIsFound(), sought(10, 6)),
    (TimeIsFound(), sought(11, 7)),
    (NoTrespass(), trespassed(is_read=True)),
    (NoTrespass(), trespassed(is_read=False)),
    (NoTrespass(), trespassed(start=4)),
    (NoTrespass(), trespassed(has_rot=True, start=3)),
    (StableOffsets(), told(acked(1, 0), fetched((0, 2)))),
    (StableOffsets(), told(fetched((0, 1)), fetched((0, 2)))),
    (NoDuplicates(RULES), told(fetched((0, 1), (1, 1)))),
    (NoDuplicates(RULES), told(acked(1, 0), acked(1, 1))),
    (NoDuplicates(RULES), repeated_after_deletion(has_rot=True, start=0)),
    (NoDuplicates(RULES), repeated_after_deletion(has_rot=False, start=5)),
    (NoDuplicates(RULES), repeated_after_rot(5)),
    (NothingPhantom(), told(fetched((0, 1)))),
    (NothingPhantom(), refused_and_read),
    (AcknowledgedStays(), ended((1, 2), acks=(acked(1, 0),))),
    (AcknowledgedStays(), ended((0, 2), acks=(acked(1, 0),))),
    (AcknowledgedStays(), lost(5, level=AckLevel.DURABLE)),
    (LossIsBounded(2.0), lost(5, after=3.1)),
    (LossIsBounded(2.0), lost(5, hold=5.9)),
    (ProducerOrder(RULES), ended((0, 2), (1, 1))),
    (ProducerOrder(RULES), repeated_behind(start=0)),
    (ConsumersReadAll(), consumed((0, 1), next_offset=1)),
    (ConsumersReadAll(), consumed((1, 2), next_offset=2)),
    (ConsumersReadAll(), consumed((0, 1), (1, 3), next_offset=2)),
    (ConsumersReadAll(), consumed((0, 1), (1, 2), (2, 3), next_offset=3)),
    (ConsumersReadAll(), consumed((0, 3), (1, 2), next_offset=2, has_loss=True)),
    (ConsumersReadAll(), told_of_a_truncation(5, fetch_offset=5)),
    (ConsumersReadAll(), told_of_a_truncation(None, fetch_offset=5)),
    (Contiguous(), told(fetched((0, 1), (2, 3)))),
    (Contiguous(), told(fetched((1, 1), fetch_offset=0))),
    (BelowHighWatermark(), told(fetched((0, 1), (1, 2), high_watermark=1))),
    (HighWatermarkRises(), told(fetched(high_watermark=3), fetched(high_watermark=2))),
    (HighWatermarkRises(), told(acked(1, 5), fetched(high_watermark=5, asked_at=3.0))),
    (HighWatermarkRises(), high_watermark_after_a_loss(3, acknowledged=True)),
    (HighWatermarkRises(), high_watermark_after_a_loss(3, acknowledged=False)),
    (
        DurableStays(),
        probed(("log_flushed", {"durable_end_offset": 3}), ("log_opened", {"log_end_offset": 2})),
    ),
    (CleanStopKeeps(), stopped_cleanly_at(5)),
    (CleanStopKeeps(), opened_after_a_clean_stop_at(5)),
    (LogStartRises(), told(fetched(log_start_offset=3), fetched(log_start_offset=2))),
    (LogStartRises(), told(fetched(log_start_offset=10, high_watermark=9))),
    (Contiguous(), refused(4)),
    (Contiguous(), refused(10)),
    (Contiguous(), refused(10, 10, has_loss=True)),
    (Contiguous(), refused(10, has_loss=True, read_at=3.0)),
    (DeletedStays(has_retention=False), deleted_then_start_at(4)),
    (DeletedStays(has_retention=False), deleted_then_start_at(6)),
    (DeletedStays(has_retention=False), deleted_and_corrupted(2)),
    (SettingsStay(), altered("1", is_told=True)),
    (SettingsStay(), altered("1", "2", is_told=False, has_restart=True)),
    (TopicsStay(), topics("create", "created A", "start", "sees")),
    (TopicsStay(), topics("create", "created A", "delete", "deleted", "start", "sees A")),
    (TopicsStay(), topics("create", "created A", "delete", "deleted", "create", "created A")),
    (TopicsStay(), topics("create", "start", "sees", "sees A")),
    (TopicsStay(), topics("create", "created A", "delete", "start", "sees A", "sees")),
    (TopicsStay(), topics("sees A")),
    (PartitionsStay(), grown(("growing", 2), ("seen", 2), ("seen", 1))),
    (PartitionsStay(), grown(("growing", 2), ("seen", 3))),
    (TopicsStay(), probed(("topic_without_metadata", {}))),
    (DamageIsReal(), reported),
    (CorruptionIsFound(), corrupted_and_served),
    (LogStartRises(), stopped_then_start_falls(is_clean=True)),
    (HonestStatus(), complained("offline")),
    (HonestStatus(), complained("offline", fault="full")),
    (HonestStatus(), complained("offline", fault="failed", is_over=True)),
    (HonestStatus(), complained("offline", fault="failed", path=f"{DIRECTORY}1")),
    (HonestStatus(), complained("read-only")),
    (HonestStatus(), complained("read-only", fault="failed")),
    (HonestStatus(), complained("read-only", fault="full", is_over=True)),
    (HonestStatus(), told_of(LogOfflineError("bad"))),
    (HonestStatus(), told_of(LogOfflineError("bad"), "other failed")),
    (HonestStatus(), told_of(LogOfflineError("bad"), "failed", "start", "later")),
    (HonestStatus(), told_of(DiskFullError("full"), "full", "freed", "later")),
    (HonestStatus(), told_of(ShuttingDownError("bye"))),
    (HonestStatus(), told_of(NotLeaderError("elsewhere"))),
    (HonestStatus(), told_of(UnexpectedServerError("oops"))),
    (HonestStatus(), probed(("broker_failed", {"reason": "bad mood"}))),
]


def name(value: object) -> str:
    return type(value).__name__ if isinstance(value, Checker) else ""


@pytest.mark.parametrize(("checker", "story"), KEPT, ids=name)
def test_a_checker_accepts_a_valid_history(checker: Checker, story: Story) -> None:
    story(RunHistory([checker], lambda: 2.0))


@pytest.mark.parametrize(("checker", "story"), BROKEN, ids=name)
def test_a_checker_objects_to_a_broken_promise(checker: Checker, story: Story) -> None:
    with pytest.raises(ViolationError, match=f"^{type(checker).__name__}: "):
        story(RunHistory([checker], lambda: 2.0))


def test_every_checker_has_a_valid_and_an_invalid_history() -> None:
    checkers = {cls.__name__ for cls in Checker.__subclasses__()}

    assert {name(checker) for checker, _ in BROKEN} == checkers
    assert {name(checker) for checker, _ in KEPT} == checkers


def test_a_reply_to_a_request_from_before_a_loss_is_void() -> None:
    run_history = RunHistory([StableOffsets()], lambda: 2.0)
    run_history.fetched(fetched((0, 1)))
    run_history.forgotten({0: 0})

    run_history.fetched(fetched((0, 1), asked_at=1.0))

    run_history.fetched(fetched((0, 2), asked_at=3.0))


def test_durable_records_are_not_void_after_a_loss() -> None:
    run_history = RunHistory([StableOffsets()], lambda: 2.0)
    run_history.forgotten({0: 5})
    run_history.acknowledged(Acknowledged(record(1), 0, AckLevel.DURABLE, 1.0))

    with pytest.raises(ViolationError):
        run_history.fetched(fetched((0, 2), asked_at=3.0))


def test_a_run_may_continue_after_an_objection() -> None:
    run_history = RunHistory(
        [BelowHighWatermark(), HighWatermarkRises()], lambda: 2.0, goes_on=True
    )
    run_history.fetched(fetched(high_watermark=3))

    run_history.fetched(fetched((2, 1), high_watermark=2))
    run_history.fetched(fetched((1, 1), high_watermark=1))

    assert list(run_history.objections) == ["BelowHighWatermark", "HighWatermarkRises"]
    assert "(0, 2)" in str(run_history.objections["BelowHighWatermark"])
