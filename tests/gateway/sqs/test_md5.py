"""Digests are those that the cloud was seen to answer."""

from tidelog.gateway.sqs.md5 import md5_of_attributes, md5_of_body
from tidelog.gateway.sqs.protocol.requests import MessageAttribute


def _text(value: str) -> MessageAttribute:
    return MessageAttribute(data_type="String", string_value=value)


def test_a_body_is_hashed_in_utf_8() -> None:
    assert md5_of_body(b"This is a test message") == "fafb00f5732ab283681e124bf8747ed1"
    assert md5_of_body("größer".encode()) == "3b1f5bccdd98086ae8f1852fd2aabe54"


def test_attributes_are_hashed_in_the_order_of_their_names() -> None:
    attributes = {"Hello": _text("There"), "General": _text("Kenobi"), "Help.Me": _text("Me")}
    assert md5_of_attributes(attributes) == "4c360f3fdafd970e05fae2f149d997f5"
    assert md5_of_attributes({"Foo": _text("Bar")}) == "ae7155c6026991b6d54b11589678bf9c"


def test_a_binary_value_is_hashed_as_bytes() -> None:
    value = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"
    attributes = {"attr1": MessageAttribute(data_type="Binary", binary_value=value)}
    assert md5_of_attributes(attributes) == "8cbe4db156db8a94db8b801b7addb984"
