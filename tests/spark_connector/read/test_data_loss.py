"""Who loses records is told how to go on."""

from tidelog.spark_connector.read.data_loss import DataLossError, lost


def test_a_loss_names_what_is_lost_and_the_option_that_allows_it() -> None:
    error = lost("orders/0 [3, 9)")

    assert isinstance(error, DataLossError)
    assert str(error).startswith("orders/0 [3, 9); set failOnDataLoss to false")
