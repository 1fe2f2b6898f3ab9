"""Access keys: signing keys against the published example of AWS, scopes, times and secrets."""

import pytest

from tidelog.wire.security.access_key import (
    SIGNED_MAX_MS,
    SKEW_MS,
    AccessKeyName,
    SigningKey,
    SigningScope,
    impersonation_proof,
    is_access_key_id,
    is_account,
    is_scope_due,
    new_access_key_id,
    root_id,
    root_of,
    scope_end_ms,
    secret_of,
    signing_key,
    time_of_signed,
)

SCOPE = SigningScope("20150830", "us-east-1", "iam")
DAY_MS = 24 * 3_600_000
START_MS = 1_440_892_800_000
"""The day of `SCOPE` begins."""


def test_a_signing_key_is_that_of_the_published_example() -> None:
    """Source: "Create a signed AWS API request" of the IAM User Guide."""
    key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", SCOPE)

    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


def test_each_part_of_its_name_changes_a_secret() -> None:
    root, nonce = root_of(b"s" * 32), bytes(32)
    names = [
        AccessKeyName("TDLAAAAAAAAAAAAAAAAA", "alice", ""),
        AccessKeyName("TDLAAAAAAAAAAAAAAAAB", "alice", ""),
        AccessKeyName("TDLAAAAAAAAAAAAAAAAA", "bob", ""),
        AccessKeyName("TDLAAAAAAAAAAAAAAAAA", "alice", "111122223333"),
    ]
    secrets = {secret_of(root, name, nonce) for name in names}
    secrets.add(secret_of(root, names[0], bytes([1] * 32)))
    secrets.add(secret_of(root_of(b"t" * 32), names[0], nonce))

    assert len(secrets) == 6
    assert all(len(each) == 40 and each.isalnum() for each in secrets)
    assert root_id(root) != root_id(root_of(b"t" * 32))


def test_ids_and_accounts_have_their_forms() -> None:
    assert is_access_key_id(new_access_key_id(bytes(range(10))))
    assert not any(map(is_access_key_id, ("AKIAAAAAAAAAAAAAAAAA", "TDLAAAAAAAAAAAAAAAAA\n", "")))
    assert is_account("000000000000")
    assert not any(map(is_account, ("00000000000", "1111222233334", "11112222333a", "")))


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        (
            "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/iam/aws4_request\nhash",
            45_360_000,
        ),
        ("AWS4-HMAC-SHA256\n20150831T123600Z\n20150830/us-east-1/iam/aws4_request\nhash", None),
        ("AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/sqs/aws4_request\nhash", None),
        ("AWS4-HMAC-SHA256\n20150830\n20150830/us-east-1/iam/aws4_request\nhash", None),
        ("TIDELOG-IMPERSONATE\n1\n20150830/us-east-1/iam/aws4_request\nTDLA", None),
        ("AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/iam/aws4_request\nhash\n", None),
        ("", None),
    ],
)
def test_only_a_text_of_the_scope_has_a_time(text: str, at_ms: int | None) -> None:
    wanted = None if at_ms is None else START_MS + at_ms
    assert time_of_signed(text.encode(), SCOPE) == wanted


def test_a_scope_is_due_from_its_day_to_the_end_of_its_last_presigned_request() -> None:
    end_ms = scope_end_ms(SCOPE)
    assert end_ms == START_MS + DAY_MS + SIGNED_MAX_MS + SKEW_MS
    for now_ms, is_due in (
        (START_MS - SKEW_MS - 1, False),
        (START_MS - SKEW_MS, True),
        (end_ms, True),
        (end_ms + 1, False),
    ):
        assert is_scope_due(SCOPE, now_ms) is is_due
    assert not is_scope_due(SCOPE._replace(date="20151330"), START_MS)
    assert scope_end_ms(SCOPE._replace(date="x")) is None


def test_a_proof_is_of_one_key_scope_and_time() -> None:
    key = SigningKey("TDLAAAAAAAAAAAAAAAAA", SCOPE, bytes(32))
    proofs = {
        impersonation_proof(key, 1),
        impersonation_proof(key, 2),
        impersonation_proof(key._replace(key=bytes([1] * 32)), 1),
        impersonation_proof(key._replace(access_key_id="TDLAAAAAAAAAAAAAAAAB"), 1),
        impersonation_proof(key._replace(scope=SCOPE._replace(region="eu-west-1")), 1),
    }

    assert len(proofs) == 5
    assert repr(key.key) not in repr(key)
