"""`python -m tests.browser.small FOLDER`: rewrite each PNG there with a palette of 256 colours, a third of its size.

For pictures as Chromium takes them: 8 bits a channel, not interlaced. Standard library only.
"""

import struct
import sys
import zlib
from collections import Counter
from pathlib import Path

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks(png: bytes) -> dict[bytes, bytes]:
    """Return the chunks of a PNG by name, those of one name joined."""
    found: dict[bytes, bytes] = {}
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        name = png[at + 4 : at + 8]
        found[name] = found.get(name, b"") + png[at + 8 : at + 8 + length]
        at += 12 + length
    return found


def rows_of(png: bytes) -> tuple[int, int, list[list[int]]]:
    """Return width, height, and the rows of a PNG as colours of 24 bits."""
    parts = chunks(png)
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert (depth, interlaced) == (8, 0)
    assert kind in (2, 6)
    each = 3 if kind == 2 else 4
    data, line, before, rows = zlib.decompress(parts[b"IDAT"]), width * each, bytearray(width * each), []
    for number in range(height):
        start = number * (line + 1)
        row = unfiltered(data[start], bytearray(data[start + 1 : start + 1 + line]), before, each)
        rows.append([row[x] << 16 | row[x + 1] << 8 | row[x + 2] for x in range(0, line, each)])
        before = row
    return width, height, rows


def unfiltered(kind: int, row: bytearray, before: bytearray, each: int) -> bytearray:
    """Undo a row's filter, in place."""
    if kind == 1:
        for x in range(each, len(row)):
            row[x] = row[x] + row[x - each] & 255
    elif kind == 2:
        for x, above in enumerate(before):
            row[x] = row[x] + above & 255
    elif kind == 3:
        for x, above in enumerate(before):
            row[x] = row[x] + ((row[x - each] if x >= each else 0) + above >> 1) & 255
    elif kind == 4:
        for x, above in enumerate(before):
            left, corner = (row[x - each], before[x - each]) if x >= each else (0, 0)
            guess = left + above - corner
            a, b, c = abs(guess - left), abs(guess - above), abs(guess - corner)
            row[x] = row[x] + (left if a <= b and a <= c else above if b <= c else corner) & 255
    return row


def has_palette(png: bytes) -> bool:
    """Return whether a PNG's colours are numbers of a palette: whether it is small already."""
    return chunks(png)[b"IHDR"][9] == 3


def small(png: bytes) -> bytes:
    """Return the picture with its 256 commonest colours; each other becomes the nearest of them. One that has a palette stays."""
    if has_palette(png):
        return png
    width, height, rows = rows_of(png)
    counted = Counter(colour for row in rows for colour in row)
    kept = [colour for colour, _ in counted.most_common(256)]
    split = [(colour >> 16, colour >> 8 & 255, colour & 255) for colour in kept]
    place = {colour: number for number, colour in enumerate(kept)}
    for colour in counted:
        if colour not in place:
            r, g, b = colour >> 16, colour >> 8 & 255, colour & 255
            place[colour] = min(
                range(len(split)),
                key=lambda n: (split[n][0] - r) ** 2 + (split[n][1] - g) ** 2 + (split[n][2] - b) ** 2,
            )
    lines = b"".join(b"\0" + bytes(map(place.__getitem__, row)) for row in rows)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(value for colour in split for value in colour)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


if __name__ == "__main__":
    for picture in sorted(Path(sys.argv[1]).glob("*.png")):
        picture.write_bytes(small(picture.read_bytes()))
