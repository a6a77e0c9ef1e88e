# SPDX-License-Identifier: Apache-2.0
"""Text and ids of a byte-level tokenizer without merges; of any other, ids only."""

import os

from checkpoint import ModelError, read_json


def _stand_ins():
    """The customary printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain}
    table.update((byte, chr(256 + i)) for i, byte in enumerate(others))
    return table


class Tokenizer:
    """ids and text of a directory's tokenizer.json, if it is of this kind."""

    def __init__(self, directory):
        self._ids = None
        path = os.path.join(directory, "tokenizer.json") if directory else ""
        if not os.path.exists(path):
            return
        model = read_json(path).get("model")
        if not isinstance(model, dict) or model.get("merges") or model.get("type") != "BPE":
            return
        vocab = model.get("vocab")
        table = _stand_ins()
        if isinstance(vocab, dict) and all(isinstance(vocab.get(c), int) for c in table.values()):
            self._ids = [vocab[table[byte]] for byte in range(256)]
            self._bytes = {number: byte for byte, number in enumerate(self._ids)}

    def encode(self, text):
        """Ids of a text."""
        if self._ids is None:
            raise ModelError("this model's tokenizer is not byte-level without merges: use --prompt-ids")
        return [self._ids[byte] for byte in text.encode()]

    def decode(self, ids):
        """Text of ids, up to the first that is no byte; or the ids."""
        if self._ids is None:
            return ",".join(map(str, ids))
        found = []
        for number in ids:
            if number not in self._bytes:
                break
            found.append(self._bytes[number])
        return bytes(found).decode(errors="replace")
