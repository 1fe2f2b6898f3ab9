"""Keys of records as cells of a table."""

from typing import Final

_SHOWN_MAX: Final = 48


def key_text(begin: bytes, key_bytes: int) -> str:
    """Return a key as text, or as hex digits behind `0x` if it is no UTF-8.

    Args:
        begin: The key, or its first bytes.
        key_bytes: Length of the whole key in bytes.
    """
    text = _text(begin, is_cut=len(begin) < key_bytes)
    if len(text) > _SHOWN_MAX:
        text = f"{text[: _SHOWN_MAX - 1]}…"
    is_cut = len(begin) < key_bytes or text.endswith("…")
    return f"{text} ({key_bytes:,} bytes)" if is_cut else text


def _text(begin: bytes, *, is_cut: bool) -> str:
    try:
        text = begin.decode()
    except UnicodeDecodeError as error:
        # A cut may have divided the last character.
        is_last = is_cut and len(begin) - error.start < 4  # noqa: PLR2004
        text = begin[: error.start].decode() if is_last else ""
        if not text:
            return f"0x{begin.hex()}"
    if not text:
        return '""'
    # Control characters are escaped, so that they cannot control the terminal.
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
