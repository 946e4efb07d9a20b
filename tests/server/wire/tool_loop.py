"""tool_loop.py SCRIPTED_SERVER ENVIRONMENT: an agent's loop with the stock openai client: questions, calls of tools,
their answers, whole and streamed. The server's answers are scripted, in the forms of families of models."""

import json
import sys

from scripted import Scripted, hermes, qwen
from served import module_of

openai = module_of("openai", sys.argv[2])

TOOLS = [{"type": "function", "function": {
    "name": "read_file", "description": "Reads lines of a file.", "strict": True, "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path", "lines"], "additionalProperties": False}}}]
FILE = 'def f(x):\n\treturn "<tool_call>" + x  # \\ ä\n'


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
    client = openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0)
    prefix = "I look at it.\n</think>\n\n" if reasons else ""
    gap = "\n\n" if reasons else "\n"
    script = [f"{prefix}Both files.{gap}{write('a.py', 1)}{gap}{write('ä b.py', 2)}", prefix + write(FILE, 3),
              prefix + "Three files."]
    messages, total = [{"role": "user", "content": "What is in the files?"}], 0
    for turn, text in enumerate(script):
        server.say(text)
        message, reason, usage = ask(client, messages=messages)
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
            with Scripted(sys.argv[1], family) as server:
                messages = run_agent(server, ask, write, reasons)
            for message in messages:
                if message["role"] == "assistant":
                    message.setdefault("content", "")
            runs.append(without_ids(messages))
        assert runs[0] == runs[1], runs
        print(f"{family}: whole and streamed, {len(runs[0])} messages")


if __name__ == "__main__":
    main()
