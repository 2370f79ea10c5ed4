"""The public API as Markdown: the signature and the docstring of each name that a page lists."""

from __future__ import annotations

import functools
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from typing import Any

# sections of a docstring -> True if each entry in it has a name
_SECTIONS = {
    "Args": True,
    "Attributes": True,
    "Raises": True,
    "Rarely needed": True,
    "Returns": False,
    "Blocks": False,
    "Source": False,
}
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)}):\n((?:(?:    .*)?(?:\n|\Z))+)", re.MULTILINE)
_ENTRY = re.compile(r"^([\w*., ]+?)(?: \([^)]*\))?: +", re.MULTILINE)
_LINE_LENGTH = 100


def api(*names: str) -> str:
    """Return a part for each name, such as `snowredis.connect`.

    With `:a,b` or `:*` also for those, or all, public members; with `()` without the signature of a class that users
    do not make themselves.
    """
    return "\n\n".join(part for name in names for part in _parts(*name.partition(":")[::2]))


def _parts(path: str, members: str) -> Iterator[str]:
    thing = pkgutil.resolve_name(path.removesuffix("()"))
    if inspect.ismodule(thing):
        yield markdown(inspect.getdoc(thing) or "")
    else:
        name = path.removeprefix("snowredis.") if path.count(".") == 1 else path
        yield _part("###", name.removesuffix("()"), thing, "" if name.endswith("()") else None)
    if not members:
        return
    for member in list(_members_of(thing)) if members == "*" else members.split(","):
        found = inspect.getattr_static(thing, member) if inspect.isclass(thing) else getattr(thing, member)
        yield _part("####" if inspect.isclass(thing) else "###", member, found)


def _members_of(thing: Any) -> Iterator[str]:
    """Yield the public names in a module or class that have a docstring, in the order of the source."""
    bases = [thing]
    if inspect.isclass(thing):
        bases = [base for base in reversed(inspect.getmro(thing)) if base.__module__.startswith("snowredis")]
    for name in dict.fromkeys(name for base in bases for name in vars(base)):
        found = _unwrapped(inspect.getattr_static(thing, name))
        local = inspect.isclass(thing) or getattr(found, "__module__", "") == thing.__name__
        if not name.startswith("_") and local and (inspect.isroutine(found) or inspect.isclass(found)) and _doc(found):
            yield name


def _unwrapped(thing: Any) -> Any:
    if isinstance(thing, functools.cached_property):
        return thing.func
    if isinstance(thing, property):
        return thing.fget
    return getattr(thing, "__func__", thing)


def _doc(thing: Any) -> str:
    return inspect.cleandoc(getattr(_unwrapped(thing), "__doc__", None) or "")


def _part(level: str, name: str, thing: Any, signature: str | None = None) -> str:
    if signature is None:
        signature = _signature(name.rpartition(".")[2], thing)
    code = f"```text\n{signature}\n```" if signature else ""
    return "\n\n".join(text for text in (f"{level} `{name}`", code, markdown(_doc(thing))) if text)


def _signature(name: str, thing: Any) -> str:
    """Return the signature, an argument a line if it is long; "" for what is not called by users."""
    kind = "" if inspect.isclass(thing) else "async def " if inspect.iscoroutinefunction(_unwrapped(thing)) else "def "
    try:
        signature = inspect.signature(_unwrapped(thing))
    except (TypeError, ValueError):
        return ""
    if isinstance(thing, property | functools.cached_property):
        return f"{name}: {_annotation(signature.return_annotation)}"
    given = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    if inspect.isclass(thing) and (not given or issubclass(thing, tuple) or getattr(thing, "_is_protocol", False)):
        return ""
    returned = (
        "" if signature.return_annotation is signature.empty else f" -> {_annotation(signature.return_annotation)}"
    )
    arguments = list(_arguments(given))
    line = f"{kind}{name}({', '.join(arguments)}){returned}"
    if len(line) <= _LINE_LENGTH:
        return line
    return f"{kind}{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){returned}"


def _arguments(given: list[inspect.Parameter]) -> Iterator[str]:
    starred = any(one.kind is one.VAR_POSITIONAL for one in given)
    for one in given:
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        annotation = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        default = "" if one.default is one.empty else f"{' = ' if annotation else '='}{_default(one.default)}"
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        yield f"{stars}{one.name}{annotation}{default}"


def _default(value: object) -> str:
    return "..." if "<" in repr(value) or " at 0x" in repr(value) else repr(value)


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Za-z_])", "", text)


def markdown(docstring: str) -> str:
    """Return a docstring in Markdown: its sections as lists or paragraphs, each with its title."""
    text = _SECTION.sub(lambda found: _section(found[1], textwrap.dedent(found[2]).strip()), docstring)
    return text.replace("``", "`").strip()


def _section(title: str, text: str) -> str:
    body = _list(text) if _SECTIONS[title] and _ENTRY.search(text) else text
    return f"**{title}**\n\n{body}\n\n"


def _list(text: str) -> str:
    """Return a list from entries `name: what`, each of which may have further lines, which are indented."""
    entries = re.split(r"\n(?=\S)", text)
    return "\n".join(
        "- " + _ENTRY.sub(lambda found: f"`{found[1]}`: ", entry, count=1).replace("\n    ", "\n  ")
        for entry in entries
    )
