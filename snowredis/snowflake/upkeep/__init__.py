"""Upkeep of a generator: claims, renewals, waits, the outage lane, the end."""
