# SPDX-License-Identifier: Apache-2.0
"""Reads and edits parts of a SentencePiece model on the wire: the package's own class wants a newer protobuf than gRPC's."""

import dataclasses
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclasses.dataclass
class Piece:
    piece: str = ""
    score: float = 0.0
    type: int = NORMAL


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def _fields(data):
    """(number, wire type, value): bytes of strings and of fixed numbers, integers of varints."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        wire_type = key & 7
        if wire_type == 0:
            value, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire_type)
            if size is None:
                size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, wire_type, value


def _read_piece(data):
    piece = Piece()
    for number, _, value in _fields(data):
        if number == 1:
            piece.piece = value.decode()
        elif number == 2:
            (piece.score,) = struct.unpack("<f", value)
        elif number == 3:
            piece.type = value
    return piece


def _write_piece(piece):
    text = piece.piece.encode()
    body = b"\x0a" + _varint(len(text)) + text + b"\x15" + struct.pack("<f", piece.score) + b"\x18" + _varint(piece.type)
    return b"\x0a" + _varint(len(body)) + body


def edit_pieces(model, edit):
    """The model with the pieces that `edit(pieces)` leaves in the list."""
    pieces, rest = [], b""
    for number, wire_type, value in _fields(model):
        assert wire_type == 2
        if number == 1:
            pieces.append(_read_piece(value))
        else:
            rest += _varint(number << 3 | 2) + _varint(len(value)) + value
    edit(pieces)
    return b"".join(map(_write_piece, pieces)) + rest


def charsmap_of(model):
    """normalizer_spec.precompiled_charsmap."""
    (spec,) = (value for number, _, value in _fields(model) if number == 3)
    (charsmap,) = (value for number, _, value in _fields(spec) if number == 2)
    return charsmap
