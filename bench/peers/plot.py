"""Plots as SVG: bars of ratios on a logarithmic scale. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

_LABEL_WIDTH: Final = 330
_PLOT_WIDTH: Final = 480
_ROW_HEIGHT: Final = 20
_TOP: Final = 58
_BETTER: Final = "#2b7a5b"
_WORSE: Final = "#b5493a"
_GREY: Final = "#8a8f98"
_TICKS: Final = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


@dataclass(frozen=True, slots=True)
class Bar:
    """Factor by which tidelog is better: median, least, most."""

    label: str
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """Map from a ratio to a position on the plot."""

    low: float
    high: float

    def x(self, ratio: float) -> float:
        span = math.log(self.high / self.low)
        within = min(max(ratio, self.low), self.high)
        return round(_LABEL_WIDTH + _PLOT_WIDTH * math.log(within / self.low) / span, 1)


def _scale(bars: Sequence[Bar]) -> _Scale:
    """Return a scale that shows all bars, and 1 with room on both sides."""
    low = min([0.5, *(bar.low for bar in bars)])
    high = max([2.0, *(bar.high for bar in bars)])
    return _Scale(low / 1.1, high * 1.1)


def bars_svg(title: str, bars: Sequence[Bar]) -> str:
    """Return a plot; bars to the right of the line are where tidelog is better."""
    scale = _scale(bars)
    width, height = _LABEL_WIDTH + _PLOT_WIDTH + 70, _TOP + _ROW_HEIGHT * len(bars) + 14
    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {height}",
            "font-family": "sans-serif",
            "font-size": "12",
        },
    )
    ET.SubElement(svg, "rect", {"width": str(width), "height": str(height), "fill": "white"})
    _text(svg, 10, 20, text=title, **{"font-size": "14", "font-weight": "bold"})
    for tick in _TICKS:
        if scale.low <= tick <= scale.high:
            _tick(svg, scale.x(tick), f"{tick:g}", height=height)
    for number, bar in enumerate(bars):
        _bar(svg, scale, bar, top=_TOP + _ROW_HEIGHT * number)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _tick(svg: ET.Element, x: float, text: str, *, height: int) -> None:
    colour = "#333333" if text == "1" else "#dddddd"
    line = {"x1": str(x), "x2": str(x), "y1": str(_TOP - 6), "y2": str(height - 10)}
    ET.SubElement(svg, "line", {**line, "stroke": colour})
    _text(svg, x, _TOP - 12, text=text, **{"text-anchor": "middle", "fill": _GREY})


def _bar(svg: ET.Element, scale: _Scale, bar: Bar, *, top: float) -> None:
    one, end = scale.x(1), scale.x(bar.median)
    shape = {"x": str(min(one, end)), "y": str(top + 3), "width": f"{abs(end - one):.1f}"}
    colour = _BETTER if bar.median >= 1 else _WORSE
    ET.SubElement(svg, "rect", {**shape, "height": str(_ROW_HEIGHT - 7), "fill": colour})
    middle = str(top + _ROW_HEIGHT / 2)
    whisker = {"x1": str(scale.x(bar.low)), "x2": str(scale.x(bar.high)), "y1": middle}
    ET.SubElement(svg, "line", {**whisker, "y2": middle, "stroke": "#222222"})
    _text(svg, _LABEL_WIDTH - 10, top + 14, text=bar.label, **{"text-anchor": "end"})
    _text(svg, scale.x(bar.high) + 6, top + 14, text=f"{bar.median:.2f}", fill=_GREY)


def _text(svg: ET.Element, x: float, y: float, *, text: str, **style: str) -> None:
    element = ET.SubElement(svg, "text", {"x": str(x), "y": str(y), **style})
    element.text = text
