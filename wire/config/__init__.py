"""Settings that coordinator and queue layer share."""
