"""Sends to FIFO queues. Numbers in docstrings: docs/queue-statements.md."""

from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.commands import deduplication
from tidelog.queue_layer.commands.deduplication import (
    DeduplicationRule,
    DeduplicationWindow,
)
from tidelog.queue_layer.commands.fifo_send import (
    SendDecision,
    SentMessage,
    SentMessages,
    check_standard,
    chosen,
    messages_of,
    places_in,
)
from tidelog.wire.batch.record_batch import Columns
from tidelog.wire.config.queue_config import DeduplicationScope
from tidelog.wire.errors import InvalidRequestError, OverloadedError
from tidelog.wire.messages.queues import (
    DEDUPLICATION_ID_BYTES_MAX,
    DEDUPLICATION_ID_HEADER,
    DELIVER_AT_HEADER,
    PRIORITY_HEADER,
    SENT_TO_HEADER,
)

QUEUE_ID = b"this queue".ljust(16, b".")
OTHER_ID = b"other queue".ljust(16, b".")
BY_ID = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=False)
BY_CONTENT = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=True)
BY_GROUP = DeduplicationRule(DeduplicationScope.GROUP, is_content_based=True)
WINDOW_MS = 100


def sent_messages(rule: DeduplicationRule = BY_ID) -> SentMessages:
    return SentMessages(QUEUE_ID, rule, DeduplicationWindow(WINDOW_MS))


def message(
    sent_id: bytes | None = None,
    *,
    value: bytes = b"value",
    group: bytes | None = b"group",
    queue_id: bytes = QUEUE_ID,
    **fields: bytes,
) -> SentMessage:
    headers = {SENT_TO_HEADER: queue_id, **fields}
    if sent_id is not None:
        headers[DEDUPLICATION_ID_HEADER] = sent_id
    return SentMessage(value, group, headers)


def append(
    messages: SentMessages, *given: SentMessage, at: int = 0, now_ms: int = 1000
) -> SendDecision:
    decision = messages.decide(given, now_ms=now_ms)
    messages.appended(decision, at)
    return decision


@pytest.mark.statement("b38")
def test_a_fifo_queue_rejects_a_message_without_a_group() -> None:
    """Statement 38."""
    with pytest.raises(InvalidRequestError, match="needs a group"):
        sent_messages().decide([message(b"id"), message(b"id", group=None)], now_ms=0)


@pytest.mark.statement("b33")
def test_a_fifo_queue_rejects_a_message_with_its_own_delay_or_priority() -> None:
    """Statement 33."""
    with pytest.raises(InvalidRequestError, match="delays of their own"):
        sent_messages().decide([message(**{DELIVER_AT_HEADER: b"5"})], now_ms=0)
    with pytest.raises(InvalidRequestError, match="no priorities"):
        sent_messages().decide([message(**{PRIORITY_HEADER: b"1"})], now_ms=0)


@pytest.mark.parametrize("queue_id", [b"", OTHER_ID])
def test_a_message_to_a_fifo_queue_names_its_queue(queue_id: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="says so in its header"):
        sent_messages().decide([message(queue_id=queue_id)], now_ms=0)


@pytest.mark.statement("b46")
def test_a_message_without_an_id_is_a_duplicate_only_by_its_content() -> None:
    """Statement 46."""
    for rule, kept in ((BY_ID, [0, 1]), (BY_CONTENT, [0])):
        assert append(sent_messages(rule), message(), message()).kept == kept


@pytest.mark.parametrize("size", [0, DEDUPLICATION_ID_BYTES_MAX + 1])
def test_a_deduplication_id_is_neither_empty_nor_too_long(size: int) -> None:
    with pytest.raises(InvalidRequestError, match="1 to 128 bytes"):
        sent_messages().decide([message(b"x" * size)], now_ms=0)


@pytest.mark.statement("b48")
def test_a_standard_queue_accepts_groups_but_no_deduplication_ids() -> None:
    """Statement 48."""
    check_standard([SentMessage(b"value", b"group"), SentMessage(b"value")])
    with pytest.raises(InvalidRequestError, match="only FIFO queues"):
        check_standard([message(b"id")])


@pytest.mark.statement("b39")
def test_duplicates_are_found_in_the_log_and_in_the_same_send() -> None:
    """Statement 39."""
    messages = sent_messages()
    append(messages, message(b"0"), at=70)

    decision = messages.decide(
        [message(b"0"), message(b"1"), message(b"2"), message(b"1"), message(), message()],
        now_ms=1000,
    )

    assert decision.kept == [1, 2, 4, 5]
    assert decision.offsets(80) == [70, 80, 81, 80, 82, 83]


@pytest.mark.statement("b40")
def test_a_deleted_message_stays_in_the_deduplication_window() -> None:
    """Statement 40: the window is derived from the log, not from the queue."""
    messages = sent_messages()
    append(messages, message(b"id"))

    assert messages.decide([message(b"id")], now_ms=1000 + WINDOW_MS - 1).kept == []
    assert messages.decide([message(b"id")], now_ms=1000 + WINDOW_MS).kept == [0]


def test_a_deduplication_window_belongs_to_one_queue() -> None:
    """Records of the same topic sent to other queues, or produced, have no duplicates."""
    messages = sent_messages()
    messages.read(
        [message(b"a", queue_id=OTHER_ID), SentMessage(b"b", b"group")], [0, 1], time_ms=1000
    )
    messages.read([message(b"c")], [2], time_ms=1000)

    assert messages.decide([message(b"a"), message(b"b"), message(b"c")], now_ms=1000).kept == [
        0,
        1,
    ]


@pytest.mark.statement("b47")
def test_after_a_purge_all_ids_are_accepted_again() -> None:
    """Statement 47."""
    messages = sent_messages()
    append(messages, message(b"a"), message(b"b"))
    messages.forget_below(1)

    assert messages.decide([message(b"a"), message(b"b")], now_ms=1000).kept == [0]
    assert messages.original_of(message(b"a"), now_ms=1000) is None
    assert messages.original_of(message(b"b"), now_ms=1000) == 1
    assert messages.original_of(message(), now_ms=1000) is None


def test_a_full_deduplication_window_rejects_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused send is better than a duplicate."""
    monkeypatch.setattr(deduplication, "IDS_MAX", 2)
    messages = sent_messages()
    append(messages, message(b"a"), message(b"b"))

    with pytest.raises(OverloadedError, match="2 ids were sent"):
        messages.decide([message(b"c")], now_ms=1000)

    assert messages.decide([message(b"c")], now_ms=1000 + 2 * WINDOW_MS).kept == [0]


def test_chosen_records_of_a_batch_keep_their_fields() -> None:
    headers = ((SENT_TO_HEADER, QUEUE_ID), ("trace", b"1"))
    columns = Columns(3, keys=[b"k", b"l", None], values=[b"a", b"b", b"c"], headers=[headers] * 3)

    some = chosen(columns, [0, 2])

    assert messages_of(some) == [messages_of(columns)[place] for place in (0, 2)]
    assert messages_of(some)[1] == SentMessage(b"c", None, dict(headers))
    assert messages_of(chosen(Columns(2, values=[b"a", b"b"]), [1])) == [SentMessage(b"b")]


def test_a_retried_send_finds_its_stored_messages() -> None:
    sent = [message(b"1"), message(b"2"), message(b"2"), message(b"3")]

    assert places_in(sent, sent) == [0, 1, 2, 3]
    assert places_in(sent, [sent[1], sent[3]]) == [None, 0, None, 1]
    assert places_in(sent, []) == [None, None, None, None]


def test_messages_of_another_send_are_not_taken_for_stored_ones() -> None:
    sent = [message(b"1"), message(b"2")]

    assert places_in(sent, [message(b"3")]) is None
    assert places_in(sent, [sent[1], sent[0]]) is None
    assert places_in(sent, [message(b"1", value=b"another")]) is None


class _Accepted(NamedTuple):
    key: object
    offset: int
    at_ms: int


class _Model:
    """A queue that searches all messages that it ever accepted."""

    def __init__(self, rule: DeduplicationRule) -> None:
        self.rule = rule
        self.log: list[_Accepted] = []
        self.end = 0
        self.floor = 0

    def key_of(self, each: SentMessage) -> object:
        told_by: object = each.fields.get(DEDUPLICATION_ID_HEADER)
        if told_by is None:
            if not self.rule.is_content_based:
                return None
            told_by = (each.value,)
        return (told_by, each.group if self.rule.scope is DeduplicationScope.GROUP else None)

    def send(self, given: list[SentMessage], now_ms: int) -> list[int]:
        offsets: list[int] = []
        for each in given:
            key = self.key_of(each)
            found = [
                old.offset
                for old in self.log
                if key is not None
                and old.key == key
                and now_ms - old.at_ms < WINDOW_MS
                and old.offset >= self.floor
            ]
            if not found:
                self.log.append(_Accepted(key, self.end, now_ms))
                found = [self.end]
                self.end += 1
            offsets.append(found[-1])
        return offsets


_MESSAGES = st.builds(
    message,
    st.sampled_from([None, b"a", b"b", b"c"]),
    value=st.sampled_from([b"v", b"w"]),
    group=st.sampled_from([b"g", b"h"]),
)
_STEPS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.lists(_MESSAGES, min_size=1, max_size=5),
        st.sampled_from(["", "", "", "another leader", "purge", "others"]),
    ),
    max_size=40,
)


@pytest.mark.statement("b39", "q8")
@given(_STEPS, st.sampled_from([BY_ID, BY_CONTENT, BY_GROUP]))
def test_fifo_sends_across_failovers_match_a_naive_model(
    steps: list[tuple[int, list[SentMessage], str]], rule: DeduplicationRule
) -> None:
    """Statements 39 to 47, against a list of all sent messages."""
    model, messages = _Model(rule), sent_messages(rule)
    log: list[tuple[int, int, list[SentMessage]]] = []
    now_ms = 1000
    for pause_ms, given_messages, event in steps:
        now_ms += pause_ms
        if event == "another leader":
            messages = sent_messages(rule)
            messages.forget_below(model.floor)
            for base_offset, at_ms, batch in log:
                if now_ms - at_ms < WINDOW_MS:
                    messages.read(batch, count(base_offset), time_ms=at_ms)
        elif event == "purge":
            model.floor = model.end
            messages.forget_below(model.end)
        elif event == "others":
            others = [message(b"a", queue_id=OTHER_ID), SentMessage(b"v", b"g")]
            log.append((model.end, now_ms, others))
            model.end += len(others)
        base_offset = model.end

        decision = messages.decide(given_messages, now_ms=now_ms)
        messages.appended(decision, base_offset)

        assert decision.offsets(base_offset) == model.send(given_messages, now_ms)
        assert len(decision.kept) == model.end - base_offset
        if decision.kept:
            kept = [given_messages[place] for place in decision.kept]
            log.append((base_offset, decision.time_ms, kept))
