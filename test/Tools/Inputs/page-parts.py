# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks that a page is whole and needs nothing else, and says what it holds.

"""page-parts.py PAGE: every element is closed, in order; no script, no link, no file
or address but data; every figure is XML, its curves between the axes, where nothing is
written, with words for who points at them; every picture is a PNG whose parts have the
right checksums. Prints the headings, the titles of the figures, and how many there
are."""

import base64
import html.parser
import struct
import sys
import xml.dom.minidom
import zlib

EMPTY = {"meta", "img", "input", "rect", "polyline", "circle"}


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.headings, self.pictures = [], [], []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "iframe", "object"), tag
        for name, value in attributes:
            if name in ("src", "href", "srcset", "style") and "url(" in value or name == "href":
                raise AssertionError(f"{name}={value}")
            if name == "src":
                assert value.startswith("data:image/png;base64,"), value
                self.pictures.append(base64.b64decode(value.partition(",")[2]))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


with open(sys.argv[1]) as file:
    text = file.read()
reader = Reader()
reader.feed(text)
reader.close()
assert not reader.open, reader.open
assert text.startswith("<!DOCTYPE html>") and "@import" not in text
print("headings:", *reader.headings, sep="\n  ")

print("figures:")
for part in text.split("<svg ")[1:]:
    figure = xml.dom.minidom.parseString("<svg " + part[:part.index("</svg>") + 6])
    texts = figure.getElementsByTagName("text")
    curves = [line for line in figure.getElementsByTagName("polyline")
              if line.getAttribute("stroke") in ("#1f5fa8", "#c8641e", "#3c8c46", "#8c3c8c")]
    points = [len(line.getAttribute("points").split()) for line in curves]
    # Nothing is written where curves are: between the axes.
    for t in texts:
        x, y = (float(t.getAttribute(axis)) for axis in "xy")
        assert not (62 < x < 545 and 34 < y < 236), t.firstChild.data
    for line in curves:
        for point in line.getAttribute("points").split():
            x, y = map(float, point.split(","))
            assert 61.9 <= x <= 545.1 and 33.9 <= y <= 236.1, point
    hover = figure.getElementsByTagName("title")
    assert len(hover) >= min(map(len, (line.getAttribute("points").split() for line in curves))) / 6
    (title,) = (t.firstChild.data for t in texts if t.getAttribute("font-weight") == "bold")
    print(f"  {title}: {points} points")

for png in reader.pictures:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, data = 8, {}
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        kind, body = png[place + 4:place + 8], png[place + 8:place + 8 + length]
        assert struct.unpack_from(">I", png, place + 8 + length)[0] == zlib.crc32(kind + body)
        data[kind], place = body, place + 12 + length
    width, height = struct.unpack(">II", data[b"IHDR"][:8])
    pixels = zlib.decompress(data[b"IDAT"])
    assert len(pixels) == height * (width + 1)
    dark = sum(p < 255 for y in range(height) for p in pixels[y * (width + 1) + 1:][:width])
    print(f"picture: {width}x{height}, {dark} cells not empty")
