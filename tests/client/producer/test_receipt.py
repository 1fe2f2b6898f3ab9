"""What senders are told."""

from tidelog.client.producer.receipt import AckLevel, Receipt


def test_a_message_has_the_name_that_its_receivers_see_if_its_place_is_known() -> None:
    assert Receipt("orders", 2, 70, 1, AckLevel.DURABLE).message_id == "2-70"
    assert Receipt("orders", 2, None, 1, None).message_id == ""
