"""Declaration of a kind of ids, so that snowredis.generator() can make its generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError
from snowredis.generators.protocol import IdGenerator
from snowredis.settings import Setting, check_names


@dataclass(frozen=True, slots=True)
class IdKind:
    """Declaration of a kind of ids. Another package adds its own under the entry point group of registry.py.

    Attributes:
        name: for snowredis.generator().
        summary: one line for people.
        settings: the settings of the kind by name, each declared once; others are refused.
        describe: returns the description of the ids from settings that check() returned. Connects to nothing.
        open: returns a generator from settings that check() returned. May raise ImportError if a library that *extra*
            installs is missing.
        extra: what to install for it, as in ``pip install 'snowredis[EXTRA]'``; None: nothing.
        package: the package that has the extra.
    """

    name: str
    summary: str
    settings: Mapping[str, Setting]
    describe: Callable[[Mapping[str, Any]], IdDescription]
    open: Callable[[Mapping[str, Any]], IdGenerator[Any]]
    extra: str | None = None
    package: str = "snowredis"

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return *given* with checked values, numbers as int or float.

        Raises ConfigError for an unknown setting and for a value that is not valid.
        """
        check_names(given, self.settings, f" of {self.name} generators")
        return {name: self.settings[name].check(value) for name, value in given.items()}

    def generator(self, given: Mapping[str, Any]) -> IdGenerator[Any]:
        """Return a generator with the settings *given*.

        Raises ConfigError for settings that cannot work and for a missing library; and what the kind raises.
        """
        settings = self.check(given)
        try:
            return self.open(settings)
        except ImportError as error:
            if self.extra is None:
                raise
            raise ConfigError(
                f"{self.name} generators need a package that is not installed ({error}). Install it with: "
                f"pip install '{self.package}[{self.extra}]'"
            ) from error
