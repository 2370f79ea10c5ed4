"""Carry out the plan of a merge: rewrite ids and all that refers to them, copy the rows, and verify both.

Every transaction leaves a consistent database and says in a journal how far it got, so that a process that is killed
at any moment loses nothing and the next one goes on.
"""
