"""A sheet on which figures are drawn, as SVG of shapes and texts.

Its colours are names. They follow the theme of the site's page (`static/site.css`), elsewhere the reader's system.
"""

from __future__ import annotations

from html import escape

__all__ = ["COLOURS", "Sheet"]

COLOURS = {
    "ink": "#24292f",
    "faint": "#8b949e",
    "left": "#1f5fa8",
    "right": "#b93a22",
    "hit": "#2f7d32",
    "area": "#b07d00",
}
_DARK = {
    "ink": "#e6edf3",
    "faint": "#8b949e",
    "left": "#6cb0ff",
    "right": "#ff8f78",
    "hit": "#6fd07c",
    "area": "#e3b341",
}


def _colours(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


_STYLE = f"""<style>
.fig{{{_colours(COLOURS)}font:13px sans-serif}}
@media (prefers-color-scheme:dark){{.fig{{{_colours(_DARK)}}}}}
</style>"""


class Sheet:
    """A picture that is drawn from the back to the front.

    Parameters
    ----------
    title : str
        What it shows, for those who do not see it.
    width, height : int
        Its size in pixels.
    """

    def __init__(self, title: str, width: int = 720, height: int = 260) -> None:
        self._size, self._title, self._parts = (width, height), title, list[str]()

    def line(self, *points: tuple[float, float], colour: str = "ink", width: float = 1, dashes: str = "") -> None:
        """Draw a line through points."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        style = f"fill:none;stroke:var(--{colour});stroke-width:{width:g}"
        self._parts.append(f'<path d="{path}" style="{style}"{dashed}/>')

    def arrow(self, begin: tuple[float, float], end: tuple[float, float], colour: str = "ink") -> None:
        """Draw a horizontal or vertical arrow."""
        (x, y), (before_x, before_y) = end, begin
        across = (0, 4) if y == before_y else (4, 0)
        back_x, back_y = ((x > before_x) - (x < before_x)) * 7, ((y > before_y) - (y < before_y)) * 7
        self.line(begin, end, colour=colour)
        for sign in (1, -1):
            self.line(end, (x - back_x + sign * across[0], y - back_y + sign * across[1]), colour=colour)

    def span(self, begin: float, end: float, y: float, text: str, colour: str = "area") -> None:
        """Draw a measured length with its text below."""
        self.line((begin, y), (end, y), colour=colour)
        for x in (begin, end):
            self.line((x, y - 4), (x, y + 4), colour=colour)
        self.text((begin + end) / 2, y + 17, text, colour=colour, anchor="middle")

    def box(self, x: float, y: float, width: float, height: float, colour: str = "area", *, fill: float = 0.15) -> None:
        """Draw a box with a thin filling."""
        style = f"fill:var(--{colour});fill-opacity:{fill:g};stroke:var(--{colour})"
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" style="{style}"/>')

    def tuple_(self, x: float, y: float, stream: str, *, is_open: bool = False) -> None:
        """Draw a tuple: a disc of the left stream, a square of the right one; open ones are set aside."""
        style = f"stroke:var(--{stream});stroke-width:2;fill:{'none' if is_open else f'var(--{stream})'}"
        if stream == "left":
            self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" style="{style}"/>')
        else:
            self._parts.append(f'<rect x="{x - 5:g}" y="{y - 5:g}" width="10" height="10" style="{style}"/>')

    def text(self, x: float, y: float, text: str, colour: str = "ink", anchor: str = "start") -> None:
        """Write a line of text."""
        style = f"fill:var(--{colour});text-anchor:{anchor}"
        self._parts.append(f'<text x="{x:g}" y="{y:g}" style="{style}">{escape(text)}</text>')

    def svg(self) -> str:
        """Return the picture."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">\n<title>{escape(self._title)}</title>\n{_STYLE}\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"
