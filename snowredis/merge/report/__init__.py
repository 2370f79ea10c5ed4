"""Reports of a check for programs (as_json.py) and as a page (page.py); the terminal's is in cli/merge_report.py."""
