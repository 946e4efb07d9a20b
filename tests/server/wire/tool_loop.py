"""tool_loop.py SCRIPTED_SERVER ENVIRONMENT: an agent's loop with the stock openai client: questions, calls of tools,
their answers, whole and streamed. The server's answers are scripted, in the forms of families of models."""

import json
import os
import pathlib
import subprocess
import sys

from served import skip

try:
    import openai
except ImportError:
    python = pathlib.Path(sys.argv[2]) / "bin" / "python"
    if not python.exists() or sys.executable == str(python):
        skip("no openai client, Wire.Environment says why: where pip reaches a package index, "
             f"`python3 -B tests/environment.py {sys.argv[2]} openai` brings it")
    os.execv(python, [str(python), "-B", *sys.argv])

TOOLS = [{"type": "function", "function": {
    "name": "read_file", "description": "Reads lines of a file.", "strict": True, "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path", "lines"], "additionalProperties": False}}}]
FILE = 'def f(x):\n\treturn "<tool_call>" + x  # \\ ä\n'


def hermes(path, lines):
    return ('<tool_call>\n{"name": "read_file", "arguments": '
            + json.dumps({"path": path, "lines": lines}, ensure_ascii=False) + "}\n</tool_call>")


def qwen(path, lines):
    return (f"<tool_call>\n<function=read_file>\n<parameter=path>\n{path}\n</parameter>\n<parameter=lines>\n{lines}\n"
            "</parameter>\n</function>\n</tool_call>")


class Scripted:
    """A server that says what it is given, one text for each answer."""

    def __init__(self, program, family):
        self.process = subprocess.Popen([program, family], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        line = self.line_with("scripted at ")
        self.client = openai.OpenAI(base_url=line.split(" at ")[1].strip(), api_key="none", max_retries=0)

    def line_with(self, mark):
        for line in self.process.stdout:
            if line.startswith(mark):
                return line
        raise SystemExit(f"the server ended with {self.process.wait()}")

    def say(self, text):
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        self.line_with("said")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(timeout=30) == 0


def whole(client, **asked):
    answer = client.chat.completions.create(model="tiny-python", seed=1, tools=TOOLS, **asked)
    choice = answer.choices[0]
    return choice.message.model_dump(exclude_none=True), choice.finish_reason, answer.usage


def streamed(client, **asked):
    """The same, put together from a stream by the client itself."""
    with client.chat.completions.stream(model="tiny-python", seed=1, tools=TOOLS,
                                        stream_options={"include_usage": True}, **asked) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    choice = answer.choices[0]
    # What the client has parsed of the arguments is checked, and is nothing that it would send.
    message = choice.message.model_dump(exclude_none=True, exclude={"parsed"})
    for call in message.get("tool_calls", []):
        parsed = call["function"].pop("parsed_arguments", None)
        assert parsed is None or parsed == json.loads(call["function"]["arguments"])
        call.pop("index", None)
    return message, choice.finish_reason, answer.usage


def run_agent(server, ask, write, reasons):
    """Two calls at once, then one, then the answer. Returns the messages."""
    prefix = "I look at it.\n</think>\n\n" if reasons else ""
    gap = "\n\n" if reasons else "\n"
    script = [f"{prefix}Both files.{gap}{write('a.py', 1)}{gap}{write('ä b.py', 2)}", prefix + write(FILE, 3),
              prefix + "Three files."]
    messages, total = [{"role": "user", "content": "What is in the files?"}], 0
    for turn, text in enumerate(script):
        server.say(text)
        message, reason, usage = ask(server.client, messages=messages)
        assert message.get("reasoning_content", "") == ("I look at it." if reasons else ""), message
        messages.append(message)
        cached = usage.prompt_tokens_details.cached_tokens
        # All that the last turn knew but its last token: the client's calls are rendered as the model wrote them.
        assert turn == 0 or cached == total - 1, (turn, cached, total)
        total = usage.total_tokens
        calls = message.get("tool_calls", [])
        assert reason == ("tool_calls" if calls else "stop"), reason
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"],
                             "content": f"{arguments['lines']} lines of {arguments['path']}"})
    assert [m["content"] for m in messages if m["role"] == "tool"] == [
        "1 lines of a.py", "2 lines of ä b.py", f"3 lines of {FILE}"], messages
    assert messages[1]["content"] == "Both files." and messages[-1]["content"] == "Three files.", messages
    return messages


def without_ids(messages):
    ids = {}
    text = json.dumps(messages)
    for message in messages:
        for call in message.get("tool_calls", []):
            ids[call["id"]] = f"call {len(ids)}"
    for ours, number in ids.items():
        text = text.replace(ours, number)
    return json.loads(text)


def main():
    for family, write, reasons in (("hermes", hermes, False), ("qwen-think", qwen, True)):
        runs = []
        for ask in (whole, streamed):
            server = Scripted(sys.argv[1], family)
            try:
                messages = run_agent(server, ask, write, reasons)
            finally:
                server.close()
            for message in messages:
                if message["role"] == "assistant":
                    message.setdefault("content", "")
            runs.append(without_ids(messages))
        assert runs[0] == runs[1], runs
        print(f"{family}: whole and streamed, {len(runs[0])} messages")


if __name__ == "__main__":
    main()
