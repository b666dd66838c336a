"""A small line chart as SVG text: two panels side by side, measured points, straight lines of a theory, light and dark."""
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 860, 330, 76, 62, 54, 96
PANEL = (WIDTH - 2 * LEFT - GAP + 40) / 2
COLOURS = ("#1f5fd0", "#c9480b", "#3f9e8f", "#8f6fd0")
STYLE = """<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #5b6773 }
.paper { fill: #ffffff }
.title { font-size: 16px; font-weight: 600; fill: #1d252c }
.axis { stroke: #aab4be; stroke-width: 1 }
.grid { stroke: #e3e7eb; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
text { fill: #9ba7b3 }
.paper { fill: #14191e }
.title { fill: #e7ebee }
.axis { stroke: #55606b }
.grid { stroke: #2a323a }
}
</style>
"""


def ticks(highest, count=5):
    """Round steps from 0 to at least `highest`."""
    raw = max(highest, 1e-9) / count
    size = 10 ** len(str(int(raw))) / 10 if raw >= 1 else 10.0 ** -len(str(int(1 / raw)))
    step = next(size * m for m in (1, 2, 2.5, 5, 10, 20) if size * m >= raw)
    return [step * i for i in range(int(highest / step) + 2)]


def number(x):
    return f"{x:,.0f}" if x >= 100 or x == int(x) else f"{x:g}"


class Panel:
    """Scales of one panel: x evenly by value, y from 0."""

    def __init__(self, left, xs, highest):
        self.left, self.xs, self.ticks = left, xs, ticks(highest)
        self.bottom = HEIGHT - BOTTOM

    def x(self, value):
        return self.left + PANEL * value / (max(self.xs) * 1.04)

    def y(self, value):
        return self.bottom - (self.bottom - TOP) * value / self.ticks[-1]

    def frame(self, x_title, y_title):
        out = []
        for tick in self.ticks:
            y = self.y(tick)
            out.append(f'<line class="grid" x1="{self.left:.1f}" x2="{self.left + PANEL:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
            out.append(f'<text x="{self.left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
        last = -100.0
        for value in self.xs:
            if self.x(value) - last > 34:
                last = self.x(value)
                out.append(f'<text x="{last:.1f}" y="{self.bottom + 18:.1f}" text-anchor="middle">{number(value)}</text>')
        out.append(f'<line class="axis" x1="{self.left:.1f}" x2="{self.left + PANEL:.1f}" y1="{self.bottom}" y2="{self.bottom}"/>')
        out.append(f'<text x="{self.left + PANEL / 2:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(x_title)}</text>')
        out.append(f'<text x="{self.left - 8:.1f}" y="{TOP - 12}">{escape(y_title)}</text>')
        return out


def draw_line(panel, series, colour):
    """series: {name, points, dashed, marks}; the name stands at its last point."""
    points = [(panel.x(x), panel.y(y)) for x, y in series["points"]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if series.get("dashed") else ""
    out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'] if not series.get("marks") else []
    if series.get("marks"):
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}"><title>{number(px)}: {py:,.2f}</title></circle>'
                for (x, y), (px, py) in zip(points, series["points"])]
    return out


def legend(panel, all_series):
    out, x = [], panel.left + 64
    for series, colour in zip(all_series, COLOURS):
        out.append(f'<rect x="{x:.1f}" y="{TOP - 21}" width="10" height="10" rx="2" fill="{colour}"/>')
        out.append(f'<text x="{x + 15:.1f}" y="{TOP - 12}">{escape(series["name"])}</text>')
        x += 28 + 6.6 * len(series["name"])
    return out


def chart(title, x_title, panels):
    """panels: two of {unit, series: [{name, points: [(x, y)], dashed, marks}]}."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
           f"<title>{escape(title)}</title>", STYLE + f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
           f'<text class="title" x="{LEFT - 8}" y="26">{escape(title)}</text>']
    for index, content in enumerate(panels):
        points = [point for series in content["series"] for point in series["points"]]
        panel = Panel(LEFT + index * (PANEL + GAP), sorted({x for x, _ in points}), max(y for _, y in points))
        out += panel.frame(x_title, content["unit"]) + legend(panel, content["series"])
        for series, colour in zip(content["series"], COLOURS):
            out += draw_line(panel, series, colour)
    return "\n".join([*out, "</svg>"]) + "\n"
