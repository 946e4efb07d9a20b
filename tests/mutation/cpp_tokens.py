"""C++ as tokens with their places: enough to find statements in sources that .clang-format has laid out."""

import re

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*)
      | (?P<raw>R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)")
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<operator><=>|->\*|<<=|>>=|\.\.\.|::|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|.)""",
    re.X | re.S | re.M)

OPENING = {"(": ")", "[": "]", "{": "}"}


class Token:
    __slots__ = ("kind", "text", "begin", "end", "spaced")

    def __init__(self, kind, text, begin):
        self.kind = kind
        self.text = text
        self.begin = begin
        self.end = begin + len(text)
        self.spaced = False  # there is space on both sides: of an operator, that it is a binary one

    def __repr__(self):
        return self.text


def tokens_of(text):
    """Every token but space, comments and preprocessor lines."""
    tokens = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        at = match.end()
        if match.lastgroup == "skip" or match.group("skip") is not None:
            continue
        kind = next(name for name in ("raw", "string", "char", "number", "name", "operator") if match.group(name))
        token = Token(kind, match.group(0), match.start())
        around = text[token.begin - 1:token.begin], text[token.end:token.end + 1]
        token.spaced = all(one.isspace() for one in around)
        tokens.append(token)
    return tokens


def pairs_of(tokens):
    """The index of the bracket that closes each ( [ and {."""
    pairs = {}
    open_at = []
    for i, token in enumerate(tokens):
        if token.kind != "operator":
            continue
        if token.text in OPENING:
            open_at.append(i)
        elif token.text in OPENING.values():
            begin = open_at.pop()
            if OPENING[tokens[begin].text] != token.text:
                raise ValueError(f"{tokens[begin].text} at {tokens[begin].begin} is closed by {token.text}")
            pairs[begin] = i
    return pairs


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
