"""Where what is known of a subject comes from and what became of it, as a drawing: sources, facts, derived, left to right.

Pure geometry; a template draws it as SVG without script, beside a table of the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _

from memory.sight import Origin, Result
from tenants.words import in_words

WIDTH = 920.0
TOP, ROW, BOX, HIGH = 30.0, 30.0, 220.0, 22.0
_COLUMNS = (0.0, (WIDTH - BOX) / 2, WIDTH - BOX)


@dataclass(frozen=True, slots=True)
class Node:
    """One record in its place. `model` names the page that tells more; empty where there is none."""

    id: UUID
    model: str
    words: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Edge:
    """That what stands to the right rests on what stands to the left."""

    path: str


@dataclass(frozen=True, slots=True)
class Ancestry:
    """Everything to draw, and its heads."""

    nodes: list[Node]
    edges: list[Edge]
    heads: list[tuple[float, str]]
    width: float
    height: float


def draw(origins: Sequence[Origin], results: Sequence[Result]) -> Ancestry | None:
    """Return the drawing of what facts rest on and what was derived of them; None where there is nothing to draw.

    A source is an episode, or where there was none the saying itself. Each record stands once.
    """
    if not origins:
        return None
    columns: tuple[dict[UUID, Node], ...] = ({}, {}, {})

    def put(column: int, record: UUID, model: str, words: str) -> Node:
        held = columns[column]
        if record not in held:
            held[record] = Node(record, model, words, round(_COLUMNS[column], 1), TOP + len(held) * ROW)
        return held[record]

    pairs: list[tuple[Node, Node]] = []
    for origin in origins:
        fact = put(1, origin.fact, "memory_fact", origin.attribute)
        if origin.episode is not None:
            source = put(0, origin.episode, "memory_episode", _("episode, %(turn)s") % {"turn": origin.turn})
        else:
            source = put(
                0, origin.evidence, "memory_evidence", f"{in_words(origin.source.replace('_', ' '))}, {origin.turn}"
            )
        pairs.append((source, fact))
    for result in results:
        if result.fact in columns[1]:
            pairs.append(
                (
                    columns[1][result.fact],
                    put(2, result.derived, "", f"{in_words(result.kind)} {str(result.derived)[-8:]}"),
                )
            )
    edges = [Edge(_path(start, end)) for start, end in dict.fromkeys(pairs)]
    nodes = [node for column in columns for node in column.values()]
    heads = [(at, words) for at, words in zip(_COLUMNS, (_("said in"), _("facts"), _("derived")), strict=True)]
    return Ancestry(nodes, edges, heads, WIDTH, max(node.y for node in nodes) + ROW)


def _path(start: Node, end: Node) -> str:
    x1, y1, x2, y2 = start.x + BOX, start.y + HIGH / 2, end.x, end.y + HIGH / 2
    middle = (x1 + x2) / 2
    return f"M{x1:g} {y1:g} C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
