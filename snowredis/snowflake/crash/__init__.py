"""Crash records: what a process leaves for others in case it is killed, and what they do with it."""
