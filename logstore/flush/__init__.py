"""Flush bookkeeping and the flush job."""
