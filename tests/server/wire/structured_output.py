"""structured_output.py PROGRAM ENVIRONMENT: answers of a form that the stock openai client asks for: whole, streamed,
in company, replayed; and forms that cannot be met, processes that are killed, a library that is not there."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from served import Served, program, skip

try:
    import llguidance
    import openai
except ImportError:
    python = pathlib.Path(sys.argv[2]) / "bin" / "python"
    if not python.exists() or sys.executable == str(python):
        skip("no openai client or no llguidance, Wire.Environment says why: where pip reaches a package index, "
             f"`python3 -B tests/environment.py {sys.argv[2]} openai llguidance` brings them")
    os.execv(python, [str(python), "-B", *sys.argv])

assert llguidance
QUESTION = [{"role": "user", "content": "Who are you?"}]
PERSON = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150},
                         "tags": {"type": "array", "items": {"enum": ["a", "b", None]}, "maxItems": 3}},
          "required": ["name", "age", "tags"], "additionalProperties": False}
STRICT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
PLAIN = {"model": "tiny-python", "messages": QUESTION, "max_tokens": 600, "temperature": 1, "seed": 5}


def check_person(text):
    person = json.loads(text)
    assert list(person) == ["name", "age", "tags"] and len(person["name"]) <= 12, person
    assert isinstance(person["age"], int) and person["age"] <= 150 and len(person["tags"]) <= 3, person
    assert all(tag in ("a", "b", None) for tag in person["tags"]), person


def ask(client, **more):
    return client.chat.completions.create(**{**PLAIN, **more})


def content(client, **more):
    choice = ask(client, **more).choices[0]
    assert choice.finish_reason == "stop", choice
    return choice.message.content


def form(**outputs):
    return {"extra_body": {"structured_outputs": outputs}}


def check_schema(client):
    texts = set()
    for seed in range(4):
        text = content(client, response_format=STRICT, seed=seed)
        check_person(text)
        chunks = list(ask(client, response_format=STRICT, seed=seed, stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == text
        assert chunks[-1].choices[0].finish_reason == "stop", chunks[-1]
        texts.add(text)
    assert len(texts) > 1
    check_person(content(client, response_format=STRICT, temperature=0))
    check_person(content(client, extra_body={"guided_json": json.dumps(PERSON)}))
    some = ask(client, response_format={"type": "json_object"}, max_tokens=400)
    if some.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(some.choices[0].message.content), dict)
    else:
        assert some.choices[0].message.content.lstrip().startswith("{")
    short = ask(client, response_format=STRICT, max_tokens=3).choices[0]
    assert short.finish_reason == "length" and short.message.content.lstrip().startswith("{"), short
    return content(client, response_format=STRICT)


def check_forms(client):
    assert re.fullmatch(r"[a-f]{3}-\d+", content(client, **form(regex=r"[a-f]{3}-[0-9]{1,4}")))
    assert content(client, **form(choice=["yes", "no", "žádný 😀"])) in ("yes", "no", "žádný 😀")
    assert content(client, extra_body={"guided_choice": ["one", "two"]}) in ("one", "two")
    lark = 'start: ab ab? "c"\nab: "ab"\n'
    assert re.fullmatch("(ab){1,2}c", content(client, **form(grammar=lark)))
    assert content(client, extra_body={"guided_grammar": 'root ::= "x" | "y"'}) in ("x", "y")
    completion = client.completions.create(model="tiny-python", prompt="def", max_tokens=9, seed=1,
                                           extra_body={"guided_regex": "[0-9]{3}"})
    assert re.fullmatch("[0-9]{3}", completion.choices[0].text), completion


# What else a request may say: log probabilities, choices, bias, cuts, a minimum, stop texts.
def check_company(client):
    several = ask(client, response_format=STRICT, n=3)
    for index, choice in enumerate(several.choices):
        check_person(choice.message.content)
        assert choice.message.content == content(client, response_format=STRICT, seed=5 + index)
    spelled = ask(client, response_format=STRICT, logprobs=True, top_logprobs=2).choices[0]
    shown = b"".join(bytes(token.bytes) for token in spelled.logprobs.content).decode()
    assert shown.startswith(spelled.message.content), spelled
    check_person(content(client, response_format=STRICT, logit_bias={"283": 100}, presence_penalty=1.5,
                         extra_body={"min_p": 0.1, "top_k": 5}, top_p=0.9))
    assert content(client, **{"extra_body": {"structured_outputs": {"choice": ["yes", "no"]}, "min_tokens": 50}}) in (
        "yes", "no")
    assert "}" not in content(client, response_format=STRICT, stop=["}"])
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        free = [pool.submit(lambda: ask(client, max_tokens=40)) for _ in range(4)]
        asked = [pool.submit(lambda seed=seed: content(client, response_format=STRICT, seed=seed)) for seed in range(8)]
        texts = [one.result() for one in asked]
        assert all(one.result().usage.completion_tokens > 0 for one in free)
    for seed, text in enumerate(texts):
        assert text == content(client, response_format=STRICT, seed=seed)


def refused(client, kind=openai.BadRequestError, **more):
    try:
        ask(client, **more)
    except kind as problem:
        return problem.body
    raise AssertionError(f"{more} is taken")


def schema_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


# A form that cannot be, and one that is too much of one: an error within seconds, and the next request is answered.
def check_refusals(client):
    deep = '{"items":' * 3000 + "{}" + "}" * 3000
    bomb = "start: " + " ".join(['("a"|"b"|"ab")?'] * 10000)
    for place, more in [
            ("response_format.json_schema.schema", {"response_format": schema_of({"type": 3})}),
            ("response_format.json_schema.schema", {"response_format": schema_of({"type": "string", "minLength": 5,
                                                                                  "maxLength": 3})}),
            ("response_format.json_schema.schema", {"response_format": schema_of({"$ref": "#"})}),
            ("response_format.json_schema.schema", {"response_format": schema_of({"$ref": "https://there.is/none"})}),
            ("response_format.json_schema.schema", {"response_format": schema_of("text")}),
            ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
            ("response_format", {"response_format": {"type": "xml"}}),
            ("structured_outputs.regex", form(regex="(a")),
            ("structured_outputs.grammar", form(grammar="start: foo")),
            ("structured_outputs.grammar", form(grammar="start: start")),
            ("structured_outputs.grammar", form(grammar=bomb)),
            ("structured_outputs.choice", form(choice=[])),
            ("structured_outputs", form()),
            ("structured_outputs.json", form(json=deep)),
            ("tools", {"response_format": STRICT, "tools": [{"type": "function", "function": {"name": "f"}}]}),
            ("ignore_eos", {"response_format": STRICT, "extra_body": {"ignore_eos": True}}),
    ]:
        begun = time.monotonic()
        problem = refused(client, **more)
        print(f"{time.monotonic() - begun:.2f} s  {problem['param']}: {problem['message'][:100]}")
        assert problem["param"] == place, problem
        assert content(client, **form(choice=["still"])) == "still"
    both = refused(client, kind=openai.UnprocessableEntityError, response_format=STRICT,
                   extra_body={"guided_regex": "a"})
    assert both["code"] == "contradicting_values", both


def children(process):
    listed = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        listed += (task / "children").read_text(encoding="utf-8").split()
    command = lambda pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return {int(pid) for pid in listed if b"run_grammars.py" in command(pid)}


# An answer goes on behind a process that is killed, with the same tokens, and so does one that has no grammar.
def check_killed(client, server):
    wanted = content(client, response_format=STRICT)
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(lambda: content(client, response_format=STRICT)) for _ in range(8)]
        for _ in range(3):
            for pid in children(server.process):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
        assert [one.result() for one in asked] == [wanted] * 8
    assert len(children(server.process)) <= 2
    for pid in children(server.process):
        os.kill(pid, signal.SIGKILL)
    assert content(client, response_format=STRICT) == wanted


# Masks are in the record: it is verified without the library.
def check_record(path):
    for more in ([], ["--under", "batch=1"], ["--under", "cache=off"]):
        verified = subprocess.run([program(), "verify", str(path), *more, "--format", "json"], capture_output=True,
                                  text=True, check=False, env={**os.environ, "PATH": "/nonexistent"})
        assert verified.returncode == 0, (more, verified.stdout, verified.stderr)
        assert json.loads(verified.stdout)["verdict"] == "same", verified.stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "run.rec"
        flags = ["--grammar-python", sys.executable]
        with Served(program(), *flags, "--record", str(record)) as server:
            client = openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0)
            text = check_schema(client)
            check_forms(client)
            check_company(client)
            check_refusals(client)
            check_killed(client, server)
            assert content(client, response_format=STRICT) == text
        check_record(record)
        with Served(program(), "--grammar-python", "/nonexistent/python3") as server:
            client = openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0)
            problem = refused(client, kind=openai.InternalServerError, response_format=STRICT)
            assert problem["code"] == "structured_output_unavailable" and "llguidance" in problem["message"], problem
            assert ask(client, max_tokens=4).usage.completion_tokens == 4


if __name__ == "__main__":
    main()
