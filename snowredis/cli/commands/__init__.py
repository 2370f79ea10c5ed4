"""The commands, a module each, named after what people type."""
