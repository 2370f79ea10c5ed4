"""Registries of shard numbers, the values of the datacenter bits: no two pools have the same.

docs/explanation/uniqueness.md has the rules.
"""
