"""The lease of one process: its values, and the conversation with the store about it."""
