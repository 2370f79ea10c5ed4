"""Give a dead process' worker id back: crash records, and who acts on them."""
