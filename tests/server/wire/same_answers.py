"""same_answers.py PROGRAM [OTHERS]: the same conversation, alone and among others that fork, disconnect and ask again,
cached and not, through sockets and a model that computes: the same bytes."""

import http.client
import json
import sys
import threading
import time

from served import Served, program


def answer_bytes(server, conversation, use_cache):
    """The texts of three turns, as bytes of JSON."""
    messages, texts = [], []
    for index, said in enumerate(("Write a function that adds.", "Now one that subtracts.", "And a test.")):
        messages.append({"role": "user", "content": said})
        body = {"messages": messages, "conversation_id": conversation, "use_cache": use_cache, "seed": 40 + index,
                "temperature": 0.8, "max_tokens": 24}
        status, answer = server.ask("/v1/chat/completions", body)
        assert status == 200, answer
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == 0 if not use_cache else cached > 0 or index == 0, f"turn {index} reused {cached} tokens"
        texts.append(answer["choices"][0]["message"]["content"])
        messages.append({"role": "assistant", "content": texts[-1]})
    return json.dumps(texts).encode()


def disturb(server, number, over, counts):
    """Asks, hangs up, forks and asks again, until it is over; counts what was answered."""
    address = server.base.removeprefix("http://")
    turn = 0
    while not over.is_set():
        turn += 1
        name = f"other {number % 7 if number % 4 == 0 else number}"  # some want to write to the same one
        body = json.dumps({"messages": [{"role": "user", "content": f"{number} {turn}"}], "conversation_id": name,
                           "stream": turn % 2 == 0, "max_tokens": 8, "seed": turn})
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("POST", "/v1/chat/completions", body)
        if turn % 3 != 0:
            answer = connection.getresponse()
            counts[number] += answer.status == 200
            answer.read()
        connection.close()
        if turn % 4 == 0:
            server.ask("/v1/conversations/" + name.replace(" ", "%20") + "/fork", {"to": f"{name} {turn}"})


def main():
    num_others = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with Served(program(), cache="1GiB") as server:  # room for what all of them leave
        right = answer_bytes(server, "alone", True)
        assert answer_bytes(server, "alone, not cached", False) == right
        over, counts = threading.Event(), [0] * num_others
        others = [threading.Thread(target=disturb, args=(server, number, over, counts)) for number in range(num_others)]
        for other in others:
            other.start()
        try:
            while sum(counts) < num_others:
                time.sleep(0.01)
            before = sum(counts)
            assert answer_bytes(server, "among others", True) == right
            assert answer_bytes(server, "among others, not cached", False) == right
            meanwhile = sum(counts) - before
            assert meanwhile >= num_others, f"{num_others} others had {meanwhile} answers meanwhile"
        finally:
            over.set()
            for other in others:
                other.join()
    print(f"{num_others} others had {meanwhile} answers meanwhile: the same {len(right)} bytes")


if __name__ == "__main__":
    main()
