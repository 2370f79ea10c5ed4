"""Parts of `scripts/docs.py`: the generated parts of the pages, and checks of the pages."""
