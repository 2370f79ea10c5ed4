"""Decide the new ids of a merge: which ids of one database clash with the other's, and what each of them becomes.

Reads both databases and writes a plan file; changes nothing in them.
"""
