"""Parts of scripts/which_id.py: costs of an id, tables in databases, and the page."""
