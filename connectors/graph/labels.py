"""What all drawings share: the words on a node, the colours of the types, and which way an edge points down the page."""

from typing import Final

from streams.graph import items
from streams.graph.items import Edge, Node

_SHOWN_OF_AN_ID: Final = 8
_WORD_MAX: Final = 24

FILLS: Final = {
    items.SESSION: "#dbe4ff",
    items.THREAD: "#e5dbff",
    items.TURN: "#d0ebff",
    items.RUN: "#c3fae8",
    items.ATTEMPT: "#e6fcf5",
    items.ACTOR: "#ffe8cc",
    items.CHILD: "#f3d9fa",
    items.CHECKPOINT: "#c5f6fa",
    items.WAIT: "#fff3bf",
    items.APPROVAL: "#ffec99",
    items.EFFECT: "#ffd8a8",
    items.ARTIFACT: "#e9ecef",
    items.CONTEXT_PIN: "#f1f3f5",
    items.EVIDENCE: "#d8f5a2",
}
OTHER_FILL: Final = "#ffffff"

_AGAINST: Final = frozenset({items.ATTEMPT_OF, items.CHILD_OF, items.REPLACES, items.FORKED_FROM, items.REBUILT_FROM, items.CAUSED_BY})
"""Edges that name the older or the larger one last."""


def title(node: Node) -> str:
    """Type and the beginning of the id; of an attempt its generation."""
    _, _, rest = node.id.partition("_")
    stem, _, suffix = rest.partition(".")
    shown = plain(stem[:_SHOWN_OF_AN_ID])
    if node.type == items.ATTEMPT:
        return f"attempt {plain(suffix)} of {shown}"
    if node.type == items.CONTEXT_PIN:
        return f"context {plain(suffix)}"
    return f"{plain(node.type)} {shown}"


def state(node: Node) -> str:
    """One word, or nothing."""
    return plain(node.state or "")


def plain(word: str) -> str:
    """Only what ids, types and states are made of; a word of an unknown kind says nothing to any drawing's language."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_.-") else "?" for letter in word)
    return kept if len(kept) <= _WORD_MAX else kept[: _WORD_MAX - 2] + ".."


def fill(node_type: str) -> str:
    return FILLS.get(node_type, OTHER_FILL)


def downwards(edge: Edge) -> tuple[str, str]:
    """Its ends, the older or larger one first: the direction in which layers are laid."""
    return (edge.target, edge.source) if edge.type in _AGAINST else (edge.source, edge.target)
