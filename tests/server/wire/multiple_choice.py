"""Multiple-choice questions in the manner of hellaswag, of the text that ships with the model, and what
lm-evaluation-harness's Hugging Face backend says of them (multiple_choice.json, written by lm_harness.py)."""

import json
import pathlib

MODEL = pathlib.Path(__file__).parents[3] / "server" / "models" / "tiny-python"
THEIRS = pathlib.Path(__file__).with_name("multiple_choice.json")
NUM_QUESTIONS = 24
DELIMITER = "\n"  # between the context and an ending
# Matrices are multiplied in bf16 here and in binary32 there. As a part of 1 + |log likelihood|.
TOLERANCE = 0.02


def questions():
    """The beginning of a function, its next line, and next lines of three others."""
    codes = []
    with open(MODEL / "held_back_conversations.jsonl", encoding="utf-8") as lines:
        for line in lines:
            for message in json.loads(line)["messages"]:
                code = message["content"].splitlines()
                # The harness moves spaces at the end of a context to the ending, and takes no empty one.
                ends_well = len(code) > 4 and code[2].strip() and code[2] == code[2].rstrip() and code[3].strip()
                if message["role"] == "assistant" and ends_well:
                    codes.append(code)
    asked = []
    for i in range(NUM_QUESTIONS):
        endings = [codes[(i + 7 * j) % len(codes)][3] for j in range(4)]
        label = i % 4
        endings[0], endings[label] = endings[label], endings[0]
        asked.append({"context": "\n".join(codes[i][:3]), "endings": endings, "label": label})
    return asked


def their_sums():
    """[question][ending]: the log likelihood."""
    return [[sum_ for sum_, _ in sums] for sums in json.loads(THEIRS.read_text(encoding="utf-8"))["sums"]]


def their_accuracies():
    return json.loads(THEIRS.read_text(encoding="utf-8"))["accuracies"]


def difference(mine, theirs):
    """The largest one, as a part of 1 + |theirs|."""
    pairs = [(a, b) for some, others in zip(mine, theirs, strict=True) for a, b in zip(some, others, strict=True)]
    return max(abs(a - b) / (1 + abs(b)) for a, b in pairs)
