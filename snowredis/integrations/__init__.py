"""Integrations: one module for each framework. Each imports its framework; nothing imports an integration by itself."""
