"""Who cannot connect is told in one line what to look at; every case is in `test_open_rpc.py`."""

from tidelog.wire.env.connect_errors import diagnose


def test_an_error_without_a_text_of_its_own_is_shown_as_it_is() -> None:
    assert diagnose("here", 1, TimeoutError("no answer")) == (
        "cannot connect to here:1: no answer;"
        " no answer; check the address and any firewall between here and there"
    )
