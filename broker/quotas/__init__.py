"""Quotas of principals: rates that throttle, and fair turns between principals."""
