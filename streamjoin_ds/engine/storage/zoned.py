"""Times and window positions of tuples, as their zone map tells them."""

from __future__ import annotations

from streamjoin_ds.engine.storage.run_form import RunForm
from streamjoin_ds.engine.storage.zone import Range

__all__ = ["Zoned"]


class Zoned:
    """Tuples of one stream with a zone map.

    Attributes
    ----------
    form : RunForm
    zone : tuple of (smallest, largest)
        One for each key; key 0 is the event time in microseconds.
    """

    form: RunForm
    zone: tuple[Range, ...]

    @property
    def position(self) -> Range:
        """Smallest and largest value of the key that the window is measured in: event time, or number."""
        return self.zone[self.form.position_key]

    @property
    def oldest_us(self) -> int:
        """Smallest event time, in microseconds."""
        return int(self.zone[0][0])

    @property
    def newest_us(self) -> int:
        """Largest event time, in microseconds."""
        return int(self.zone[0][1])
