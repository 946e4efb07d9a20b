"""Computes which tokens a grammar allows, for Verbatim: server/text/grammar_process.h starts it and speaks to it.

A line of JSON comes in; a kind and a size go out (`mask N`), a line, and N bytes behind it. First {"tokens", "special",
"ends", "vocab_size"}: the tokens' bytes in hexadecimal, by id; the ids of special and of end tokens; how many ids the
model has: `ready 0`, or `failed N` and why, where the library is not there. Then
{"start": n, "grammar": text, "tokens": ids}  sequence n begins, or goes on behind these tokens: the next token's mask
{"take": [[n, id], ..]}                       each sequence has one more token: of each in turn the next token's mask
{"stop": n}                                   nothing goes out
A mask is a bit for each id, the lowest bit of a byte first. `refused N` stands in the place of a mask, with the reason,
for the client. A grammar's text is its kind, a space, and what it is: json_schema, regex, choice (a JSON list of
texts), grammar (Lark, or GBNF).
"""
import collections
import json
import re
import sys

# Between the parts of JSON: without an end, a model might write nothing else.
WHITESPACE = {"whitespace_pattern": r"[ \t\n\r]{0,20}"}
# A text that must come is any of the tokens that it can be made of, so that masks follow from the tokens' bytes alone.
OPTIONS = '%llguidance {"no_forcing": true}\n'
MAX_REASON = 500
MAX_KEPT = 16  # grammars that were made last
MAX_KEPT_CHARACTERS = 1 << 16  # of each: what it takes grows with them


class Vocabulary:
    """What the library wants of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, first):
        self.tokens = [bytes.fromhex(token) for token in first["tokens"]]
        self.tokens += [b""] * (first["vocab_size"] - len(self.tokens))
        self.special_token_ids = first["special"]
        self.eos_token_id = first["ends"][0]
        special = set(self.special_token_ids)
        self.ids = {token: i for i, token in enumerate(self.tokens) if token and i not in special}
        self.longest = max(map(len, self.ids), default=0)

    def __call__(self, text):
        """The longest tokens from the front. Asked for where a client's grammar wants forced texts after all."""
        rest, ids = text if isinstance(text, bytes) else text.encode(), []
        while rest:
            size = next((n for n in range(min(self.longest, len(rest)), 0, -1) if rest[:n] in self.ids), 0)
            if size == 0:
                break
            ids.append(self.ids[rest[:size]])
            rest = rest[size:]
        return ids


def compiled(guidance, grammar):
    kind, _, text = grammar.partition(" ")
    if kind == "json_schema":
        schema = json.loads(text)
        if not isinstance(schema, dict):
            if schema is not True:
                raise ValueError("no text can meet the schema " + json.dumps(schema)[:MAX_REASON])
            schema = {}
        schema["x-guidance"] = WHITESPACE | schema.get("x-guidance", {})
        lark = "start: %json " + json.dumps(schema)
    elif kind == "choice":
        lark = "start: " + " | ".join(json.dumps(one, ensure_ascii=False) for one in json.loads(text))
    elif kind == "regex":
        lark = json.loads(guidance.LLMatcher.grammar_from_regex(text))["grammars"][0]["lark_grammar"]
    else:
        lark = guidance.grammar_from("grammar", text)
    return guidance.LLMatcher.grammar_from_lark(OPTIONS + lark)


def answer(kind, said=b""):
    sys.stdout.buffer.write(b"%s %d\n" % (kind, len(said)) + said)


def reason(text, is_grammar=False):
    """The library's, without its parser's state, its listing, and places in what the client did not write."""
    if text.startswith("NoExtension"):
        return b"no text can meet it"
    text = re.split(r"<state>|\n *1 \| %llguidance", text)[0]
    place = (lambda found: f"at {int(found[1]) - 1}({found[2]}): ") if is_grammar else ""
    text = re.sub(r"^at (\d+)\((\d+)\): ", place, text)
    return " ".join(text.split())[:MAX_REASON].encode(errors="replace")


class Sequences:
    def __init__(self, guidance, first):
        self.guidance = guidance
        self.tokenizer = guidance.LLTokenizer(Vocabulary(first), n_vocab=first["vocab_size"], eos_token=first["ends"])
        self.limits = guidance.LLParserLimits(max_lexer_states=50_000)
        self.running = {}
        self.made = collections.OrderedDict()  # by their texts, at their beginnings; used last at the end

    def matcher_of(self, grammar):
        """At its beginning. A copy costs a hundredth of what making it costs, and gives the same masks."""
        if grammar in self.made:
            self.made.move_to_end(grammar)
            return self.made[grammar].deep_copy()
        matcher = self.guidance.LLMatcher(self.tokenizer, compiled(self.guidance, grammar), log_level=0,
                                          limits=self.limits)
        if len(grammar) <= MAX_KEPT_CHARACTERS and not matcher.is_error():
            self.made[grammar] = matcher.deep_copy()
            if len(self.made) > MAX_KEPT:
                self.made.popitem(last=False)
        return matcher

    def start(self, number, grammar, tokens):
        try:
            matcher = self.matcher_of(grammar)
        except (ValueError, TypeError, RecursionError) as problem:
            return answer(b"refused", reason(str(problem)))
        self.running[number] = matcher
        if tokens:
            matcher.consume_tokens(tokens)
        return self.say_mask(matcher, grammar.startswith("grammar "))

    def take(self, number, token):
        matcher = self.running.get(number)
        if matcher is None:
            return answer(b"refused", b"it was refused before")
        matcher.consume_token(token)
        return self.say_mask(matcher)

    @staticmethod
    def say_mask(matcher, is_grammar=False):
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        if matcher.is_error():
            return answer(b"refused", reason(matcher.get_error(), is_grammar))
        if matcher.is_stopped() and not matcher.is_accepting():
            return answer(b"refused", reason(matcher.stop_reason()))
        return answer(b"mask", mask)

    def obey(self, command):
        if "start" in command:
            self.start(command["start"], command["grammar"], command["tokens"])
        elif "take" in command:
            for number, token in command["take"]:
                self.take(number, token)
        else:
            self.running.pop(command["stop"], None)


def main():
    lines = open(0, "rb", buffering=1 << 20)
    first = json.loads(lines.readline())
    try:
        import llguidance
        sequences = Sequences(llguidance, first)
    except BaseException as problem:  # whatever it is, it is the answer
        answer(b"failed", f"{type(problem).__name__}: {problem}"[:MAX_REASON].encode(errors="replace"))
        return sys.stdout.buffer.flush()
    answer(b"ready")
    sys.stdout.buffer.flush()
    for line in lines:
        sequences.obey(json.loads(line))
        sys.stdout.buffer.flush()


main()
