"""Finds the mutants of a C++ source, and writes the copy that has all of them, each behind its number.

Works on tokens, statement by statement. What a statement becomes:

    return a < b;        ->  { if (MUTANT(1)) return a <= b; else return a < b; }
    x += y;              ->  { if (!MUTANT(2)) { if (MUTANT(3)) x = y; else x += y; } }
    int z = x + 1;       ->  int z = MUTANT(4) ? (x - 1) : MUTANT(5) ? (x + 2) : (x + 1);
    if (a && b) ...      ->  if (MUTANT(6) != static_cast<bool>(MUTANT(7) ? (a || b) : (a && b))) ...
    f(x);                ->  { if (!MUTANT(8)) f(x); }
    void g() { ... }     ->  void g() { if (MUTANT(9)) return; ... }

Whole statements are repeated with one token changed, so that little has to be known of operands, types and precedence.
What does not compile is left out (mutate.py tries). Assertions (CHECK and functions called verify) are not changed:
they are what is to find the mutants.
"""

import re

import cpp_tokens

SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
    "+=": "=", "-=": "=",
}
SWAPPED_NAMES = {"true": "false", "false": "true", "min": "max", "max": "min"}
KINDS = {
    "<": "comparison", "<=": "comparison", ">": "comparison", ">=": "comparison", "==": "comparison",
    "!=": "comparison", "&&": "and/or", "||": "and/or", "+": "plus/minus", "-": "plus/minus", "+=": "update",
    "-=": "update", "true": "true/false", "false": "true/false", "min": "min/max", "max": "min/max",
}
# They begin statements in which nothing is changed.
LEFT_ALONE = {"using", "static_assert", "typedef", "template", "constexpr", "friend", "goto", "throw", "extern"}
MACRO = re.compile(r"[A-Z][A-Z0-9_]+")  # CHECK, ASSIGN_OR_RETURN
NOT_A_VALUE = {"const", "auto", "static", "delete", "new", "else", "co_return"}


def end_of_template(words):
    """Behind `template <...>`."""
    depth = 0
    for i, word in enumerate(words):
        depth += (word == "<") - (word == ">")
        if word == ">" and depth == 0:
            return i + 1
    return len(words)


class Mutant:
    def __init__(self, kind, line, before, after):
        self.kind = kind
        self.line = line
        self.before = before
        self.after = after


class Edit:
    """Text [begin, end) becomes pieces of (text, mutants that it is about)."""

    def __init__(self, begin, end, pieces):
        self.begin = begin
        self.end = end
        self.pieces = pieces


class Source:
    """One source: its statements are walked once, and every mutant is an edit."""

    def __init__(self, text):
        self.text = text
        self.tokens = cpp_tokens.tokens_of(text)
        self.pairs = cpp_tokens.pairs_of(self.tokens)
        self.mutants = []
        self.edits = []
        self.container(0, len(self.tokens))

    # --- what stands where

    def is_at(self, i, text):
        return i < len(self.tokens) and self.tokens[i].text == text

    def span(self, begin, end):
        """The text of tokens [begin, end) on one line."""
        if begin == end:
            return ""
        text = self.text[self.tokens[begin].begin:self.tokens[end - 1].end]
        return re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", text))

    def past(self, i):
        """Behind the token, or behind the bracket that closes it."""
        return self.pairs.get(i, i) + 1

    def find(self, begin, end, wanted):
        """The first of the wanted tokens outside inner brackets, or `end`."""
        i = begin
        while i < end:
            if self.tokens[i].kind == "operator" and self.tokens[i].text in wanted:
                return i
            i = self.past(i)
        return end

    # --- containers: what is outside functions

    def container(self, begin, end):
        i = first = begin
        while i < end:
            token = self.tokens[i].text
            if token in (";", "}"):
                first = i + 1
            elif token == "{" and not self.is_member_initialiser(first, i):
                self.braces(first, i)
                first = self.past(i)
            i = self.past(i)

    def is_function(self, head):
        follows = head[-1] in (")", "}", "const", "override", "noexcept", "final") if head else False
        return "(" in head and "=" not in head and (follows or "->" in head)

    def is_member_initialiser(self, first, i):
        """The brace at i, after `Constructor(...) : a_(x), b_`."""
        head = [token.text for token in self.tokens[first:i]]
        return "(" in head and ":" in head[head.index("("):] and self.tokens[i - 1].kind == "name"

    def braces(self, first, i):
        """What begins with tokens [first, i) and the brace at i: names, a function, a type or a value."""
        head = [token.text for token in self.tokens[first:i]]
        if "namespace" in head:
            self.container(i + 1, self.pairs[i])
        elif self.is_function(head):
            if "constexpr" not in head and "consteval" not in head:
                self.function(head, i)
        elif {"class", "struct", "union"} & set(head) and "enum" not in head and "=" not in head:
            self.container(i + 1, self.pairs[i])

    def function(self, head, i):
        """The function with the body at i, after `head`."""
        words = head[:head.index("(")]
        for end in (":", "]"):  # of an access label or an attribute
            if end in words:
                words = words[len(words) - words[::-1].index(end):]
        if words and words[0] == "template":
            words = words[end_of_template(words):]
        words = [word for word in words if word not in ("static", "inline", "virtual")]
        if words and words[-1].startswith("verify"):
            return
        returns = words[0] if words and words[0] in ("void", "bool") and "*" not in words else ""
        if returns == "void" and self.pairs[i] > i + 1:
            mutant = self.mutant("early return", i, " ".join(words), "returns at once")
            self.insert(self.tokens[i].end, f" if (MUTANT({mutant})) return;", mutant)
        self.block(i, returns)

    # --- statements

    def block(self, i, returns):
        end = self.pairs[i]
        i += 1
        while i < end:
            i = self.statement(i, returns)

    def statement(self, i, returns):
        """Walks the statement at i; the index behind it."""
        token = self.tokens[i].text
        if token == "{":
            self.block(i, returns)
            return self.pairs[i] + 1
        if token in ("case", "default"):
            return self.find(i, len(self.tokens), ":") + 1
        if token in ("if", "while", "switch", "for"):
            return self.controlled(i, returns)
        if token in ("else", "do"):
            return self.statement(i + 1, returns)
        if token in ("struct", "class", "union", "enum"):
            return self.local_type(i)
        end = self.find(i, len(self.tokens), ";")
        self.simple(i, end, returns)
        return end + 1

    def local_type(self, i):
        end = self.find(i, len(self.tokens), ";")
        brace = self.find(i, end, "{")
        if brace < end and self.tokens[i].text != "enum":
            self.container(brace + 1, self.pairs[brace])
        return end + 1

    def controlled(self, i, returns):
        word = self.tokens[i].text
        i += 1
        if self.is_at(i, "constexpr"):
            i += 1
            return self.statement(self.pairs[i] + 1, returns)
        close = self.pairs[i]
        if word == "for":
            self.loop_head(i + 1, close)
        elif word != "switch":
            first_part = self.find(i + 1, close, ";")
            if first_part < close:
                self.declaration(i + 1, first_part)
            self.condition(first_part + 1 if first_part < close else i + 1, close)
        if word == "while" and self.is_at(close + 1, ";"):
            return close + 2
        return self.statement(close + 1, returns)

    def loop_head(self, begin, end):
        first = self.find(begin, end, ";")
        if first == end:  # over a range
            self.lambdas(begin, end)
            return
        second = self.find(first + 1, end, ";")
        self.declaration(begin, first)
        if second == end:  # over a range, behind a declaration
            self.lambdas(first + 1, end)
            return
        self.condition(first + 1, second)

    def condition(self, begin, end):
        if begin == end:
            return
        equals = self.find(begin, end, "=")
        if equals < end:  # declares what it asks
            self.value(equals + 1, end)
            return
        mutant = self.mutant("condition", begin, self.span(begin, end), f"!({self.span(begin, end)})")
        self.insert(self.tokens[begin].begin, f"MUTANT({mutant}) != static_cast<bool>(", mutant)
        self.value(begin, end)
        self.insert(self.tokens[end - 1].end, ")", mutant)

    def simple(self, begin, end, returns):
        """A statement that ends with a semicolon at `end`."""
        if begin >= end or self.tokens[begin].text in LEFT_ALONE or MACRO.fullmatch(self.tokens[begin].text):
            return
        if self.tokens[begin].text == "return":
            self.returned(begin, end, returns)
        elif self.is_expression(begin, end):
            self.expression(begin, end)
        else:
            self.declaration(begin, end)

    def declaration(self, begin, end):
        """Of several that are declared, the first is changed."""
        equals = self.find(begin, end, "=")
        if equals < end and not self.is_at(equals + 1, "{"):
            self.value(equals + 1, self.find(equals + 1, end, ","))
        else:
            self.lambdas(begin, end)

    def returned(self, begin, end, returns):
        if returns == "bool" and begin + 1 < end:
            mutant = self.mutant("condition", begin, self.span(begin + 1, end), f"!({self.span(begin + 1, end)})")
            self.insert(self.tokens[begin].end, f" MUTANT({mutant}) != static_cast<bool>(", mutant)
            self.value(begin + 1, end)
            self.insert(self.tokens[end - 1].end, ")", mutant)
        else:
            self.whole(begin, end)

    def is_expression(self, begin, end):
        """A call, an assignment or an increment, as against a declaration: no two names side by side."""
        if self.tokens[begin].text in ("break", "continue"):
            return True
        if self.tokens[begin].text in NOT_A_VALUE:
            return False
        for i in range(begin, end - 1):
            token = self.tokens[i]
            if token.text in ("=", "+=", "-=", "(", "["):
                break
            joined = token.kind == "name" or token.text in (">", "&", "*")
            if token.text == "<" or (joined and self.tokens[i + 1].kind == "name"):
                return False
        return any(token.text in ("=", "+=", "-=", "(", "++", "--") for token in self.tokens[begin:end])

    def expression(self, begin, end):
        mutant = self.mutant("deletion", begin, self.span(begin, end), "")
        self.insert(self.tokens[begin].begin, f"{{ if (!MUTANT({mutant})) ", mutant)  # no else may go astray
        self.whole(begin, end)
        self.insert(self.tokens[end].end, " }", mutant)

    # --- variants

    def whole(self, begin, end):
        """Statement [begin, end) once more for each token that can be another."""
        variants = self.variants(begin, end)
        if not variants:
            return
        pieces = [("{\n", [])]
        for mutant, text in variants:
            pieces.append((f"if (MUTANT({mutant})) {text}; else\n", [mutant]))
        everyone = [mutant for mutant, _ in variants]
        original = self.text[self.tokens[begin].begin:self.tokens[end].end]
        pieces.append((original + " }", everyone))
        self.edits.append(Edit(self.tokens[begin].begin, self.tokens[end].end, pieces))

    def value(self, begin, end):
        """The same of a value inside a statement."""
        variants = self.variants(begin, end)
        if not variants:
            return
        pieces = [("\n", [])]
        for mutant, text in variants:
            pieces.append((f"MUTANT({mutant}) ? ({text}) :\n", [mutant]))
        everyone = [mutant for mutant, _ in variants]
        original = self.text[self.tokens[begin].begin:self.tokens[end - 1].end]
        pieces.append((f"({original})", everyone))
        self.edits.append(Edit(self.tokens[begin].begin, self.tokens[end - 1].end, pieces))

    def variants(self, begin, end):
        """(mutant, text) for each token of [begin, end) that can be another. A function in it is walked instead."""
        if self.lambdas(begin, end):
            return []
        found = []
        for i in range(begin, end):
            for kind, text in self.others(i):
                before = self.span(begin, i) + self.gap(i, begin)
                after = self.gap(i + 1, begin) + self.span(i + 1, end)
                mutant = self.mutant(kind, i, self.tokens[i].text, text, self.span(begin, end))
                found.append((mutant, before + text + after))
        question = self.find(begin, end, "?")
        first = begin + 1 if self.tokens[begin].text == "return" else begin
        if question < end and self.find(begin, question, ("=", "+=", "-=")) == question:
            condition = self.span(first, question)
            mutant = self.mutant("condition", begin, condition, f"!({condition})")
            found.append((mutant, f"{self.span(begin, first)} !({condition}) {self.span(question, end)}"))
        return found

    def gap(self, i, begin):
        """A space where the source has any between token i - 1 and token i."""
        if i <= begin or i >= len(self.tokens) or self.tokens[i - 1].end == self.tokens[i].begin:
            return ""
        return " "

    def others(self, i):
        """(kind, text) of what the token can be instead."""
        token = self.tokens[i]
        if token.kind == "number":
            match = re.fullmatch(r"(\d+)([uUlL]*)", token.text.replace("'", ""))
            if not match or (match[1] != "0" and match[1].startswith("0")):
                return []
            value = int(match[1])
            least = [] if value == 0 and "u" in match[2].lower() else [f"{value - 1}{match[2]}"]
            return [("constant", text) for text in [f"{value + 1}{match[2]}"] + least]
        if token.kind == "name":
            swapped = SWAPPED_NAMES.get(token.text)
            if swapped and (token.text in ("true", "false") or self.tokens[i - 1].text == "::"):
                return [(KINDS[token.text], swapped)]
            return []
        if token.text == "!":
            return [("condition", "!!")]  # of the same type, which the other branch of a choice would go by
        if token.text in SWAPPED and token.spaced and token.kind == "operator":
            return [(KINDS[token.text], SWAPPED[token.text])]
        return []

    def lambdas(self, begin, end):
        """Walks the bodies of the functions in [begin, end); whether there are any."""
        found = False
        i = begin
        while i < end:
            body = self.lambda_body(i, end) if self.tokens[i].text == "[" else None
            if body is None:
                i += 1
                continue
            self.block(body, "")
            found = True
            i = self.pairs[body] + 1
        return found

    def lambda_body(self, i, end):
        before = self.tokens[i - 1]
        if before.kind == "name" and before.text != "return" or before.text in (")", "]", "["):
            return None
        i = self.pairs[i] + 1
        while i < end and self.tokens[i].text not in ("{", ",", ";", ")"):
            i = self.past(i)
        return i if self.is_at(i, "{") and i < end else None

    # --- edits

    def mutant(self, kind, i, before, after, around=None):
        line = cpp_tokens.line_of(self.text, self.tokens[i].begin)
        if around is not None:
            before = f"{before} in {around}"
        self.mutants.append(Mutant(kind, line, before, after))
        return len(self.mutants) - 1

    def insert(self, at, text, mutant):
        self.edits.append(Edit(at, at, [(text, [mutant])]))


def copy_of(source, first_number, left_out):
    """The text with every mutant but those in `left_out`, and for each of its lines the mutants that it is about.

    Mutant i of the source has the number first_number + i. A number that is left out is unused.
    """
    def numbered(text):
        return re.sub(r"MUTANT\((\d+)\)",
                      lambda match: "false" if int(match[1]) in left_out
                      else f"::verbatim::mutation::is_on({first_number + int(match[1])})", text)

    out = ['#include "tests/mutation/mutant.h"\n']
    about = {}
    line = 2
    at = 0
    for edit in sorted(source.edits, key=lambda edit: edit.begin):
        out.append(source.text[at:edit.begin])
        line += out[-1].count("\n")
        pieces = edit.pieces
        if edit.begin < edit.end and left_out.issuperset(pieces[-1][1]):
            pieces = [(source.text[edit.begin:edit.end], [])]
        for i, (text, mutants) in enumerate(pieces):
            live = [mutant for mutant in mutants if mutant not in left_out]
            if 0 < i < len(pieces) - 1 and not live:
                continue  # a variant that does not compile
            out.append(numbered(text))
            for number in range(line, line + out[-1].count("\n") + 1):
                about.setdefault(number, set()).update(live)
            line += out[-1].count("\n")
        at = edit.end
    out.append(source.text[at:])
    return "".join(out), about
