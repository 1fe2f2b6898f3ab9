"""Receipt handles are text that says which message of which receive is meant."""

import pytest

from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, handle_of, place_of
from tidelog.wire.errors import InvalidReceiptError

PLACE = ReceivedPlace(3, 1_000_000, b"receipt \x00\xff\xfe")
HANDLE = handle_of(PLACE)


def test_a_handle_says_again_what_it_was_made_of() -> None:
    assert place_of(HANDLE) == PLACE


def test_a_handle_can_stand_in_an_address_and_in_a_shell() -> None:
    assert HANDLE.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "käse", "=", HANDLE + "=", " " + HANDLE, HANDLE + "!", "a" * 100, "gA"],
)
def test_what_is_no_handle_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidReceiptError, match="is no receipt handle; use one that a receive"):
        place_of(text)


def test_a_handle_that_was_cut_off_is_refused() -> None:
    for length in range(len(HANDLE)):
        with pytest.raises(InvalidReceiptError):
            place_of(HANDLE[:length])


def test_a_changed_character_is_refused_or_means_something_else() -> None:
    for position in range(len(HANDLE)):
        for letter in "Aa0-_":
            changed = HANDLE[:position] + letter + HANDLE[position + 1 :]
            try:
                assert changed == HANDLE or place_of(changed) != PLACE
            except InvalidReceiptError:
                continue
