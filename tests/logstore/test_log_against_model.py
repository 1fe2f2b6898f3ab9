"""A log equals a naive list of records, under random operations and disk faults."""

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.logstore.crashes import crash
from tests.logstore.log_model import ModelBatch, ModelLog
from tests.logstore.logs import (
    DIRECTORY,
    NOW_MS,
    Producer,
    batch_bounds,
    new_log,
    read_all,
    records_in,
    reopen,
)
from tidelog.logstore.config import LogConfig
from tidelog.logstore.flush import FlushJob
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import CorruptRecordError

SIZES = st.sampled_from([1, 30, 200, 700])
COUNTS = st.integers(1, 3)
SEEDS = st.integers(0, 1 << 16)
PLACES = st.floats(0, 1)
"""Position of an event, as a fraction of its range."""
CRASH_CALLS = st.none() | st.integers(0, 12)
"""Disk calls before the end of the process, `None` without an end."""


class LogMachine(RuleBasedStateMachine):
    """State machine that applies the same operations to a log and to the model, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = new_log()
        self.model = ModelLog()
        self.durable_end = 0
        self.durable_start = 0
        self.damaged: list[ModelBatch] = []
        self.count = 0

    @initialize(segment_bytes=st.sampled_from([512, 1500, 4096]))
    def open(self, segment_bytes: int) -> None:
        config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=128,
            max_message_bytes=4096,
            checkpoint_bytes=2000,
            retention_bytes=4000,
        )
        self.opened = new_log(config)

    @property
    def log_end(self) -> int:
        return self.opened.log.log_end_offset

    def new_batch(
        self, count: int, size: int, timestamp_ms: int, *, producer: Producer
    ) -> ModelBatch:
        self.count += 1
        value = b"%06d" % self.count + b"." * size
        return ModelBatch(self.model.end, (value,) * count, timestamp_ms, producer)

    def append_to_log(self, batch: ModelBatch) -> tuple[int, bool]:
        appended = self.opened.append(
            *batch.values, producer=batch.producer, timestamp_ms=batch.timestamp_ms
        )
        assert appended.next_offset == appended.base_offset + len(batch.values)
        return appended.base_offset, appended.is_duplicate

    @rule(count=COUNTS, size=SIZES, timestamp_ms=st.integers(0, 50))
    def append(self, count: int, size: int, timestamp_ms: int) -> None:
        batch = self.new_batch(count, size, timestamp_ms, producer=Producer())

        assert self.append_to_log(batch) == (self.model.end, False)

        self.model.append(batch)

    @rule(
        producer_id=st.integers(1, 2),
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        back=st.integers(-1, 7),
        count=COUNTS,
        size=SIZES,
    )
    def append_as_a_producer(
        self, producer_id: int, epoch_step: int, back: int, *, count: int, size: int
    ) -> None:
        """Append the next batch, one after a gap, or a duplicate of an earlier one."""
        known = self.model.producers().get(producer_id)
        epoch, sequence = 1, 0
        if known is not None:
            epoch = known.epoch + epoch_step
            recent = known.batches[-back:] if 0 < back <= len(known.batches) else []
            if epoch_step == 1:
                sequence = 0 if back else 5
            elif recent:
                sequence, count = recent[0].producer.sequence, len(recent[0].values)
            elif known.batches:
                sequence = known.batches[-1].next_sequence + (2 if back < 0 else 0)
        producer = Producer(producer_id, max(epoch, 0), sequence)
        batch = self.new_batch(count, size, 10, producer=producer)
        verdict = self.model.verdict(producer, count)

        if isinstance(verdict, ModelBatch):
            assert self.append_to_log(batch) == (verdict.base_offset, True)
        elif verdict is None:
            assert self.append_to_log(batch) == (self.model.end, False)
            self.model.append(batch)
        else:
            try:
                self.append_to_log(batch)
            except verdict:
                pass
            else:
                raise AssertionError(f"{verdict} was not raised")

    @rule()
    def flush(self) -> None:
        flush = self.opened.log.begin_flush()
        if flush is None:
            assert self.durable_end == self.model.end
            return
        flush.run()
        self.flushed(flush, self.model.end)

    def flushed(self, flush: FlushJob, end: int) -> None:
        self.opened.log.end_flush(flush)
        self.durable_end = end
        if flush.work.checkpoint is not None:
            self.durable_start = flush.work.checkpoint.log_start_offset

    @rule(count=COUNTS, size=SIZES)
    def append_while_a_flush_runs(self, count: int, size: int) -> None:
        flush = self.opened.log.begin_flush()
        end = self.model.end
        self.append(count, size, 10)
        if flush is not None:
            flush.run()
            self.append(count, size, 10)
            self.flushed(flush, end)
        assert self.opened.log.durable_end_offset == end

    @rule()
    def begin_a_flush_and_forget_it(self) -> None:
        self.opened.log.begin_flush()

    @rule()
    def request_a_checkpoint(self) -> None:
        self.opened.log.request_checkpoint()

    @rule()
    def roll(self) -> None:
        self.opened.log.roll_if_old(now_ms=NOW_MS * 2)

    @rule(place=PLACES)
    def truncate(self, place: float) -> None:
        start = self.model.start
        offset = start + round(place * (self.model.end - start))

        try:
            self.opened.log.truncate(offset)
        except CorruptRecordError:
            assert self.log_end == self.model.end, "nothing was truncated"
            assert self.opened.log.damage
            self.opened.log.truncate(offset, may_drop_damage=True)

        if offset >= self.model.end:
            return
        self.model.truncate(offset)
        if self.log_end < self.model.end:  # The batches below the truncation are damaged.
            assert self.model.records(self.log_end, self.model.end).items() <= self._doubtful()
            self.model.truncate(self.log_end)
        self.damaged = [batch for batch in self.damaged if batch in self.model.batches]
        self.durable_end = self.model.end
        self.durable_start = self.model.start

    def _doubtful(self) -> set[tuple[int, bytes]]:
        return {
            (batch.base_offset + number, value)
            for batch in self.damaged
            for number, value in enumerate(batch.values)
        }

    @rule(place=PLACES)
    def delete_records(self, place: float) -> None:
        offset = round(place * self.durable_end)

        self.opened.log.delete_records(offset, high_watermark=self.durable_end)

        self.model.start = max(self.model.start, offset)

    @rule(place=PLACES)
    def apply_retention(self, place: float) -> None:
        high_watermark = round(place * self.durable_end)

        removal = self.opened.log.apply_retention(high_watermark=high_watermark, now_ms=NOW_MS)

        if removal:
            assert removal.end_offset <= high_watermark
            removal.run()
        assert self.opened.log.log_start_offset >= self.model.start
        assert self.opened.log.log_start_offset <= max(high_watermark, self.model.start)
        self.model.start = self.opened.log.log_start_offset

    @rule(place=PLACES, watermark=PLACES, max_bytes=st.sampled_from([0, 1, 500, 5000]))
    def read(self, place: float, watermark: float, max_bytes: int) -> None:
        model = self.model
        bounds = model.bounds()
        high_watermark = bounds[round(watermark * (len(bounds) - 1))]
        offset = model.start + round(place * (model.end - model.start))

        damaged = [b for b in self.damaged if b.base_offset <= offset < b.end_offset]
        try:
            part = self.opened.log.read(offset, max_bytes=max_bytes, high_watermark=high_watermark)
            loaded = None if part is None else part.load()
        except CorruptRecordError:
            if damaged:
                return
            raise

        if part is None or loaded is None:
            assert offset >= high_watermark
            return
        assert part.file is loaded.file
        records = records_in(loaded.read())
        assert records
        assert offset in records
        assert records.items() <= model.records(0, high_watermark).items()

    @precondition(lambda self: not self.damaged)
    @rule(timestamp_ms=st.integers(0, 60), watermark=PLACES)
    def find_time(self, timestamp_ms: int, watermark: float) -> None:
        bounds = self.model.bounds()
        high_watermark = bounds[round(watermark * (len(bounds) - 1))]

        part = self.opened.log.find_time(timestamp_ms, high_watermark=high_watermark)

        header = None if part is None else parse_header(part.load().read())
        found = None if header is None else header.base_offset
        assert found == self.model.find_time(timestamp_ms, high_watermark)

    @rule(after_calls=CRASH_CALLS, count=COUNTS, size=SIZES, seed=st.none() | SEEDS)
    def crash(self, after_calls: int | None, count: int, size: int, *, seed: int | None) -> None:
        """Kill the process, maybe during an append and flush, and maybe cut the power as well."""
        doing = (
            None if after_calls is None else self.new_batch(count, size, 10, producer=Producer())
        )
        batches = list(self.model.batches)
        if doing is not None:
            batches.append(doing)

            def append_and_flush() -> None:
                self.opened.append(*doing.values, timestamp_ms=doing.timestamp_ms)
                self.opened.flush()

            assert after_calls is not None
            crash(self.opened.disk, after_calls, append_and_flush)
        durable_end = max(self.durable_end, self.opened.log.durable_end_offset)
        disk = self.opened.disk
        disk = disk.kill() if seed is None else disk.power_cut(Random(seed))

        self.opened = reopen(disk, self.opened.config)

        log, model = self.opened.log, self.model
        assert not self.opened.report.damage or self.damaged
        assert not self.opened.report.notes
        assert log.log_end_offset in {0, *(batch.end_offset for batch in batches)}
        assert log.log_end_offset >= (self.model.end if seed is None else durable_end)
        assert self.durable_start <= log.log_start_offset <= model.start
        model.batches = batches
        model.lose_end(log.log_end_offset)
        model.start = log.log_start_offset
        self.durable_end = log.durable_end_offset
        assert self.durable_end == model.end
        self.durable_start = min(self.durable_start, model.start)

    @precondition(lambda self: len(self.damaged) < 2)
    @rule(seed=SEEDS)
    def rot(self, seed: int) -> None:
        """Flip a bit of a batch below the recovery point while the broker is down."""
        self.opened.log.request_checkpoint()
        self.flush()
        random = Random(seed)
        disk = self.opened.disk.kill()
        places: list[tuple[int, int, int]] = []
        bases = [int(name[:20]) for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
        for base in bases:
            data = disk.durable_bytes(f"{DIRECTORY}/{base:020}.log")
            for place in batch_bounds(data)[:-1]:
                parsed = parse_header(data, place)
                assert parsed is not None
                places.append((base, place + random.randrange(parsed.size), parsed.base_offset))
        if places:
            base, place, hit = random.choice(places)
            assert place >= SEGMENT_HEADER_SIZE
            disk.flip_bit(f"{DIRECTORY}/{base:020}.log", place, random.randrange(8))
            self.damaged += [batch for batch in self.model.batches if batch.base_offset == hit]
        self.opened = reopen(disk, self.opened.config)
        assert not self.opened.report.scanned_bytes

    @invariant()
    def the_offsets_are_in_order(self) -> None:
        log = self.opened.log
        assert log.log_start_offset <= log.durable_end_offset <= log.log_end_offset
        assert log.log_end_offset == self.model.end
        assert log.log_start_offset == self.model.start
        assert log.durable_end_offset == self.durable_end

    def teardown(self) -> None:
        records = self.model.records(self.model.start, self.model.end)
        found = read_all(self.opened.log, max_bytes=5000)
        doubtful = self._doubtful()
        assert found.items() <= records.items()
        assert records.items() - found.items() <= doubtful


@pytest.mark.invariant("I1")
def test_a_log_is_what_the_model_says() -> None:
    run_state_machine_as_test(LogMachine)
