// tests/support/grammar_script.h: a script in the place of run_grammars.py: it speaks with GrammarProcess as that one
// does, and a test says what its masks are.
#pragma once

#include <string>

namespace verbatim::tests {

// `answer`: the lines of a Python function of `grammar` (a text), `tokens` (the sequence's so far) and `vocab_size`,
// indented by four spaces. It returns say(b"mask", BITS) or say(b"refused", WHY).
inline std::string grammar_script(const char* answer) {
    return std::string(R"(
import json, os, sys, time
lines = open(0, "rb")
vocab_size = json.loads(lines.readline())["vocab_size"]
def say(kind, said=b""):
    sys.stdout.buffer.write(b"%s %d\n" % (kind, len(said)) + said)
    sys.stdout.buffer.flush()
def answer(grammar, tokens):
)") + answer +
           R"(
sequences = {}
say(b"ready")
for line in lines:
    command = json.loads(line)
    if "start" in command:
        sequences[command["start"]] = (command["grammar"], command["tokens"])
        answer(*sequences[command["start"]])
    elif "take" in command:
        for number, token in command["take"]:
            sequences[number][1].append(token)
            answer(*sequences[number])
    else:
        del sequences[command["stop"]]
)";
}

}  // namespace verbatim::tests
