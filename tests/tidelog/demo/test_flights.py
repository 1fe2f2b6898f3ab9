"""The data of the demonstration."""

from tidelog.demo.flights import load_flights


def test_a_month_of_flights_comes_with_the_package() -> None:
    flights = load_flights()

    assert len(flights.values) == len(flights.keys) == 27_004
    assert flights.columns[:4] == ["year", "month", "day", "dep_time"]
    assert flights.values[0].startswith(b"2013,1,1,517,515,")
    assert flights.keys[:2] == [b"N14228", b"N24211"]


def test_an_unknown_tail_number_is_no_key() -> None:
    assert load_flights().keys.count(None) == 155


def test_values_tell_flights_apart() -> None:
    values = load_flights().values

    assert len(set(values)) == len(values)
