"""Who may stamp what, until when: the pool's protocol and the stores that keep it.

Knows no threads, no signals and no wall clock of its own: the caller says what its clock shows.
"""
