"""scoring.py PROGRAM: log probabilities of prompts with the trained model: the requests that lm-evaluation-harness
sends, in batches of every size; the same numbers as for generated tokens; behind a cached context; from a record."""

import subprocess
import sys
import tempfile
import threading

import multiple_choice
from served import Served, program


def ask(server, body):
    status, answer = server.ask("/v1/completions", body)
    assert status == 200, answer
    return answer


def tokens_of(server, text):
    return server.ask("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]


def endings(server):
    """[question][ending]: the tokens of context and ending, as the harness divides them, and how many of them are the
    context's."""
    found = []
    for question in multiple_choice.questions():
        context = tokens_of(server, question["context"])
        whole = [tokens_of(server, question["context"] + multiple_choice.DELIMITER + ending)
                 for ending in question["endings"]]
        found.append([(context + tokens[len(context):], len(context)) for tokens in whole])
    return found


def harness_request(prompts):
    """As local-completions of the harness (lm_eval 0.4.13) writes it."""
    return {"model": "tiny-python", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
            "echo": True}


def harness_sum(choice, num_context):
    """As it reads it: without the context's tokens and without the one that was generated."""
    lists = choice["logprobs"]
    sums, tops = lists["token_logprobs"][num_context:-1], lists["top_logprobs"][num_context:-1]
    return sum(sums), all(one == max(top.values()) for one, top in zip(sums, tops, strict=True))


def sums_in_batches(server, asked, size):
    """[ending]: in requests of `size` prompts each."""
    sums = []
    for first in range(0, len(asked), size):
        batch = asked[first:first + size]
        answer = ask(server, harness_request([tokens for tokens, _ in batch]))
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        assert len(choices) == len(batch), answer
        sums += [harness_sum(choice, num) for choice, (_, num) in zip(choices, batch, strict=True)]
    return sums


def check_harness(server):
    questions = endings(server)
    asked = [ending for question in questions for ending in question]
    alone = sums_in_batches(server, asked, 1)
    for size in (8, 16, len(asked)):
        assert sums_in_batches(server, asked, size) == alone, f"in batches of {size}"
    several = [None] * 3
    threads = [threading.Thread(target=lambda i=i: several.__setitem__(i, sums_in_batches(server, asked, 4)))
               for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert several == [alone] * 3, "several clients at a time"
    mine = [[sum_ for sum_, _ in alone[first:first + 4]] for first in range(0, len(alone), 4)]
    worst = multiple_choice.difference(mine, multiple_choice.their_sums())
    right = [sums.index(max(sums)) == one["label"]
             for sums, one in zip(mine, multiple_choice.questions(), strict=True)]
    print(f"{len(asked)} endings: the largest difference from Hugging Face's is {worst:.2g} of a sum")
    assert worst < multiple_choice.TOLERANCE, worst
    assert sum(right) / len(right) == multiple_choice.their_accuracies()["acc"], right
    return asked


def check_generated(server):
    """A generated token's log probability is the one with which it is scored, to the last bit."""
    prompt = tokens_of(server, "def add(a, b):")
    for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 7, "top_p": 0.9}):
        answer = ask(server, {"prompt": prompt, "max_tokens": 40, "logprobs": 2, "ignore_eos": True, **sampling})
        lists = answer["choices"][0]["logprobs"]
        text = answer["choices"][0]["text"]
        whole = prompt + tokens_of(server, "def add(a, b):" + text)[len(prompt):]
        if len(whole) != len(prompt) + 40:
            continue  # the text reads in other tokens
        scored = ask(server, {"prompt": whole, "max_tokens": 0, "logprobs": 2, "echo": True})["choices"][0]["logprobs"]
        for name in ("token_logprobs", "top_logprobs", "tokens"):
            assert scored[name][len(prompt):] == lists[name], name
        listed = ask(server, {"prompt": whole, "max_tokens": 0, "prompt_logprobs": 2})["choices"][0]["prompt_logprobs"]
        assert listed[0] is None and scored["token_logprobs"][0] is None
        for token, one, by_id in zip(whole[1:], scored["token_logprobs"][1:], listed[1:], strict=True):
            assert by_id[str(token)]["logprob"] == one and len(by_id) in (2, 3), by_id
        return
    raise AssertionError("no answer reads in its own tokens")


def check_context(server, asked):
    """The endings of a question behind its context: the context is computed once, and the numbers are the same."""
    tokens, num_context = max(asked, key=lambda one: one[1])
    whole = ask(server, {"prompt": tokens, "max_tokens": 0, "logprobs": 0, "echo": True})
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, whole["usage"]
    ask(server, {"prompt": tokens[:num_context], "max_tokens": 1})
    behind = ask(server, {"prompt": tokens, "max_tokens": 0, "logprobs": 0, "echo": True,
                          "logprob_start_len": num_context})
    assert behind["usage"]["prompt_tokens_details"]["cached_tokens"] == num_context - 1, behind["usage"]
    mine, all_ = (answer["choices"][0]["logprobs"]["token_logprobs"] for answer in (behind, whole))
    assert mine[num_context:] == all_[num_context:] and mine[:num_context] == [None] * num_context


def check_record(record):
    with Served(program(), "--record", record) as server:
        asked = [ending for question in endings(server)[:3] for ending in question]
        sums_in_batches(server, asked, 4)
        body = {"prompt": "def f", "max_tokens": 12, "min_p": 0.1, "logit_bias": {"30": 2}, "min_tokens": 9, "seed": 3}
        ask(server, {**body, "prompt_logprobs": 1})
    verified = subprocess.run([program(), "verify", record, "--format", "json"], capture_output=True, text=True,
                              timeout=300, check=False)
    assert verified.returncode == 0 and '"same"' in verified.stdout, verified


def main():
    with Served(program()) as server:
        asked = check_harness(server)
        check_generated(server)
        check_context(server, asked)
    with tempfile.TemporaryDirectory() as folder:
        check_record(folder + "/record")
    print("prompts are scored alike in every batch, behind a cache and from a record")


if __name__ == "__main__":
    sys.exit(main())
