"""`verbatim audit` against a small HTTP server of this file: busy answers and their Retry-After, timeouts, HTTPS with a
self-signed certificate, Ctrl-C.

    audit_transport.py PROGRAM [TEST]
"""

import email.utils
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from served import program, skip

PROGRAM = program()


class Handler(http.server.BaseHTTPRequestHandler):
    """An answer that depends on the prompt alone, behind what a test puts before it."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # one packet

    def log_message(self, *_):
        pass

    def reply(self, status, body, headers=()):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/v1/models":
            return self.reply(200, {"data": [{"id": "small", "max_model_len": 512}]})
        return self.reply(404, {"error": {"message": "no such path"}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions" or asked.get("logprobs"):
            return self.reply(400, {"error": {"message": "not here"}})
        behaviour = self.server.behaviour
        if behaviour is not None and behaviour(self, asked):
            return None
        text = f" {sum(asked['prompt'].encode()) % 1000} words"
        usage = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": 2}
        self.server.num_answered += 1
        return self.reply(200, {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": usage})


class Small(http.server.ThreadingHTTPServer):
    """`with Small(behaviour) as server:`; `behaviour(handler, asked)` is true when it has replied."""

    daemon_threads = True

    def __init__(self, behaviour=None, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour, self.num_answered = behaviour, 0
        self.base = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # a client that goes

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def environment(**more):
    return dict({"PATH": os.environ["PATH"]}, **more)


def audit(base, *flags, budget=12, **more):
    command = [PROGRAM, "audit", base, "--format", "json", "--only", "again", "--budget", f"{budget},100000", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(**more))


def verdict_of(done):
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)["relations"][0]["verdict"]


def busy_once(status, retry_after):
    """The fifth request is refused the first time, and its second time has to come late enough."""
    times = {}

    def behaviour(handler, asked):
        seen = times.setdefault(json.dumps(asked), [])
        seen.append(time.monotonic())
        if len(times) != 5 or len(seen) > 1:
            return False
        behaviour.refused.append(seen)
        handler.reply(status, {"error": {"message": "busy"}}, [("Retry-After", retry_after())] if retry_after else [])
        return True

    behaviour.refused = []
    return behaviour


def check_busy(status, retry_after, least_s):
    behaviour = busy_once(status, retry_after)
    with Small(behaviour) as server:
        assert verdict_of(audit(server.base)) == "equal"
    (seen,) = behaviour.refused
    assert len(seen) > 1 and seen[1] - seen[0] >= least_s, (status, seen)


def test_busy_servers_are_asked_again():
    check_busy(429, lambda: "1", 0.99)
    # A date has whole seconds: two from now are more than one.
    check_busy(503, lambda: email.utils.formatdate(time.time() + 2, usegmt=True), 0.9)
    check_busy(503, None, 0.99)


def test_a_long_wait_is_not_waited_for():
    def behaviour(handler, _):
        handler.reply(429, {"error": {"message": "come back tomorrow"}}, [("Retry-After", "86400")])
        return True

    with Small(behaviour) as server:
        began = time.monotonic()
        done = audit(server.base)
        assert done.returncode == 3 and "HTTP 429: come back tomorrow" in done.stderr, done
        assert time.monotonic() - began < 30


def test_a_request_without_an_answer_times_out():
    gone = threading.Event()

    def behaviour(_, asked):
        if "Name three colours" in asked["prompt"]:
            return False
        gone.wait(60)
        return True

    with Small(behaviour) as server:
        done = audit(server.base, "--timeout", "0.3", budget=1)
        gone.set()
    assert done.returncode == 5, done
    assert "--timeout gives a request more time" in done.stdout, done.stdout


def make_certificate(folder):
    names = [os.path.join(folder, name) for name in ("certificate.pem", "key.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
               "-addext", "subjectAltName=IP:127.0.0.1", "-out", names[0], "-keyout", names[1]]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        skip("no openssl that makes a certificate: apt-get install openssl")
    return names


def test_a_self_signed_certificate_is_refused_and_can_be_given():
    with tempfile.TemporaryDirectory() as folder:
        certificate = make_certificate(folder)
        with Small(certificate=certificate) as server:
            refused = audit(server.base)
            assert refused.returncode == 3, refused
            assert "certificate" in refused.stderr and "--ca FILE" in refused.stderr, refused.stderr
            assert verdict_of(audit(server.base, "--ca", certificate[0])) == "equal"
            for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
                assert verdict_of(audit(server.base, **{name: certificate[0]})) == "equal", name
            missing = audit(server.base, "--ca", "/nowhere.pem")
            assert missing.returncode == 3 and "--ca: /nowhere.pem cannot be read" in missing.stderr, missing
            plain = audit(server.base.replace("https", "http"))
            assert plain.returncode == 3, plain
        with Small() as server:
            wrong = audit(server.base.replace("http", "https"))
            assert wrong.returncode == 3 and "HTTPS" in wrong.stderr, wrong


def interrupted(server, is_time, *flags, by=signal.SIGINT):
    """The program after a signal at that time: exit code and output."""
    command = [PROGRAM, "audit", server.base, "--format", "json", *flags]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    while not is_time() and running.poll() is None:
        time.sleep(0.005)
    running.send_signal(by)
    out, err = running.communicate(timeout=60)
    return running.returncode, out, err


def changed_by_turns(handler, asked):
    """From the third time on a prompt has another answer."""
    times = handler.server.__dict__.setdefault("times", {})
    prompt = asked["prompt"]
    times[prompt] = times.get(prompt, 0) + 1
    if times[prompt] < 3:
        return False
    handler.server.num_answered += 1
    handler.reply(200, {"choices": [{"index": 0, "text": " 0 words", "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    return True


def test_ctrl_c_reports_what_was_found():
    with tempfile.TemporaryDirectory() as folder, Small(changed_by_turns) as server:
        code, out, err = interrupted(server, lambda: server.num_answered > 120, "--bundles", folder, "--exact")
        result = json.loads(out)
        found = {one["relation"]: one for one in result["relations"]}
        assert result["interrupted"] and code == 1, (code, out, err)
        assert found["again"]["verdict"] == "corrupt", found["again"]
        assert "interrupted" in found["template"]["why"] or found["template"]["verdict"] == "not tried", found
        for name in os.listdir(folder):
            assert name.endswith((".json", ".sh")), os.listdir(folder)
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    json.load(file)
        assert os.path.exists(os.path.join(folder, "again.json"))
    with tempfile.TemporaryDirectory() as folder, Small() as server:
        code, out, err = interrupted(server, lambda: server.num_answered > 100, "--bundles", folder,
                                     by=signal.SIGTERM)
        assert code == 5 and json.loads(out)["interrupted"], (code, out, err)
        assert not os.listdir(folder), os.listdir(folder)


def test_ctrl_c_ends_a_wait():
    hangs = threading.Event()

    def behaviour(*_):
        behaviour.asked = True
        hangs.wait(60)
        return True

    behaviour.asked = False
    with Small(behaviour) as server:
        began = time.monotonic()
        code, out, err = interrupted(server, lambda: behaviour.asked)
        hangs.set()
        assert code == 5 and "interrupted" in err, (code, out, err)
        assert time.monotonic() - began < 20


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    for name in sys.argv[2:] or tests:
        tests[name]()
        print(f"{name}: passed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
