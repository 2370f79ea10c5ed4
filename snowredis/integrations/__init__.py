"""Integrations: one module for each framework. Each imports its framework; nothing imports an integration by itself."""


def pyinstaller_hooks() -> list[str]:
    """Return the directory with the hook of PyInstaller, which finds this function by an entry point."""
    return [f"{__path__[0]}/pyinstaller"]
