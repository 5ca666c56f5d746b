"""A registry of named parts: each is one class in one file of a package, found by importing the package's files."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Generic, TypeVar, cast

from bentpipe_lab.errors import RegistrationError, UnknownNameError


class Part:
    """What a registry holds: a class with a name of its own, made without arguments."""

    name: str
    """What plans, tables and figures call it; unique in its registry."""
    order: int = 1000
    """Where it stands in plans, tables and figures: ascending, then by name."""
    required: tuple[str, ...] = ()
    """Attributes that each class has to have."""


T = TypeVar("T", bound=Part)


def unknown(kind: str, name: str, known: Mapping[str, object]) -> UnknownNameError:
    """The error for a name that nobody has, with the nearest that somebody has."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownNameError(f"there is no {kind} {name!r}; {hint}there are {', '.join(map(repr, known))}")


class Registry(Generic[T]):
    """Parts of one kind by name, in order."""

    def __init__(self, kind: str, base: type[Part]) -> None:
        self.kind = kind
        self.base = base
        self._parts: dict[str, T] = {}

    def find(self, package: ModuleType) -> None:
        """Register every class in the files of a package that extends the base and has a name of its own."""
        for entry in pkgutil.iter_modules(package.__path__):
            if entry.ispkg:
                continue
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            for _, each in inspect.getmembers(module, inspect.isclass):
                if each.__module__ == module.__name__ and issubclass(each, self.base) and "name" in vars(each):
                    self.add(each)

    def add(self, part: type[Part]) -> T:
        """Register a class; one that lacks a part of the contract, its bound for example, is refused here."""
        name = getattr(part, "name", "")
        if not name:
            raise RegistrationError(f"{part.__qualname__} has no name: give the class a `name`")
        missing = sorted(getattr(part, "__abstractmethods__", ()))
        missing += [attribute for attribute in part.required if not getattr(part, attribute, None)]
        if missing:
            raise RegistrationError(
                f"the {self.kind} {name!r} ({part.__qualname__}) has no {', no '.join(missing)}: define"
                f" {'it' if len(missing) == 1 else 'them'} in its class"
            )
        if name in self._parts:
            raise RegistrationError(f"there are two {self.kind}s {name!r}: rename one of them")
        made = cast(T, part())
        self._parts[name] = made
        self._parts = dict(sorted(self._parts.items(), key=lambda item: (item[1].order, item[0])))
        return made

    @contextmanager
    def added(self, part: type[Part]) -> Iterator[T]:
        """Register a class for as long as this lasts."""
        made = self.add(part)
        try:
            yield made
        finally:
            del self._parts[made.name]

    def __getitem__(self, name: str) -> T:
        """The part of that name; an `UnknownNameError` tells the nearest one."""
        if name not in self._parts:
            raise unknown(self.kind, name, self._parts)
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        """Whether somebody has that name."""
        return name in self._parts

    def __iter__(self) -> Iterator[T]:
        """All parts, in order."""
        return iter(list(self._parts.values()))

    def names(self) -> list[str]:
        """All names, in order."""
        return list(self._parts)
