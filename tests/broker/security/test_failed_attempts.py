"""Failed authentications by address: delays that rise, fall, and stay bounded."""

from tidelog.broker.security.failed_attempts import FailedAttempts


def test_delays_double_with_each_failure_up_to_a_limit_and_fall_with_time() -> None:
    failed = FailedAttempts()
    assert failed.delay_s("192.0.2.1", 0.0) == 0
    delays = list[float]()
    for _ in range(9):
        failed.add("192.0.2.1", 0.0)
        delays.append(failed.delay_s("192.0.2.1", 0.0))
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0]
    assert failed.delay_s("192.0.2.1", 40.0) == 0.8
    assert failed.delay_s("192.0.2.1", 80.0) == 0


def test_addresses_do_not_wait_for_each_other() -> None:
    failed = FailedAttempts()
    failed.add("192.0.2.1", 0.0)
    assert failed.delay_s("192.0.2.2", 0.0) == 0


def test_the_addresses_of_one_ipv6_network_wait_together() -> None:
    failed = FailedAttempts()
    failed.add("2001:db8:1:2::1", 0.0)
    assert failed.delay_s("2001:db8:1:2:ffff::9", 0.0) == 0.1
    assert failed.delay_s("2001:db8:1:3::1", 0.0) == 0


def test_clients_of_ipv4_at_a_socket_of_ipv6_do_not_wait_for_each_other() -> None:
    failed = FailedAttempts()
    failed.add("::ffff:192.0.2.1", 0.0)
    assert failed.delay_s("::ffff:192.0.2.1", 0.0) == 0.1
    assert failed.delay_s("::ffff:192.0.2.2", 0.0) == 0


def test_a_million_addresses_take_bounded_memory() -> None:
    failed = FailedAttempts()
    for number in range(10_000):
        failed.add(f"host-{number}", 0.0)
    remembered = sum(failed.delay_s(f"host-{number}", 0.0) > 0 for number in range(10_000))
    assert remembered == 4_096
    assert failed.delay_s("host-9999", 0.0) == 0.1
    assert failed.delay_s("host-0", 0.0) == 0
