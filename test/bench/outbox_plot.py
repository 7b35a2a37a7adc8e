"""Draws series over seconds as SVG: one panel each, one above the other."""

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 800, 180, 70, 20, 40, 50
STYLE = ('text { font: 12px sans-serif; fill: #222 } .title { font-size: 14px; font-weight: bold }'
         ' .axis { stroke: #999 } .line { fill: none; stroke: #1b6ac9 } .shade { fill: #f3e3c3 }'
         ' .ground { fill: #fff }')


def round_up(value):
    """The next of 1, 2, 5, 10, 20, ... that is not less."""
    power = 10 ** (len(str(int(value))) - 1) if value >= 1 else 1
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def panel(top, name, unit, values, shaded):
    most = round_up(max(max(values), 1))
    across = (WIDTH - LEFT - RIGHT) / len(values)

    def x(second):
        return LEFT + second * across

    def y(value):
        return top + PANEL * (1 - value / most)

    points = ' '.join(f'{x(i + 0.5):.1f},{y(value):.1f}' for i, value in enumerate(values))
    marks = range(0, len(values) + 1, max(1, round_up(len(values) / 10)))
    return [
        f'<rect class="shade" x="{x(shaded[0]):.1f}" y="{top}" height="{PANEL}" '
        f'width="{x(shaded[1]) - x(shaded[0]):.1f}"/>',
        f'<text x="{LEFT}" y="{top - 8}">{name}, {unit}</text>',
        *(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
          f'<path class="axis" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>'
          for value in (0, most / 2, most)),
        *(f'<text x="{x(mark):.1f}" y="{top + PANEL + 16}" text-anchor="middle">{mark} s</text>'
          for mark in marks),
        f'<polyline class="line" points="{points}"/>']


def draw(title, series, shaded):
    """`series` are (name, unit, values, one a second); the seconds of `shaded` are shaded."""
    height = TOP + len(series) * (PANEL + GAP)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}">',
             f'<style>{STYLE}</style>',
             f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
             f'<text class="title" x="{LEFT}" y="20">{title}</text>']
    for number, (name, unit, values) in enumerate(series):
        lines += panel(TOP + 15 + number * (PANEL + GAP), name, unit, values, shaded)
    return '\n'.join([*lines, '</svg>', ''])
