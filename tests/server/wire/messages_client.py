"""messages_client.py PROGRAM SCRIPTED_SERVER ENVIRONMENT: /v1/messages with the stock anthropic client: the trained
model of the repository, and a loop of tools with scripted answers."""

import pathlib
import sys
import tempfile

from scripted import Scripted, hermes, qwen
from served import Served, module_of, program, refused

anthropic = module_of("anthropic", sys.argv[3])

QUESTION = [{"role": "user", "content": "Write a function that adds two numbers."}]
# The client has no parameter for the temperature.
PLAIN = {"model": "tiny-python", "max_tokens": 24, "messages": QUESTION, "extra_body": {"temperature": 0}}
TOOLS = [{"name": "read_file", "description": "Reads lines of a file.", "cache_control": {"type": "ephemeral"},
          "input_schema": {"type": "object",
                           "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}}]


def client_of(server, key="none"):
    return anthropic.Anthropic(base_url=server.base, api_key=key, max_retries=0)


def streamed(client, **asked):
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "".join(block.text for block in message.content if block.type == "text")
    return message


def num_prompt_tokens(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def check_answers(client):
    system = [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]
    whole = client.messages.create(**PLAIN, system=system)
    assert whole.content[0].text and whole.stop_reason in ("max_tokens", "end_turn"), whole
    again = streamed(client, **PLAIN, system=system)
    assert again.content[0].text == whole.content[0].text and again.stop_reason == whole.stop_reason
    assert whole.usage.cache_read_input_tokens == 0 and again.usage.input_tokens == 1, (whole, again)
    assert num_prompt_tokens(again.usage) == num_prompt_tokens(whole.usage)
    counted = client.messages.count_tokens(model="tiny-python", messages=QUESTION, system=system)
    assert counted.input_tokens == num_prompt_tokens(whole.usage), counted
    stop = whole.content[0].text[8:12]
    stopped = client.messages.create(**PLAIN, system=system, stop_sequences=[stop])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop), stopped
    assert stopped.content[0].text == whole.content[0].text.split(stop)[0]


def check_errors(client, base):
    create = client.messages.create
    missing = refused(anthropic.NotFoundError, lambda: create(**{**PLAIN, "model": "other"}))
    assert missing.body["error"]["type"] == "not_found_error" and missing.request_id, missing
    image = {"type": "image", "source": {"type": "url", "url": "http://x"}}
    wrong = refused(anthropic.BadRequestError,
                    lambda: create(**{**PLAIN, "messages": [{"role": "user", "content": [image]}]}))
    assert wrong.body["error"]["param"] == "messages[0].content[0]", wrong.body
    stranger = anthropic.Anthropic(base_url=base, api_key="a wrong key", max_retries=0)
    refused(anthropic.AuthenticationError, lambda: stranger.messages.create(**PLAIN))
    bearer = anthropic.Anthropic(base_url=base, auth_token="first-key-of-team", max_retries=0)
    assert bearer.messages.create(**PLAIN).content


def run_agent(server, write, reasons, ask):
    prefix = "I look at it.\n</think>\n\n" if reasons else ""
    server.say(f"{prefix}Both files.\n\n{write('a.py', 1)}\n{write('ä b.py', 2)}")
    messages = [{"role": "user", "content": "What is in the files?"}]
    first = ask(messages=messages)
    kinds = [block.type for block in first.content]
    assert kinds == ["thinking"] * reasons + ["text", "tool_use", "tool_use"], first
    assert first.stop_reason == "tool_use" and first.content[-3].text == "Both files.", first
    results = [{"type": "tool_result", "tool_use_id": call.id,
                "content": f"{call.input['lines']} of {call.input['path']}"}
               for call in first.content[-2:]]
    assert [one["content"] for one in results] == ["1 of a.py", "2 of ä b.py"], results
    server.say(prefix + "Two files.")
    sent_back = [block.model_dump(exclude_none=True) for block in first.content]
    second = ask(messages=messages + [{"role": "assistant", "content": sent_back},
                                      {"role": "user", "content": results}])
    assert second.stop_reason == "end_turn" and second.content[-1].text == "Two files.", second


def check_tools(scripted):
    for family, write, reasons in (("hermes", hermes, False), ("qwen-think", qwen, True)):
        with Scripted(scripted, family) as server:
            client, asked = client_of(server), {"model": "tiny-python", "max_tokens": 300, "tools": TOOLS}
            for ask in (lambda **more: client.messages.create(**asked, **more),
                        lambda **more: streamed(client, **asked, **more)):
                run_agent(server, write, reasons, ask)


def main():
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("team first-key-of-team\n")
        with Served(program(), "--api-key-file", str(keys)) as server:
            client = client_of(server, "first-key-of-team")
            check_answers(client)
            check_errors(client, server.base)
    check_tools(sys.argv[2])


if __name__ == "__main__":
    main()
