"""Tokens: what is public of them, and what is hashed."""

import hashlib

import pytest

from tidelog.wire.security.token import is_token_id, new_token, parse_token

ID = bytes.fromhex("0123456789ab")
SECRET = bytes(range(32))


def test_a_token_has_an_id_and_256_random_bits_of_which_the_hash_is_stored() -> None:
    text = new_token(ID, SECRET)
    assert text == "tdl_0123456789ab_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    parts = parse_token(text)
    assert parts is not None
    assert parts.token_id == "0123456789ab"
    assert parts.sha256 == hashlib.sha256(text.rpartition("_")[2].encode()).digest()


def test_every_bit_of_the_secret_counts() -> None:
    hashes = {parse_token(new_token(ID, (1 << bit).to_bytes(32, "big"))) for bit in range(256)}
    assert None not in hashes
    assert len(hashes) == 256


@pytest.mark.parametrize("text", ["", "tdl_", "tdl_0123456789ab_short", "abc_0123456789ab_x"])
def test_other_texts_are_no_tokens(text: str) -> None:
    assert parse_token(text) is None


def test_a_token_that_is_cut_or_longer_is_none() -> None:
    text = new_token(ID, SECRET)
    assert all(parse_token(text[:end]) is None for end in range(len(text)))
    assert parse_token(text + "A") is None
    assert parse_token(text + "\n") is None


def test_ids_are_told_from_names() -> None:
    assert is_token_id("0123456789ab")
    assert not is_token_id("alice")
