"""Delivery orders: standard, fair, priority, FIFO."""
