"""The age of a broker's metadata, by the answers to its heartbeats."""

from tidelog.coordinator.metadata.metadata_age import MetadataAge


def test_metadata_have_no_age_before_the_first_answer() -> None:
    assert MetadataAge().age_ms(applied_index=9, now_ms=5000) is None


def test_the_age_counts_from_the_sending_of_the_last_answered_heartbeat() -> None:
    age = MetadataAge()
    age.answered(metadata_index=3, sent_at_ms=1000)
    age.answered(metadata_index=3, sent_at_ms=1750)

    assert age.age_ms(applied_index=3, now_ms=1800) == 50
    assert age.age_ms(applied_index=3, now_ms=46_750) == 45_000


def test_an_answer_counts_when_its_metadata_are_applied() -> None:
    age = MetadataAge()
    age.answered(metadata_index=3, sent_at_ms=1000)
    age.answered(metadata_index=7, sent_at_ms=2000)
    age.answered(metadata_index=9, sent_at_ms=3000)

    assert age.age_ms(applied_index=2, now_ms=3000) is None
    assert age.age_ms(applied_index=8, now_ms=3000) == 2000
    assert age.age_ms(applied_index=9, now_ms=3000) == 0


def test_a_broker_that_never_catches_up_keeps_the_first_answer() -> None:
    age = MetadataAge()
    for beat in range(1000):
        age.answered(metadata_index=10 + beat, sent_at_ms=beat)

    assert age.age_ms(applied_index=10, now_ms=1000) == 1000
