"""Stories to tell a book: what clients and brokers do and say, for tests of checkers."""

from collections.abc import Callable
from itertools import pairwise

from tests.simulation.broker.keys import Superseded, key_of
from tests.simulation.checkers.admin_promises import PartitionsStay
from tests.simulation.checkers.book import (
    Acknowledged,
    Book,
    Consumed,
    DamageReported,
    Fetched,
    FinalLog,
    LookedUp,
    OutOfRange,
    ProducerRules,
    SentRecord,
    TopicChange,
)
from tests.simulation.checkers.log_promises import (
    TRESPASS,
)
from tidelog.wire.errors import (
    BrokerError,
)
from tidelog.wire.messages.produce import AckLevel

RULES = {"p": ProducerRules(2, is_idempotent=True), "q": ProducerRules(1, is_idempotent=False)}
DIRECTORY = f"topics/flights.{bytes(16).hex()}/0"

Story = Callable[[Book], None]


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
    def tell(book: Book) -> None:
        for entry in entries:
            if isinstance(entry, Acknowledged):
                book.acknowledged(entry)
            else:
                book.fetched(entry)

    return tell


def told_with_loss(before: Acknowledged | Fetched, *behind: Acknowledged | Fetched) -> Story:
    def tell(book: Book) -> None:
        told(before)(book)
        book.forgotten({0: 0})
        told(*behind)(book)

    return tell


def ended(*entries: tuple[int, int], start: int = 0, acks: tuple[Acknowledged, ...] = ()) -> Story:
    def tell(book: Book) -> None:
        told(*acks)(book)
        values = {offset: record(number).value for offset, number in entries}
        book.ended({0: FinalLog(start, 9, values)})

    return tell


def repeated_behind(*, start: int) -> Story:
    """Find record 1 of a producer without idempotence behind record 2, in what is left of a log."""

    def tell(book: Book) -> None:
        told(acked(1, 3, "q"), acked(2, 2, "q"))(book)
        values = {2: record(2, "q").value, 3: record(1, "q").value}
        book.ended({0: FinalLog(start, 9, values)})

    return tell


def compacted(superseded: Superseded, *, has_key: bool, left: int) -> Story:
    """Keep two records, of one key or both of none; in the end only the one at `left` is there."""
    alike = [
        number for number in range(60) if (key_of(record(number).value) is not None) is has_key
    ]
    first, last = next(
        pair for pair in pairwise(sorted(alike, key=_key)) if _key(pair[0]) == _key(pair[1])
    )

    def tell(book: Book) -> None:
        told(acked(first, 0), acked(last, 1))(book)
        logs = {0: FinalLog(0, 2, {left: record((first, last)[left]).value})}
        superseded.learn(logs)
        book.ended(logs)

    return tell


def _key(number: int) -> bytes:
    return key_of(record(number).value) or b""


def sent_then(story: Story, *numbers: int) -> Story:
    def tell(book: Book) -> None:
        for number in numbers:
            book.sent(record(number))
        story(book)

    return tell


def refused_and_read(book: Book) -> None:
    book.sent(record(1))
    book.refused(record(1))
    book.fetched(fetched((0, 1)))


def trespassed(*, is_read: bool = True, has_rot: bool = False, start: int = 0) -> Story:
    """Keep a good record at offset 3; open the log anew at `start`; then keep a bad one."""
    good = SentRecord("t0", 0, 0, b"t0/0/0/as it should be")
    bad = SentRecord("t0", 0, 1, b"t0/0/1" + TRESPASS)

    def tell(book: Book) -> None:
        book.acknowledged(Acknowledged(good, 3, AckLevel.DURABLE, 1.0))
        if has_rot:
            book.checkpoint_rotted(0, 0)
        probed(("log_opened", {"log_start_offset": start}))(book)
        if is_read:
            book.fetched(Fetched("r", 0, 5, 6, [(5, bad.value)], 9, 0, 1.0))
        else:
            book.acknowledged(Acknowledged(bad, 5, AckLevel.DURABLE, 1.0))

    return tell


def sought(timestamp_ms: int, offset: int) -> Story:
    return lambda book: book.looked_up(LookedUp(0, timestamp_ms, offset, [(5, 20), (6, 10)], 7))


def probed(*events: tuple[str, dict[str, object]]) -> Story:
    def tell(book: Book) -> None:
        for event, fields in events:
            book.probed(event, {"directory": DIRECTORY, **fields})

    return tell


def stopped_cleanly_at(durable_end: int) -> Story:
    def tell(book: Book) -> None:
        told(acked(1, 5))(book)
        probed(
            ("log_flushed", {"durable_end_offset": durable_end}),
            ("broker_stopped", {"is_clean": True}),
        )(book)

    return tell


def opened_after_a_clean_stop_at(end: int) -> Story:
    def tell(book: Book) -> None:
        stopped_cleanly_at(6)(book)
        probed(("log_opened", {"log_end_offset": end}), ("broker_started", {}))(book)

    return tell


def refused(*offsets: int, has_loss: bool = False, read_at: float | None = 1.0) -> Story:
    """Lose all at second 2, if anything, and be refused; having read before or behind that."""

    def tell(book: Book) -> None:
        if read_at == 1.0:
            book.fetched(fetched((0, 1), (1, 2)))
        if has_loss:
            book.forgotten({0: 0})
        if read_at == 3.0:
            book.fetched(fetched((0, 1), (1, 2), asked_at=3.0))
        for offset in offsets:
            book.out_of_range(OutOfRange("r", 0, offset, 3, 9, 3.0))

    return tell


def high_watermark_after_a_loss(high_watermark: int, *, acknowledged: bool) -> Story:
    """Have it known to be 6; lose what is above 4; then see it."""

    def tell(book: Book) -> None:
        told(acked(1, 5) if acknowledged else fetched(high_watermark=6))(book)
        book.forgotten({0: 4})
        told(fetched(high_watermark=high_watermark, asked_at=3.0))(book)

    return tell


def deleted_then_start_at(start: int, *, asked: int | None = 5, is_told: bool = True) -> Story:
    def tell(book: Book) -> None:
        book.deleting(0, asked)
        if is_told:
            book.deleted(0, 5, 1.0)
        book.fetched(fetched(log_start_offset=start, asked_at=3.0))

    return tell


def rotted_while_deleted(book: Book) -> None:
    """The checkpoint rots when the deletion is done, and before its reply arrives."""
    book.deleting(0, 5)
    book.checkpoint_rotted(0, 3)
    book.deleted(0, 5, 1.0)
    book.fetched(fetched(log_start_offset=3, asked_at=3.0))


def repeated_after_deletion(*, has_rot: bool, start: int) -> Story:
    """Retention takes the segments below `start`; then a record of offset 0 comes again."""

    def tell(book: Book) -> None:
        told(acked(1, 0))(book)
        if has_rot:
            book.checkpoint_rotted(0, 0)
        probed(("log_opened", {"log_start_offset": start}))(book)
        told(acked(1, 7))(book)

    return tell


def deleted_and_rotted(start: int) -> Story:
    """Delete up to 5, from a log whose first segment begins at 3; rot its checkpoint; open it."""

    def tell(book: Book) -> None:
        deleted_then_start_at(5)(book)
        book.checkpoint_rotted(0, 3)
        book.fetched(fetched(log_start_offset=start, asked_at=3.0))

    return tell


def altered(*seen: str, is_told: bool, has_restart: bool = False) -> Story:
    """Alter a setting from `1` to `2`, and then see it to be as it is said."""

    def tell(book: Book) -> None:
        book.settings_seen({"s": "1"}, 0.5)
        book.altering({"s": "2"}, 1.0)
        if is_told:
            book.altered({"s": "2"}, 1.0)
        if has_restart:
            book.probed("broker_started", {})
        for value in seen:
            book.settings_seen({"s": value}, 3.0)

    return tell


def topics(*steps: str) -> Story:
    """Tell of the topic `n`: `create`, `created A`, `delete`, `deleted`, `start`, `sees A`."""

    def tell(book: Book) -> None:
        for step in steps:
            verb, _, topic_id = step.partition(" ")
            change = TopicChange("n", verb.startswith("create"), 1.0)
            match verb:
                case "create" | "delete":
                    book.topic_changing(change)
                case "created" | "deleted":
                    book.topic_changed(change, topic_id.encode() or None)
                case "start":
                    book.probed("broker_started", {})
                case _:
                    book.topics_seen({"n": topic_id.encode()} if topic_id else {}, 3.0)

    return tell


def grown(*steps: tuple[str, int], asked_at: float = 3.0) -> Story:
    """Tell of the number of partitions: `growing` or `seen`, and how many."""

    def tell(book: Book) -> None:
        promise = book.checker(PartitionsStay)
        for verb, count in steps:
            if verb == "growing":
                promise.growing(count)
            else:
                promise.seen(count, asked_at)

    return tell


def complained(
    status: str, *, fault: str | None = None, is_over: bool = False, path: str = DIRECTORY
) -> Story:
    """Let the disk have a fault, or let it be over; then a log says what it is."""

    def tell(book: Book) -> None:
        if fault == "full":
            book.disk_filled()
        elif fault == "failed":
            book.disk_failed(f"{path}/{0:020}.log")
        if is_over:
            book.disk_freed()
            book.process_began()
            book.now = book.checkers[0].now = lambda: 60.0
        probed(("log_status_changed", {"status": status}))(book)

    return tell


def told_of(error: BrokerError, *faults: str) -> Story:
    """Let these things happen at second 2, and a client that asked at second 1 be told."""

    def tell(book: Book) -> None:
        for fault in faults:
            match fault:
                case "full":
                    book.disk_filled()
                case "freed":
                    book.disk_freed()
                case "failed":
                    book.disk_failed(DIRECTORY)
                case "other failed":
                    book.disk_failed(f"{DIRECTORY}1")
                case "stopping":
                    book.probed("broker_stopping", {})
                case "start":
                    book.process_began()
                case _:  # a client asks only much later
                    book.told(0, error, 3.0)
                    return
        book.told(0, error, 1.0)

    return tell


def stopped_then_start_falls(*, is_clean: bool, has_rot: bool = False) -> Story:
    """Have the log start seen at 3; stop; open the log; then have it seen at 2."""

    def tell(book: Book) -> None:
        book.fetched(fetched(log_start_offset=3))
        probed(("broker_stopped", {"is_clean": is_clean}))(book)
        if has_rot:
            book.checkpoint_rotted(0, 0)
        probed(("log_opened", {"log_start_offset": 2}), ("broker_started", {}))(book)
        book.fetched(fetched(log_start_offset=2, asked_at=3.0))

    return tell


def rotted(book: Book) -> None:
    book.rotted(DamageReported(0, 3, 5))


def repeated_after_rot(offset: int) -> Story:
    """What lies from offset 3 to 4 rots; then the record of that offset comes again, behind it."""

    def tell(book: Book) -> None:
        told(acked(1, offset))(book)
        rotted(book)
        told(fetched((offset, 1)), acked(1, 7))(book)

    return tell


def rotted_and_reported(book: Book) -> None:
    rotted(book)
    book.damage_reported(DamageReported(0, 4, 5))


def reported(book: Book) -> None:
    rotted(book)
    book.damage_reported(DamageReported(0, 4, 6))


def rotted_and_found(book: Book) -> None:
    rotted(book)
    book.ended({0: FinalLog(0, 9, {}, [DamageReported(0, 3, 5)])})


def rotted_and_served(book: Book) -> None:
    rotted(book)
    book.ended({0: FinalLog(0, 9, {3: b"x"}, [DamageReported(0, 4, 5)])})


def consumed(
    *entries: tuple[int, int],
    next_offset: int,
    left_out: tuple[DamageReported, ...] = (),
    has_loss: bool = False,
) -> Story:
    """Let a consumer read this, where records 1 and 2 are at 0 and 1, and 2 was acknowledged."""
    values = {(0, offset): record(number).value for offset, number in entries}

    def tell(book: Book) -> None:
        if has_loss:
            book.forgotten({0: 1})
        book.consumed(Consumed("c", {0: next_offset}, values, left_out))
        ended((0, 1), (1, 2), acks=(acked(2, 1),))(book)

    return tell


def consumed_and_rotted(book: Book) -> None:
    rotted(book)
    values = {(0, offset): b"x" for offset in range(3, 5)}
    book.consumed(Consumed("c", {0: 5}, values, [DamageReported(0, 0, 3)]))
    book.ended({0: FinalLog(0, 9, {})})


def lost(
    offset: int, *, level: AckLevel = AckLevel.REPLICATED, hold: float = 0.0, after: float = 9.0
) -> Story:
    """Lose what is at 5 and above, so long after this record was acknowledged."""

    def tell(book: Book) -> None:
        clock = [1.0]
        for checker in book.checkers:
            checker.now = lambda: clock[0]
        book.probed("broker_started", {})
        book.acknowledged(Acknowledged(record(1), offset, level, 1.0))
        if hold:
            book.held_up(clock[0] + hold)
        clock[0] += after
        book.forgotten({0: 5})
        book.ended({0: FinalLog(0, 5, {} if offset >= 5 else {offset: record(1).value})})

    return tell
