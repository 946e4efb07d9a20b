#!/usr/bin/env python3
"""Draws the folders of the sources: their sizes, and which includes which.

Each top folder is a box on the highest floor that lies below everything that includes it; its width is its share of
the lines, and the cells in it are its folders. An arrow is an include that no chain of other arrows implies.

draw_house.py --source ROOT [--out FILE.svg]   writes the picture (default: ROOT/docs/house.svg)
draw_house.py --source ROOT --check FILE.svg   fails where the picture has other folders or arrows than the sources, or
                                               a size that is more than a tenth (and 300 lines) off
"""

import argparse
import html
import os
import re
import sys
from collections import defaultdict

SOURCES = (".cc", ".h", ".cu", ".cuh", ".cpp")
ROOMS = ("engine", "files", "traces", "reference", "simulator", "kernels", "server", "audit", "tools")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z_]+)/')
WIDTH, FLOOR_HEIGHT, GAP, MARGIN = 1180, 118, 52, 24
SIZE = re.compile(r'data-room="([^"]+)" data-lines="(\d+)"')
ARROW = re.compile(r'data-from="(\w+)" data-to="(\w+)"')


def read_house(root):
    """The lines of each folder ("engine/cache": N) and the rooms that each room includes."""
    lines, includes = defaultdict(int), defaultdict(set)
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room)):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as source:
                    text = source.readlines()
                parts = os.path.relpath(folder, root).split(os.sep)
                lines["/".join(parts[:2])] += len(text)
                for found in filter(None, map(INCLUDE.match, text)):
                    if found[1] in ROOMS and found[1] != room:
                        includes[room].add(found[1])
    return dict(lines), includes


def reachable(includes, room, seen):
    for other in includes[room]:
        if other not in seen:
            seen.add(other)
            reachable(includes, other, seen)
    return seen


def arrows_of(includes):
    """The includes that no longer way implies: (from, to)."""
    arrows = []
    for room in ROOMS:
        reached = reachable(includes, room, set())
        if room in reached:
            sys.exit(f"error: {room}/ includes itself through {sorted(reached)}")
        for other in sorted(includes[room]):
            others = includes[room] - {other}
            if not any(other in reachable(includes, between, set()) for between in others):
                arrows.append((room, other))
    return arrows


def floors_of(includes):
    """Each room's floor, from 0: one below the lowest that includes it."""
    depths = {}

    def depth(room):
        if room not in depths:
            depths[room] = 1 + max((depth(user) for user in ROOMS if room in includes[user]), default=-1)
        return depths[room]

    lowest = max(map(depth, ROOMS))
    return {room: lowest - depths[room] for room in ROOMS}


def cells_of(lines, room):
    """The room's folders, largest first; its own files are the cell without a name."""
    cells = [(path[len(room) + 1 :], count) for path, count in lines.items() if path.split("/")[0] == room]
    return sorted(cells, key=lambda cell: -cell[1])


def room_lines(lines, room):
    return sum(count for _, count in cells_of(lines, room))


def box(x, y, width, height, kind, inside=""):
    return f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"{inside}/>'


def text(x, y, words, kind):
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{html.escape(words)}</text>'


def draw_room(out, room, lines, x, y, width):
    total = room_lines(lines, room)
    out.append(box(x, y, width, FLOOR_HEIGHT, "room", f' rx="4" data-room="{room}" data-lines="{total}"'))
    out.append(text(x + 10, y + 22, f"{room}/", "name"))
    out.append(text(x + 10, y + 39, f"{total / 1000:.1f} k lines", "size"))
    left, inner = x + 8, width - 16
    for name, count in cells_of(lines, room):
        share = inner * count / total
        out.append(box(left, y + 50, max(share - 2, 1), FLOOR_HEIGHT - 60, "cell"))
        label = name or "."
        if share > 7 * max(len(label), len(str(count))) + 6:
            out.append(text(left + 4, y + 68, label, "folder"))
            out.append(text(left + 4, y + 84, f"{count}", "count"))
        elif share > 13:
            turned = f'<text class="folder" transform="translate({left + 10:.0f} {y + 104:.0f}) rotate(-90)">'
            out.append(f"{turned}{html.escape(label[:9])}</text>")
        left += share


def place_rooms(lines, floors):
    """Each room's (x, y, width): floors from the top, each centred, widths to one scale."""
    rows = defaultdict(list)
    for room in ROOMS:
        rows[floors[room]].append(room)
    widest = max(sum(room_lines(lines, room) for room in row) + 4000 * (len(row) - 1) for row in rows.values())
    places = {}
    for floor, row in rows.items():
        widths = [max(110, (WIDTH - 2 * MARGIN) * room_lines(lines, room) / widest) for room in row]
        x = (WIDTH - sum(widths) - GAP * (len(row) - 1)) / 2
        y = MARGIN + (max(rows) - floor) * (FLOOR_HEIGHT + GAP)
        for room, width in zip(row, widths):
            places[room] = (x, y, width)
            x += width + GAP
    return places


def draw_arrows(out, arrows, places):
    """From the lower edge of one to the upper edge of the other, spread over both in the order of the other ends."""

    def centre(room):
        return places[room][0] + places[room][2] / 2

    for source, target in arrows:
        down = sorted((t for s, t in arrows if s == source), key=centre)
        up = sorted((s for s, t in arrows if t == target), key=centre)
        x0 = places[source][0] + places[source][2] * (down.index(target) + 1) / (len(down) + 1)
        x1 = places[target][0] + places[target][2] * (up.index(source) + 1) / (len(up) + 1)
        y0, y1 = places[source][1] + FLOOR_HEIGHT, places[target][1]
        bend = GAP * 0.6
        out.append(
            f'<path class="arrow" data-from="{source}" data-to="{target}" marker-end="url(#head)" '
            f'd="M{x0:.0f} {y0:.0f} C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1 - 5:.0f}"/>'
        )


STYLE = """
  text { font-family: system-ui, sans-serif; fill: #1d2733 }
  .name { font-size: 16px; font-weight: 600 } .size, .count { font-size: 11px; fill: #5b6775 }
  .folder { font-size: 11px } .room { fill: #eef2f6; stroke: #8595a6 } .cell { fill: #d5dee8 }
  .arrow { fill: none; stroke: #4a6a8a; stroke-width: 1.4 } #head path { fill: #4a6a8a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .size, .count { fill: #9fb0c0 } .room { fill: #1b232c; stroke: #5b6b7b }
    .cell { fill: #2d3a47 } .arrow { stroke: #8fb3d6 } #head path { fill: #8fb3d6 }
  }
"""


def draw(lines, includes):
    floors = floors_of(includes)
    places = place_rooms(lines, floors)
    height = 2 * MARGIN + (max(floors.values()) + 1) * (FLOOR_HEIGHT + GAP) - GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The folders of Verbatim, their lines of C++ and CUDA, and their includes</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    draw_arrows(out, arrows_of(includes), places)
    for room in ROOMS:
        draw_room(out, room, lines, *places[room])
    out.append("</svg>")
    return "\n".join(out) + "\n"


def check(picture, lines, includes):
    with open(picture, encoding="utf-8") as drawn_file:
        drawn = drawn_file.read()
    problems = []
    sizes = {room: int(count) for room, count in SIZE.findall(drawn)}
    for room in ROOMS:
        now, then = room_lines(lines, room), sizes.get(room, 0)
        if abs(now - then) > max(300, now / 10):
            problems.append(f"{room}/ has {now} lines, {then} in the picture")
    drawn_arrows, arrows = set(ARROW.findall(drawn)), set(arrows_of(includes))
    problems += [f"{a}/ includes {b}/, which the picture does not show" for a, b in sorted(arrows - drawn_arrows)]
    problems += [f"the picture has an arrow from {a}/ to {b}/" for a, b in sorted(drawn_arrows - arrows)]
    for problem in problems:
        print(f"error: {problem}: python3 tests/house/draw_house.py --source . draws it again", file=sys.stderr)
    print(f"{len(sizes)} folders and {len(drawn_arrows)} arrows compared")
    return 1 if problems or not sizes else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--out")
    parser.add_argument("--check", metavar="FILE.svg")
    arguments = parser.parse_args()
    lines, includes = read_house(arguments.source)
    if arguments.check:
        sys.exit(check(arguments.check, lines, includes))
    path = arguments.out or os.path.join(arguments.source, "docs", "house.svg")
    with open(path, "w", encoding="utf-8") as out:
        out.write(draw(lines, includes))


if __name__ == "__main__":
    main()
