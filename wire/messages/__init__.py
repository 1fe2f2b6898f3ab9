"""Requests and replies, one module for each group of APIs."""
