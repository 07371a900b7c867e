"""Pictures become small once, and stay as they are when they are small already."""

import struct
import zlib

from tests.browser.small import chunks, has_palette, small


def picture(width: int, height: int) -> bytes:
    """Return a PNG of 24 bits a pixel as Chromium writes one, of few colours."""
    rows = b"".join(b"\0" + b"".join(bytes([40 * (x % 3), 80, 200]) for x in range(width)) for _ in range(height))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


def test_a_picture_gets_a_palette_of_the_colours_that_it_has() -> None:
    made = small(picture(6, 2))
    assert has_palette(made)
    assert {chunks(made)[b"PLTE"][at : at + 3] for at in (0, 3, 6)} == {
        bytes([0, 80, 200]),
        bytes([40, 80, 200]),
        bytes([80, 80, 200]),
    }


def test_what_is_small_already_stays_as_it_is() -> None:
    made = small(picture(6, 2))
    assert small(made) == made
