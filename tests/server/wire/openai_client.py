"""openai_client.py PROGRAM ENVIRONMENT: the stock openai client talks to a server with the trained model of the
repository."""

import os
import pathlib
import sys
import tempfile

from served import Served, program, refused, skip

try:
    import openai
except ImportError:
    python = pathlib.Path(sys.argv[2]) / "bin" / "python"
    if not python.exists() or sys.executable == str(python):
        skip("no openai client, Wire.Environment says why: where pip reaches a package index, "
             f"`python3 -B tests/environment.py {sys.argv[2]} openai` brings it")
    os.execv(python, [str(python), "-B", *sys.argv])

QUESTION = [{"role": "user", "content": "Write a function that adds two numbers."}]
PLAIN = {"model": "tiny-python", "messages": QUESTION, "max_tokens": 24, "temperature": 0}


def check_chat(client):
    whole = client.chat.completions.create(**PLAIN)
    text = whole.choices[0].message.content
    assert text and whole.usage.prompt_tokens_details.cached_tokens == 0, whole
    assert whole.system_fingerprint.startswith("exact/"), whole.system_fingerprint
    stream = client.chat.completions.create(**PLAIN, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[0].choices[0].delta.role == "assistant"
    again = chunks[-1].usage
    assert not chunks[-1].choices and again.total_tokens == whole.usage.total_tokens, chunks[-1]
    # The same question again is found by its tokens, though it says of no conversation.
    assert again.prompt_tokens_details.cached_tokens == again.prompt_tokens - 1, again
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    return text


def check_scoring(client):
    prompt = {"model": "tiny-python", "prompt": "def add(a, b):"}
    scored = client.completions.create(**prompt, echo=True, max_tokens=0, logprobs=1).choices[0]
    assert scored.text == prompt["prompt"] and scored.finish_reason == "length", scored
    assert scored.logprobs.token_logprobs[0] is None and sum(scored.logprobs.token_logprobs[1:]) < 0, scored
    several = client.completions.create(model="tiny-python", prompt=[[283, 287], [283, 30]], max_tokens=0,
                                        extra_body={"prompt_logprobs": 2})
    assert [len(choice.prompt_logprobs) for choice in several.choices] == [2, 2], several
    biased = client.completions.create(**prompt, max_tokens=4, temperature=0, logit_bias={"283": 100})
    assert biased.choices[0].text == "def" * 4, biased


def check_log_probs(client, text):
    asked = client.chat.completions.create(**PLAIN, logprobs=True, top_logprobs=3)
    tokens = asked.choices[0].logprobs.content
    assert b"".join(bytes(t.bytes) for t in tokens).decode().startswith(text)
    for token in tokens:  # temperature 0: the likeliest one is drawn
        assert token.logprob == token.top_logprobs[0].logprob <= 0 and len(token.top_logprobs) == 3
    prompt = {"model": "tiny-python", "prompt": "def add(a, b):", "max_tokens": 8, "temperature": 0}
    old = client.completions.create(**prompt, logprobs=2)
    assert len(old.choices[0].logprobs.tokens) == old.usage.completion_tokens
    assert "".join(old.choices[0].logprobs.tokens).startswith(old.choices[0].text)


def check_choices(client):
    several = client.chat.completions.create(**{**PLAIN, "temperature": 1}, n=3, seed=7)
    texts = [choice.message.content for choice in several.choices]
    for index, text in enumerate(texts):
        alone = client.chat.completions.create(**{**PLAIN, "temperature": 1}, seed=7 + index)
        assert alone.choices[0].message.content == text


def check_conversation(client):
    first = client.chat.completions.create(**PLAIN, extra_body={"conversation_id": "c"})
    history = QUESTION + [{"role": "assistant", "content": first.choices[0].message.content},
                          {"role": "user", "content": "Again, please."}]
    cached, texts = [], set()
    for more in ({"conversation_id": "c"}, {}, {"conversation_id": "d"}, {"use_cache": False}, {"cache_salt": "s"}):
        answer = client.chat.completions.create(**{**PLAIN, "messages": history}, extra_body=more)
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        texts.add(answer.choices[0].message.content)
    assert all(count > 0 for count in cached[:3]) and cached[3:] == [0, 0], cached
    assert len(texts) == 1, texts


LOOK = {"type": "function", "function": {
    "name": "look", "description": "Reads a file.", "parameters": {
        "type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}}}


def check_tools(base):
    """The model has never seen a tool: what it calls is asked for, and its arguments are whatever it writes."""
    client = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
    wanted = {**PLAIN, "tools": [LOOK], "parallel_tool_calls": False,
              "tool_choice": {"type": "function", "function": {"name": "look"}}}
    whole = client.chat.completions.create(**wanted)
    choice = whole.choices[0]
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "look" and call.id.startswith("call_"), call
    assert choice.message.content is None and choice.finish_reason in ("length", "tool_calls"), choice
    stream = client.chat.completions.create(**wanted, stream=True)
    names, arguments, reason = [], "", None
    for chunk in stream:
        reason = chunk.choices[0].finish_reason or reason
        for part in chunk.choices[0].delta.tool_calls or []:
            names += [part.function.name] if part.id else []
            arguments += part.function.arguments
    assert (names, arguments, reason) == (["look"], call.function.arguments, choice.finish_reason)
    history = QUESTION + [{"role": "assistant", "tool_calls": [{**call.model_dump(), "function": {
        "name": "look", "arguments": '{"file": "a.py"}'}}]},
        {"role": "tool", "tool_call_id": call.id, "content": "def f(): pass"}]
    second = client.chat.completions.create(**{**PLAIN, "messages": history}, tools=[LOOK])
    assert second.choices[0].message.reasoning_content, second  # the template begins it
    # The prompt up to the question's end is reused: the call is another one than the model wrote.
    plain = client.chat.completions.create(**PLAIN, tools=[LOOK])
    assert second.usage.prompt_tokens_details.cached_tokens > plain.usage.prompt_tokens // 2, (second, plain)
    wrong = refused(openai.BadRequestError, lambda: client.chat.completions.create(**PLAIN, tools=[{"type": "x"}]))
    assert wrong.param == "tools[0].type", wrong


def check_errors(client, base):
    assert [model.id for model in client.models.list()] == ["tiny-python"]
    assert client.models.retrieve("tiny-python").id == "tiny-python"
    refused(openai.NotFoundError, lambda: client.chat.completions.create(**{**PLAIN, "model": "other"}))
    wrong = refused(openai.BadRequestError, lambda: client.chat.completions.create(**PLAIN, store=True))
    assert wrong.param == "store", wrong
    both = refused(openai.UnprocessableEntityError,
                   lambda: client.chat.completions.create(**PLAIN, max_completion_tokens=25))
    assert both.param == "max_completion_tokens", both
    stranger = openai.OpenAI(base_url=base + "/v1", api_key="somebody else", max_retries=0)
    refused(openai.AuthenticationError, lambda: stranger.chat.completions.create(**PLAIN))


def main():
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("team first-key-of-team\n")
        with Served(program(), "--api-key-file", str(keys)) as server:
            client = openai.OpenAI(base_url=server.base + "/v1", api_key="first-key-of-team", max_retries=0)
            text = check_chat(client)
            check_scoring(client)
            check_log_probs(client, text)
            check_choices(client)
            check_conversation(client)
            check_errors(client, server.base)
        templates = pathlib.Path(__file__).resolve().parents[2] / "data" / "templates"
        with Served(program(), "--chat-template", str(templates / "qwen-think.jinja")) as server:
            check_tools(server.base)


if __name__ == "__main__":
    main()
