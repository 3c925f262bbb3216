#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draw one restore of a trace (mzcache ... --trace FILE) as an SVG picture.

Usage: trace-picture.py TRACE.json PICTURE.svg [--restore N] [--title TEXT]

A restore is what happens after an eviction: N counts from 1, and from the end with -1, the
default. It is drawn up to the end of the prefill that it was for. Each thread is a lane, and as
reads of one thread overlap, a lane has as many rows as it had under way. Events of one kind that
are closer together than can be seen become one mark, so the picture stays small.
"""

import argparse
import collections
import html
import json

COLOURS = {"compute": "#4878a8", "wait": "#d04040", "read": "#e0a030", "allocate": "#7a5ca8",
           "decode": "#3f9a6b"}
MEANINGS = {"compute": "compute", "wait": "wait for a unit", "read": "read, until checked",
            "allocate": "commit pages", "decode": "decode"}
EVICTION = {"encode", "write", "drop"}
WIDTH, LEFT, RIGHT, TOP = 960, 92, 16, 34
ROW, LANE_GAP = 9, 7
GAP_US = 1000  # graphs of one step follow one another within this


def split_restores(events):
    """A list of events for each restore; the loading of a model, before all evictions, is none."""
    restores, current = [], None
    for event in sorted(events, key=lambda e: e["ts"]):
        if event["name"] in EVICTION:
            current = []
        elif current is not None:
            if event["name"] == "ready" and not any(e["name"] == "ready" for e in current):
                restores.append(current)
            current.append(event)
    return restores


def cut_at_answer(events):
    """What belongs to the restore: up to the end of the steps that began before it was over."""
    last_ready = max(e["ts"] for e in events if e["name"] == "ready")
    until = last_ready
    for event in events:
        if event["name"] == "compute" and event["ts"] <= until + GAP_US:
            until = max(until, event["ts"] + event["dur"])
    return [e for e in events if e["name"] in COLOURS and e["ts"] <= until]


def lane_name(kinds):
    if "compute" in kinds or "wait" in kinds:
        return "compute"
    return "reader" if "read" in kinds else "decoder"


def pack(events):
    """[(row, event)], greedily: an event takes the first row that is free when it begins."""
    ends, packed = [], []
    for event in sorted(events, key=lambda e: e["ts"]):
        row = next((i for i, end in enumerate(ends) if end <= event["ts"]), len(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = event["ts"] + event["dur"]
        packed.append((row, event))
    return packed


def lanes_of(events):
    """[(name, rows, [(row, event)])]: compute first, then readers, then decoders."""
    threads = collections.defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    kinds = {thread: lane_name({e["name"] for e in mine}) for thread, mine in threads.items()}
    order = ["compute", "reader", "decoder"]
    counts = collections.Counter(kinds.values())
    numbers, lanes = collections.Counter(), []
    for thread in sorted(threads, key=lambda t: (order.index(kinds[t]), t)):
        kind = kinds[thread]
        numbers[kind] += 1
        # What a thread does itself is one row; its reads under way are the rows below.
        own = [(0, e) for e in threads[thread] if e["name"] != "read"]
        reads = pack([e for e in threads[thread] if e["name"] == "read"])
        packed = own + [(row + 1, e) for row, e in reads]
        name = f"{kind} {numbers[kind]}" if counts[kind] > 1 else kind
        lanes.append((name, 1 + max(row for row, _ in packed), packed))
    return lanes


def marks(packed, top, start, scale):
    """One path for each kind: rectangles of a lane, those that touch in the picture merged."""
    spans = collections.defaultdict(list)
    for row, event in sorted(packed, key=lambda p: (p[0], p[1]["ts"])):
        x0 = LEFT + (event["ts"] - start) * scale
        x1 = max(x0 + 0.3, x0 + event["dur"] * scale)
        mine = spans[event["name"]]
        if mine and mine[-1][0] == row and x0 - mine[-1][2] < 0.25:
            mine[-1][2] = max(x1, mine[-1][2])
        else:
            mine.append([row, x0, x1])
    for kind, rectangles in spans.items():
        path = "".join(f"M{x0:.1f} {top + row * ROW + 1:g}h{x1 - x0:.1f}v{ROW - 2}h{x0 - x1:.1f}z"
                       for row, x0, x1 in rectangles)
        yield f'<path fill="{COLOURS[kind]}" d="{path}"/>'


def tick_step(total_ms):
    """A round step that gives at most twelve ticks."""
    step = 1
    while total_ms / step > 12:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step


def draw(events, title):
    start = min(e["ts"] for e in events)
    total = max(e["ts"] + e["dur"] for e in events) - start
    scale = (WIDTH - LEFT - RIGHT) / total
    lanes = lanes_of(events)
    bottom = TOP + sum(rows * ROW + LANE_GAP for _, rows, _ in lanes)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 62}" '
           'font-family="sans-serif" font-size="12">',
           "<!-- SPDX-License-Identifier: MIT -->",
           f"<title>{html.escape(title)}</title>",
           f'<rect width="{WIDTH}" height="{bottom + 62}" fill="#ffffff"/>',
           f'<text x="8" y="20" font-weight="bold" fill="#333333">{html.escape(title)}</text>']
    step = tick_step(total / 1000)
    for at in range(0, int(total / 1000) + 1, step):
        x = LEFT + at * 1000 * scale
        out.append(f'<path stroke="#dddddd" d="M{x:.1f} {TOP}V{bottom}"/>'
                   f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle" fill="#333333">'
                   f"{at}</text>")
    out.append(f'<text x="8" y="{bottom + 15}" fill="#333333">ms</text>')
    top = TOP
    for name, rows, packed in lanes:
        out.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" '
                   f'height="{rows * ROW}" fill="#808080" fill-opacity="0.08"/>'
                   f'<text x="8" y="{top + rows * ROW / 2 + 4:g}" fill="#333333">{name}</text>')
        out.extend(marks(packed, top, start, scale))
        top += rows * ROW + LANE_GAP
    x = LEFT
    for kind, colour in COLOURS.items():
        if any(e["name"] == kind for e in events):
            out.append(f'<rect x="{x}" y="{bottom + 36}" width="12" height="12" fill="{colour}"/>'
                       f'<text x="{x + 17}" y="{bottom + 46}" fill="#333333">{MEANINGS[kind]}'
                       "</text>")
            x += 40 + 7 * len(MEANINGS[kind])
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description="Draw one restore of a trace as an SVG picture.")
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--restore", type=int, default=-1, metavar="N",
                        help="which one, from 1, or from the end with -1 (default)")
    parser.add_argument("--title", default="One restore: what each thread did")
    arguments = parser.parse_args()
    with open(arguments.trace, encoding="utf-8") as file:
        restores = split_restores(json.load(file))
    number = arguments.restore
    if number == 0 or not -len(restores) <= number <= len(restores):
        parser.error(f"there is no restore {number}: the trace has {len(restores)}")
    events = cut_at_answer(restores[number - 1 if number > 0 else number])
    with open(arguments.picture, "w", encoding="utf-8") as file:
        file.write(draw(events, arguments.title))


if __name__ == "__main__":
    main()
