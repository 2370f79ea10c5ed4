"""The pure part: layouts, presets, text forms. No clock, lock, socket, thread or logging."""
