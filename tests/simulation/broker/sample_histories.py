"""Sample run histories: events of clients and brokers, for tests of checkers."""

from collections.abc import Callable
from itertools import pairwise

from tests.simulation.broker.keys import Superseded, key_of
from tests.simulation.checkers.admin_checkers import PartitionsStay
from tests.simulation.checkers.log_checkers import (
    TRESPASS,
)
from tests.simulation.checkers.run_history import (
    Acknowledged,
    Consumed,
    DamageReported,
    Fetched,
    FinalLog,
    LookedUp,
    OutOfRange,
    ProducerRules,
    RunHistory,
    SentRecord,
    TopicChange,
)
from tidelog.wire.errors import (
    BrokerError,
    LogTruncatedError,
)
from tidelog.wire.messages.produce import AckLevel

RULES = {"p": ProducerRules(2, is_idempotent=True), "q": ProducerRules(1, is_idempotent=False)}
DIRECTORY = f"topics/flights.{bytes(16).hex()}/0"

Story = Callable[[RunHistory], None]


def record(number: int, producer: str = "p") -> SentRecord:
    return SentRecord(producer, 0, number, f"{producer}/0/{number}/".encode())


def acked(number: int, offset: int, producer: str = "p", *, asked_at: float = 1.0) -> Acknowledged:
    return Acknowledged(record(number, producer), offset, AckLevel.REPLICATED, asked_at)


def fetched(
    *entries: tuple[int, int],
    high_watermark: int = 9,
    log_start_offset: int = 0,
    asked_at: float = 1.0,
    fetch_offset: int | None = None,
    producer: str = "p",
) -> Fetched:
    records = [(offset, record(number, producer).value) for offset, number in entries]
    first = entries[0][0] if entries else 0
    return Fetched(
        "r",
        0,
        first if fetch_offset is None else fetch_offset,
        first + len(records),
        records,
        high_watermark,
        log_start_offset,
        asked_at,
    )


def told(*entries: Acknowledged | Fetched) -> Story:
    def tell(run_history: RunHistory) -> None:
        for entry in entries:
            if isinstance(entry, Acknowledged):
                run_history.acknowledged(entry)
            else:
                run_history.fetched(entry)

    return tell


def told_with_loss(before: Acknowledged | Fetched, *behind: Acknowledged | Fetched) -> Story:
    def tell(run_history: RunHistory) -> None:
        told(before)(run_history)
        run_history.forgotten({0: 0})
        told(*behind)(run_history)

    return tell


def ended(*entries: tuple[int, int], start: int = 0, acks: tuple[Acknowledged, ...] = ()) -> Story:
    def tell(run_history: RunHistory) -> None:
        told(*acks)(run_history)
        values = {offset: record(number).value for offset, number in entries}
        run_history.ended({0: FinalLog(start, 9, values)})

    return tell


def repeated_behind(*, start: int) -> Story:
    """Find record 1 of a non-idempotent producer behind record 2, in the rest of a log."""

    def tell(run_history: RunHistory) -> None:
        told(acked(1, 3, "q"), acked(2, 2, "q"))(run_history)
        values = {2: record(2, "q").value, 3: record(1, "q").value}
        run_history.ended({0: FinalLog(start, 9, values)})

    return tell


def compacted(superseded: Superseded, *, has_key: bool, left: int) -> Story:
    """Keep two records, with one key or without keys; at the end only `left` is in the log."""
    alike = [
        number for number in range(60) if (key_of(record(number).value) is not None) is has_key
    ]
    first, last = next(
        pair for pair in pairwise(sorted(alike, key=_key)) if _key(pair[0]) == _key(pair[1])
    )

    def tell(run_history: RunHistory) -> None:
        told(acked(first, 0), acked(last, 1))(run_history)
        logs = {0: FinalLog(0, 2, {left: record((first, last)[left]).value})}
        superseded.learn(logs)
        run_history.ended(logs)

    return tell


def _key(number: int) -> bytes:
    return key_of(record(number).value) or b""


def sent_then(story: Story, *numbers: int) -> Story:
    def tell(run_history: RunHistory) -> None:
        for number in numbers:
            run_history.sent(record(number))
        story(run_history)

    return tell


def refused_and_read(run_history: RunHistory) -> None:
    run_history.sent(record(1))
    run_history.refused(record(1))
    run_history.fetched(fetched((0, 1)))


def trespassed(*, is_read: bool = True, has_rot: bool = False, start: int = 0) -> Story:
    """Keep a valid record at offset 3; reopen the log at `start`; then keep an invalid record."""
    good = SentRecord("t0", 0, 0, b"t0/0/0/as it should be")
    bad = SentRecord("t0", 0, 1, b"t0/0/1" + TRESPASS)

    def tell(run_history: RunHistory) -> None:
        run_history.acknowledged(Acknowledged(good, 3, AckLevel.DURABLE, 1.0))
        if has_rot:
            run_history.checkpoint_corrupted(0, 0)
        probed(("log_opened", {"log_start_offset": start}))(run_history)
        if is_read:
            run_history.fetched(Fetched("r", 0, 5, 6, [(5, bad.value)], 9, 0, 1.0))
        else:
            run_history.acknowledged(Acknowledged(bad, 5, AckLevel.DURABLE, 1.0))

    return tell


def sought(timestamp_ms: int, offset: int) -> Story:
    return lambda run_history: run_history.looked_up(
        LookedUp(0, timestamp_ms, offset, [(5, 20), (6, 10)], 7)
    )


def probed(*events: tuple[str, dict[str, object]]) -> Story:
    def tell(run_history: RunHistory) -> None:
        for event, fields in events:
            run_history.probed(event, {"directory": DIRECTORY, **fields})

    return tell


def stopped_cleanly_at(durable_end: int) -> Story:
    def tell(run_history: RunHistory) -> None:
        told(acked(1, 5))(run_history)
        probed(
            ("log_flushed", {"durable_end_offset": durable_end}),
            ("broker_stopped", {"is_clean": True}),
        )(run_history)

    return tell


def opened_after_a_clean_stop_at(end: int) -> Story:
    def tell(run_history: RunHistory) -> None:
        stopped_cleanly_at(6)(run_history)
        probed(("log_opened", {"log_end_offset": end}), ("broker_started", {}))(run_history)

    return tell


def refused(*offsets: int, has_loss: bool = False, read_at: float | None = 1.0) -> Story:
    """Lose all records at second 2, if `has_loss`; then refuse offsets to a reader."""

    def tell(run_history: RunHistory) -> None:
        if read_at == 1.0:
            run_history.fetched(fetched((0, 1), (1, 2)))
        if has_loss:
            run_history.forgotten({0: 0})
        if read_at == 3.0:
            run_history.fetched(fetched((0, 1), (1, 2), asked_at=3.0))
        for offset in offsets:
            run_history.out_of_range(OutOfRange("r", 0, offset, 3, 9, 3.0))

    return tell


def high_watermark_after_a_loss(high_watermark: int, *, acknowledged: bool) -> Story:
    """See a high watermark of 6; lose the records above 4; then see `high_watermark`."""

    def tell(run_history: RunHistory) -> None:
        told(acked(1, 5) if acknowledged else fetched(high_watermark=6))(run_history)
        run_history.forgotten({0: 4})
        told(fetched(high_watermark=high_watermark, asked_at=3.0))(run_history)

    return tell


def deleted_then_start_at(start: int, *, asked: int | None = 5, is_told: bool = True) -> Story:
    def tell(run_history: RunHistory) -> None:
        run_history.deleting(0, asked)
        if is_told:
            run_history.deleted(0, 5, 1.0)
        run_history.fetched(fetched(log_start_offset=start, asked_at=3.0))

    return tell


def corrupted_while_deleted(run_history: RunHistory) -> None:
    """Corrupt the checkpoint after a deletion is done, and before its reply arrives."""
    run_history.deleting(0, 5)
    run_history.checkpoint_corrupted(0, 3)
    run_history.deleted(0, 5, 1.0)
    run_history.fetched(fetched(log_start_offset=3, asked_at=3.0))


def repeated_after_deletion(*, has_rot: bool, start: int) -> Story:
    """Delete the segments below `start` by retention; then repeat a record of offset 0."""

    def tell(run_history: RunHistory) -> None:
        told(acked(1, 0))(run_history)
        if has_rot:
            run_history.checkpoint_corrupted(0, 0)
        probed(("log_opened", {"log_start_offset": start}))(run_history)
        told(acked(1, 7))(run_history)

    return tell


def deleted_and_corrupted(start: int) -> Story:
    """Delete up to 5, in a log whose first segment begins at 3; corrupt its checkpoint; reopen."""

    def tell(run_history: RunHistory) -> None:
        deleted_then_start_at(5)(run_history)
        run_history.checkpoint_corrupted(0, 3)
        run_history.fetched(fetched(log_start_offset=start, asked_at=3.0))

    return tell


def altered(*seen: str, is_told: bool, has_restart: bool = False) -> Story:
    """Alter a setting from `1` to `2`, and then see the values `seen`."""

    def tell(run_history: RunHistory) -> None:
        run_history.settings_seen({"s": "1"}, 0.5)
        run_history.altering({"s": "2"}, 1.0)
        if is_told:
            run_history.altered({"s": "2"}, 1.0)
        if has_restart:
            run_history.probed("broker_started", {})
        for value in seen:
            run_history.settings_seen({"s": value}, 3.0)

    return tell


def topics(*steps: str) -> Story:
    """Replay steps of topic `n`: `create`, `created A`, `delete`, `deleted`, `start`, `sees A`."""

    def tell(run_history: RunHistory) -> None:
        for step in steps:
            verb, _, topic_id = step.partition(" ")
            change = TopicChange("n", verb.startswith("create"), 1.0)
            match verb:
                case "create" | "delete":
                    run_history.topic_changing(change)
                case "created" | "deleted":
                    run_history.topic_changed(change, topic_id.encode() or None)
                case "start":
                    run_history.probed("broker_started", {})
                case _:
                    run_history.topics_seen({"n": topic_id.encode()} if topic_id else {}, 3.0)

    return tell


def grown(*steps: tuple[str, int], asked_at: float = 3.0) -> Story:
    """Replay partition counts: `growing` or `seen`, and the count."""

    def tell(run_history: RunHistory) -> None:
        promise = run_history.checker(PartitionsStay)
        for verb, count in steps:
            if verb == "growing":
                promise.growing(count)
            else:
                promise.seen(count, asked_at)

    return tell


def complained(
    status: str, *, fault: str | None = None, is_over: bool = False, path: str = DIRECTORY
) -> Story:
    """Begin or end a disk fault; then a log reports its status."""

    def tell(run_history: RunHistory) -> None:
        if fault == "full":
            run_history.disk_filled()
        elif fault == "failed":
            run_history.disk_failed(f"{path}/{0:020}.log")
        if is_over:
            run_history.disk_freed()
            run_history.process_began()
            run_history.now = run_history.checkers[0].now = lambda: 60.0
        probed(("log_status_changed", {"status": status}))(run_history)

    return tell


def told_of_a_truncation(lossless_end: int | None, *, fetch_offset: int) -> Story:
    """Return a story of a consumer that is told of lost records below an offset."""

    def story(run_history: RunHistory) -> None:
        if lossless_end is not None:
            run_history.forgotten({0: lossless_end})
        run_history.truncated(0, LogTruncatedError("lost", fetch_offset=fetch_offset))

    return story


def told_of(error: BrokerError, *faults: str) -> Story:
    """Have these faults at second 2, and an error for a client that asked at second 1."""

    def tell(run_history: RunHistory) -> None:
        for fault in faults:
            match fault:
                case "full":
                    run_history.disk_filled()
                case "freed":
                    run_history.disk_freed()
                case "failed":
                    run_history.disk_failed(DIRECTORY)
                case "other failed":
                    run_history.disk_failed(f"{DIRECTORY}1")
                case "stopping":
                    run_history.probed("broker_stopping", {})
                case "start":
                    run_history.process_began()
                case _:  # the client asks much later
                    run_history.told(0, error, 3.0)
                    return
        run_history.told(0, error, 1.0)

    return tell


def stopped_then_start_falls(*, is_clean: bool, has_rot: bool = False) -> Story:
    """See log start 3; stop; reopen the log; then see log start 2."""

    def tell(run_history: RunHistory) -> None:
        run_history.fetched(fetched(log_start_offset=3))
        probed(("broker_stopped", {"is_clean": is_clean}))(run_history)
        if has_rot:
            run_history.checkpoint_corrupted(0, 0)
        probed(("log_opened", {"log_start_offset": 2}), ("broker_started", {}))(run_history)
        run_history.fetched(fetched(log_start_offset=2, asked_at=3.0))

    return tell


def corrupted(run_history: RunHistory) -> None:
    run_history.corrupted(DamageReported(0, 3, 5))


def repeated_after_rot(offset: int) -> Story:
    """Corrupt offsets 3 and 4; then find the record of `offset` again behind them."""

    def tell(run_history: RunHistory) -> None:
        told(acked(1, offset))(run_history)
        corrupted(run_history)
        told(fetched((offset, 1)), acked(1, 7))(run_history)

    return tell


def corrupted_and_reported(run_history: RunHistory) -> None:
    corrupted(run_history)
    run_history.damage_reported(DamageReported(0, 4, 5))


def reported(run_history: RunHistory) -> None:
    corrupted(run_history)
    run_history.damage_reported(DamageReported(0, 4, 6))


def corrupted_and_found(run_history: RunHistory) -> None:
    corrupted(run_history)
    run_history.ended({0: FinalLog(0, 9, {}, [DamageReported(0, 3, 5)])})


def corrupted_and_served(run_history: RunHistory) -> None:
    corrupted(run_history)
    run_history.ended({0: FinalLog(0, 9, {3: b"x"}, [DamageReported(0, 4, 5)])})


def consumed(
    *entries: tuple[int, int],
    next_offset: int,
    left_out: tuple[DamageReported, ...] = (),
    has_loss: bool = False,
) -> Story:
    """Have a consumer read this; records 1 and 2 are at 0 and 1, and 2 was acknowledged."""
    values = {(0, offset): record(number).value for offset, number in entries}

    def tell(run_history: RunHistory) -> None:
        if has_loss:
            run_history.forgotten({0: 1})
        run_history.consumed(Consumed("c", {0: next_offset}, values, left_out))
        ended((0, 1), (1, 2), acks=(acked(2, 1),))(run_history)

    return tell


def consumed_and_corrupted(run_history: RunHistory) -> None:
    corrupted(run_history)
    values = {(0, offset): b"x" for offset in range(3, 5)}
    run_history.consumed(Consumed("c", {0: 5}, values, [DamageReported(0, 0, 3)]))
    run_history.ended({0: FinalLog(0, 9, {})})


def lost(
    offset: int, *, level: AckLevel = AckLevel.REPLICATED, hold: float = 0.0, after: float = 9.0
) -> Story:
    """Lose the records at 5 and above, so long after this record was acknowledged."""

    def tell(run_history: RunHistory) -> None:
        clock = [1.0]
        for checker in run_history.checkers:
            checker.now = lambda: clock[0]
        run_history.probed("broker_started", {})
        run_history.acknowledged(Acknowledged(record(1), offset, level, 1.0))
        if hold:
            run_history.held_up(clock[0] + hold)
        clock[0] += after
        run_history.forgotten({0: 5})
        run_history.ended({0: FinalLog(0, 5, {} if offset >= 5 else {offset: record(1).value})})

    return tell
