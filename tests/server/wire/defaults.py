"""defaults.py PROGRAM: `verbatim serve` without a flag but the port, and with a cache that is small: every request
without max_tokens is answered, and what the cache holds is said at the start."""

import os
import socket
import sys
import tempfile

from served import Served, program

QUESTION = {"role": "user", "content": "Write a function that adds two numbers."}


def said_by(errors):
    errors.seek(0)
    return errors.read()


def chat(server, messages, **more):
    status, answer = server.ask("/v1/chat/completions", {"messages": messages, "temperature": 0, **more})
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_defaults(folder):
    with tempfile.TemporaryFile("w+") as errors:
        env = {**os.environ, "XDG_STATE_HOME": folder}
        with Served(program(), bare=True, env=env, errors=errors) as server:
            text, cached = chat(server, [QUESTION])
            assert text and cached == 0, (text, cached)
            text = text[:200]  # it may have gone on to the end of its room
            history = [QUESTION, {"role": "assistant", "content": text}, {"role": "user", "content": "Again."}]
            # A client that says of no conversation that it goes on.
            _, cached = chat(server, history, max_tokens=4)
            assert cached > 0, "the whole history was sent, and nothing of it was found"
            _, cached = chat(server, history, max_tokens=4, cache_salt="another")
            assert cached == 0, cached
        said = said_by(errors)
    assert "the cache holds " in said and "warning" not in said, said
    assert os.listdir(os.path.join(folder, "verbatim")), "the ledger has its place"


def check_small_cache():
    for cache, is_warned in (("1MiB", True), ("12MiB", False)):
        with tempfile.TemporaryFile("w+") as errors:
            with Served(program(), cache=cache, errors=errors) as server:
                text, _ = chat(server, [QUESTION])
                assert text
                length = server.ask("/v1/models")[1]["data"][0]["max_model_len"]
                status, refused = server.ask("/v1/completions", {"prompt": [7] * length, "max_tokens": 1})
                assert status == 400 and refused["error"]["param"] == "prompt", refused
            said = said_by(errors)
        assert ("nothing can be reused" in said) == is_warned, said
        assert (length < 4096) == ("tokens at most" in said), said
        print(f"{cache}: max_model_len {length}; {said.strip()}")


def check_address():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return  # the machine has no IPv6
    with Served(program(), "--host", "::1") as server:
        assert server.base.startswith("http://[::1]:"), server.base
        assert server.ask("/health")[0] == 200


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_defaults(folder)
    check_small_cache()
    check_address()


if __name__ == "__main__":
    sys.exit(main())
