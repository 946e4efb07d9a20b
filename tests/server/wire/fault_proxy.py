"""A proxy before a server of completions that plants one fault, or only the noise of an honest server.

    python3 fault_proxy.py UPSTREAM FAULT [PORT]

Faults: none, token-once-seen, stale-prefix, neighbours-token, cut-character, lost-last-chunk, noise; drafts (accepted
drafts in usage, and the answer as it is), one-draft-too-many (the same with another third token).
"""

import http.server
import json
import random
import sys
import threading
import urllib.error
import urllib.request

NOISE = 0.02  # nats, of a log-probability


class Faults:
    def __init__(self, upstream, fault, hides_fingerprint=True):
        self.upstream, self.fault, self.hides_fingerprint = upstream, fault, hides_fingerprint
        self.lock = threading.Lock()
        self.seen = {}  # the beginning of a prompt: how often
        self.running = 0
        self.last = None  # the last answer to another prompt

    def forward(self, path, body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.upstream + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers.get("Content-Type"), answer.read()
        except urllib.error.HTTPError as problem:
            return problem.code, problem.headers.get("Content-Type"), problem.read()

    def complete(self, asked):
        """The upstream's whole answer, with the fault in it."""
        prompt = asked.get("prompt", "")
        with self.lock:
            self.running += 1
            times = self.seen.get(prompt, 0)
            self.seen[prompt] = times + 1
        try:
            sent = {key: value for key, value in asked.items() if key not in ("stream", "stream_options")}
            if self.fault == "stale-prefix" and times:
                sent["prompt"] = prompt[3 * len(prompt) // 4 :]
            status, kind, data = self.forward("/v1/completions", json.dumps(sent).encode())
            if status != 200:
                return status, kind, data
            answer = json.loads(data)
            if self.hides_fingerprint:
                answer.pop("system_fingerprint", None)
            with self.lock:
                neighbours = self.running > 1
                previous = self.last
                self.last = answer["choices"][0]["text"]
            if self.fault == "token-once-seen" and times:
                self.change(answer, " zebra")
            if self.fault == "neighbours-token" and neighbours and previous:
                self.change(answer, previous[:4] + "~")
            if self.fault in ("drafts", "one-draft-too-many"):
                answer["usage"]["completion_tokens_details"] = {"accepted_prediction_tokens": 3}
            if self.fault == "one-draft-too-many":
                self.change(answer, " zebra")
            if self.fault == "noise":
                answer = self.noisy(asked, answer)
            return status, kind, answer
        finally:
            with self.lock:
                self.running -= 1

    @staticmethod
    def change(answer, token):
        """Another third token."""
        for choice in answer["choices"]:
            scores = choice.get("logprobs")
            if scores and len(scores["tokens"]) > 2:
                scores["tokens"][2] = token
                choice["text"] = "".join(scores["tokens"])
            elif len(choice["text"]) > 8:
                choice["text"] = choice["text"][:6] + token + choice["text"][6:]

    def noisy(self, asked, answer):
        """Log-probabilities with noise; at a near-tie either token, and what the server says behind it."""
        choice = answer["choices"][0]
        scores = choice.get("logprobs")
        if not scores:
            return answer
        is_joined = "".join(scores["tokens"]) == choice["text"]  # no character is two tokens
        for at, top in enumerate(scores["top_logprobs"]):
            for token in top:
                top[token] += random.gauss(0, NOISE)
            drawn = scores["tokens"][at]
            best = max(top, key=top.get)
            scores["token_logprobs"][at] = top.get(drawn, scores["token_logprobs"][at])
            if asked.get("temperature") != 0 or best == drawn or not is_joined:
                continue
            if "\ufffd" in best or best.startswith("token_id:"):
                continue
            # Noise has turned the order round: the rest is another one.
            text = "".join(scores["tokens"][:at]) + best
            left = asked.get("max_tokens", 16) - at - 1
            kept = {key: scores[key][: at + 1] for key in ("tokens", "token_logprobs", "top_logprobs")}
            kept["tokens"][at], kept["token_logprobs"][at] = best, top[best]
            if left > 0:
                more = dict(asked, prompt=asked["prompt"] + text, max_tokens=left)
                for key in ("stream", "stream_options"):
                    more.pop(key, None)
                status, _, data = self.forward("/v1/completions", json.dumps(more).encode())
                if status != 200:
                    return answer
                rest = self.noisy(more, json.loads(data))["choices"][0]
                for key in kept:
                    kept[key] = kept[key] + rest["logprobs"][key]
                choice["finish_reason"] = rest["finish_reason"]
                text += rest["text"]
            choice["text"], choice["logprobs"] = text, kept
            answer["usage"]["completion_tokens"] = len(kept["tokens"])
            return answer
        return answer

    def events(self, answer):
        """The answer as the pieces of a stream."""
        choice = answer["choices"][0]
        scores = choice.get("logprobs")
        texts = scores["tokens"] if scores else list(choice["text"])
        if scores and "".join(texts) != choice["text"]:  # a character is two tokens
            half = len(choice["text"]) // 2
            for text, some in ((choice["text"][:half], scores), (choice["text"][half:], None)):
                piece = {"index": 0, "text": text, "finish_reason": None, "logprobs": some}
                yield json.dumps({"choices": [piece]}).encode()
            texts = []
        for at, text in enumerate(texts):
            if self.fault == "lost-last-chunk" and at == len(texts) - 1:
                continue
            piece = {"index": 0, "text": text, "finish_reason": None}
            if scores:
                piece["logprobs"] = {key: scores[key][at : at + 1]
                                     for key in ("tokens", "token_logprobs", "top_logprobs")}
            data = json.dumps({"choices": [piece]}, ensure_ascii=False).encode()
            if self.fault == "cut-character" and at == 2:
                data = data.replace(b'"text": "', b'"text": "\xc3', 1)
            yield data
        yield json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": choice["finish_reason"]}]}).encode()
        yield json.dumps({"choices": [], "usage": answer["usage"]}).encode()
        yield b"[DONE]"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    faults = None

    def log_message(self, *_):
        pass

    def reply(self, status, kind, data):
        self.send_response(status)
        self.send_header("Content-Type", kind or "application/json")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(*self.faults.forward(self.path, None))

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/completions":
            return self.reply(*self.faults.forward(self.path, body))
        asked = json.loads(body)
        status, kind, answer = self.faults.complete(asked)
        if status != 200:
            return self.reply(status, kind, answer)
        if not asked.get("stream"):
            return self.reply(200, "application/json", json.dumps(answer).encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for data in self.faults.events(answer):
            self.wfile.write(b"data: " + data + b"\n\n")
            self.wfile.flush()
            threading.Event().wait(0.004)
        return None


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # a client that is gone


def start(upstream, fault, port=0, hides_fingerprint=True):
    """A running proxy: its server object, whose address is base_of(it)."""
    handler = type("Proxy", (Handler,), {"faults": Faults(upstream, fault, hides_fingerprint)})
    server = Quiet(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def base_of(server):
    return f"http://127.0.0.1:{server.server_address[1]}"


if __name__ == "__main__":
    running = start(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print(base_of(running), flush=True)
    threading.Event().wait()
