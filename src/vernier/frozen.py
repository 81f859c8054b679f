"""The dataclass of the house: frozen and keyword-only, for everything that is configured, measured or sent."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass whose objects never change and whose fields are given by name."""
    return dataclass(frozen=True, kw_only=True)(cls)
