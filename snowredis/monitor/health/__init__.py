"""Checks behind `snowredis doctor`: this host, Redis servers and pools. They write nothing."""
