"""json_schema.py PROGRAM ENVIRONMENT: JSON Schema, keyword by keyword (json_schema_cases.json): the process of grammars
lets through, token by token, what is valid, and nothing that is not; what it does not know is a 400. Where the package
jsonschema is installed, it is asked for the cases' truth as well."""

import json
import pathlib
import subprocess
import sys

from served import Served, module_of, program

module_of("llguidance", sys.argv[2])
try:
    import jsonschema
except ImportError:
    jsonschema = None

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
END = 0


def byte_alphabet():
    """The characters in which byte-level tokenizers write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def vocabulary():
    """The tokens' bytes, by id, and the ids of special tokens."""
    tokenizer = json.loads((ROOT / "server/models/tiny-python/tokenizer.json").read_text())
    special = {added["id"]: added["content"].encode() for added in tokenizer["added_tokens"]}
    bytes_of = byte_alphabet()
    tokens = {i: bytes(map(bytes_of.get, text)) for text, i in tokenizer["model"]["vocab"].items() if i not in special}
    return [(tokens | special).get(i, b"") for i in range(1 + max(tokens | special))], sorted(special)


class Grammars:
    """The process, spoken to as server/text/grammar_process.cc speaks to it."""

    def __init__(self):
        self.tokens, self.special = vocabulary()
        self.ids = {token: i for i, token in enumerate(self.tokens) if token and i not in self.special}
        self.process = subprocess.Popen([sys.executable, "-I", "-B", ROOT / "server/text/run_grammars.py"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tell({"tokens": [token.hex() for token in self.tokens], "special": self.special, "ends": [END],
                   "vocab_size": len(self.tokens)})
        assert self.answer() == ("ready", b"")

    def tell(self, line):
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        kind, size = self.process.stdout.readline().decode().split()
        return kind, self.process.stdout.read(int(size))

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0

    def tokenized(self, text, longest):
        rest = text.encode()
        while rest:
            size = next(n for n in range(min(longest, len(rest)), 0, -1) if rest[:n] in self.ids)
            yield self.ids[rest[:size]]
            rest = rest[size:]

    def takes(self, schema, text, longest):
        """Whether every token of the text is allowed in its place, and then its end."""
        self.tell({"start": 1, "grammar": "json_schema " + json.dumps(schema), "tokens": []})
        kind, mask = self.answer()
        assert kind == "mask", (schema, mask)
        allowed = True
        for token in [*self.tokenized(text, longest), END]:
            allowed = bool(mask[token // 8] >> token % 8 & 1)
            if not allowed or token == END:
                break
            self.tell({"take": [[1, token]]})
            kind, mask = self.answer()
            assert kind == "mask", (schema, text, mask)
        self.tell({"stop": 1})
        return allowed

    def refuses(self, schema):
        self.tell({"start": 2, "grammar": "json_schema " + json.dumps(schema), "tokens": []})
        kind, said = self.answer()
        self.tell({"stop": 2})
        return kind == "refused" and said.decode()


def check_truth(case):
    # Of formats the package knows those alone for which others are installed.
    if jsonschema is None or case["keyword"] == "format":
        return
    validator = jsonschema.Draft202012Validator(case["schema"])
    for kind in ("valid", "invalid"):
        for value in case[kind]:
            assert validator.is_valid(value) == (kind == "valid"), (case["keyword"], value)


def check_kept(grammars, case):
    check_truth(case)
    for kind in ("valid", "invalid"):
        for value in case[kind]:
            for text in (json.dumps(value, ensure_ascii=False, separators=(",", ":")),
                         json.dumps(value, ensure_ascii=False)):
                for longest in (1, 100):
                    taken = grammars.takes(case["schema"], text, longest)
                    assert taken == (kind == "valid"), (case["keyword"], case["schema"], text, longest, taken)


def check_refused(server, case):
    asked = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 4,
             "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": case["schema"]}}}
    status, answer = server.ask("/v1/chat/completions", asked)
    assert status == 400, (case, status, answer)
    assert answer["error"]["param"] == "response_format.json_schema.schema", answer


def main():
    cases = json.loads((HERE / "json_schema_cases.json").read_text())
    grammars = Grammars()
    for case in cases["kept"]:
        check_kept(grammars, case)
    for case in cases["refused"]:
        assert grammars.refuses(case["schema"]), case
    grammars.close()
    with Served(program(), "--model", str(ROOT / "server/models/tiny-python"), "--grammar-python",
                sys.executable) as server:
        for case in cases["refused"]:
            check_refused(server, case)
    num_values = sum(len(case[kind]) for case in cases["kept"] for kind in ("valid", "invalid"))
    print(f"{len(cases['kept'])} schemas of {len({case['keyword'] for case in cases['kept']})} keywords, {num_values} "
          f"values; {len(cases['refused'])} schemas are refused" + ("" if jsonschema else "; jsonschema is not here"))


main()
