"""The bytes behind token strings, for the two ways in which vocabularies write them.

Byte-level vocabularies (GPT-2 and heirs) write each byte as one printable character. SentencePiece
vocabularies write text with U+2581 for a space, and bytes they cannot write as <0xAB>.
"""

import re

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"


def byte_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte, inverted: 256 characters to byte values."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = (b for b in range(256) if b not in set(kept))
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(moved)}


_ALPHABET = byte_alphabet()


def from_byte_level(token: str) -> bytes:
    """Bytes of a byte-level token; one with a character outside the alphabet stands for its own text."""
    try:
        return bytes([_ALPHABET[c] for c in token])
    except KeyError:
        return literal(token)


def from_sentencepiece(token: str) -> bytes:
    """Bytes of a SentencePiece token."""
    if match := _BYTE.fullmatch(token):
        return bytes([int(match[1], 16)])
    return literal(token.replace(_SPACE, " "))


def literal(token: str) -> bytes:
    """A token's own text as bytes: what added tokens stand for."""
    return token.encode("utf-8", "surrogatepass")
