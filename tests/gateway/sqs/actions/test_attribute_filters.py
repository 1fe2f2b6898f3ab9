"""A receive returns the message attributes that it asks for, as the cloud was seen to."""

from pathlib import Path
from typing import Final

from tests.gateway.sqs.callers import BASE_URL, open_caller
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message
from tidelog.gateway.sqs.protocol.requests import (
    MessageAttribute,
    ReceiveMessageCall,
    SendMessageCall,
)

URL: Final = f"{BASE_URL}/000000000000/orders"
ATTRIBUTES: Final = {
    name: MessageAttribute(data_type="String", string_value=value)
    for name, value in (("General", "Kenobi"), ("Hello", "There"), ("Help.Me", "Me"))
}
ALL: Final = "4c360f3fdafd970e05fae2f149d997f5"
TWO: Final = "fca026605781cb4126a1e9044df24232"
FILTERS: Final[list[tuple[list[str], list[str], str | None]]] = [
    ([], [], None),
    (["Missing"], [], None),
    (["All"], ["General", "Hello", "Help.Me"], ALL),
    (["*"], ["General", "Hello", "Help.Me"], ALL),
    ([".*"], ["General", "Hello", "Help.Me"], ALL),
    (["General", "Hello"], ["General", "Hello"], TWO),
    (["Missing", "Hello"], ["Hello"], "a311262e065454b75da111d535b8dacd"),
    (["Hel.*"], ["Hello", "Help.Me"], "83fee93c1bcd8b9a5a923ffacdc636c7"),
    (["Hel.*", "All"], ["General", "Hello", "Help.Me"], ALL),
]
"""Names that a receive asks for, names that it gets, and the digest of these."""


async def test_filters_choose_message_attributes(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as caller:
        await caller.client.admin.create_queue("orders")
        await send_message(caller, SendMessageCall(URL, "msg", message_attributes=ATTRIBUTES))
        for asked, expected, digest in FILTERS:
            call = ReceiveMessageCall(
                URL, message_attribute_names=asked, visibility_timeout=0, wait_time_seconds=5
            )
            (message,) = (await receive_message(caller, call)).messages or []
            assert sorted(message.message_attributes or ()) == expected, asked
            assert message.md5_of_message_attributes == digest, asked
