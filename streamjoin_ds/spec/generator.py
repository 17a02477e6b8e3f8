"""A generated stream: the name of a generator and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from streamjoin_ds.errors import ArgumentError

__all__ = ["GENERATOR_PREFIX", "Generator"]

GENERATOR_PREFIX = "gen:"


@dataclass(frozen=True, slots=True)
class Generator:
    """A generated stream: the name of a generator and its parameters (see `streamjoin_ds.source.generated.generator`).

    The tuples depend on the parameters alone: the same parameters give the same tuples.
    """

    name: str
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Generator:
        """Return the generator in a text of the form ``gen:band2d?side=r&rate=5117&seed=1``.

        The source checks later whether there is such a generator.

        Raises
        ------
        ArgumentError
            The text is not of this form.
        """
        name, _, query = text.removeprefix(GENERATOR_PREFIX).partition("?")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            pairs = [("", "")]
        misread = any(not key for key, _ in pairs) or len(dict(pairs)) != len(pairs)
        if misread or not text.startswith(GENERATOR_PREFIX):
            msg = "the text of a generator cannot be read"
            hint = f"write {GENERATOR_PREFIX}NAME?parameter=value&parameter=value, each parameter once"
            raise ArgumentError(msg, name="generator", hint=hint)
        return cls(name, {key: _number(value) for key, value in pairs})

    def to_facts(self) -> dict[str, object]:
        """Return the generator as plain JSON values."""
        return {"generator": self.name, "parameters": dict(sorted(self.parameters.items()))}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:  # noqa: PERF203 - two turns at most
            continue
    return text
