"""agents_sdk.py SCRIPTED_SERVER ENVIRONMENT: an agent of OpenAI's agents SDK from end to end, whole and streamed, over
/v1/responses and /v1/chat/completions: it calls a function twice and says the result. The answers are scripted, as the
repository's model is too small to call anything."""

import asyncio
import json
import sys

from scripted import Scripted
from served import module_of

agents = module_of("agents", sys.argv[2])

import openai  # noqa: E402 (of the same environment)

agents.set_tracing_disabled(True)
FILES = {"a.py": "def f():\n    return 1\n", "ä.py": "x = '<tool_call>'\n"}
seen = []


@agents.function_tool
def read_file(path: str) -> str:
    """Reads a file."""
    seen.append(path)
    return FILES[path]


def call(path):
    return ('<tool_call>\n{"name": "read_file", "arguments": ' + json.dumps({"path": path}, ensure_ascii=False)
            + "}\n</tool_call>")


class SayNext(agents.RunHooks):
    """Gives the server its next answer when the agent is about to ask for it."""

    def __init__(self, server, script):
        self.server, self.script = server, list(script)

    async def on_llm_start(self, *_):
        self.server.say(self.script.pop(0))


async def run(server, model, is_stream, **more):
    seen.clear()
    agent = agents.Agent(name="reader", instructions="Read files.", model=model, tools=[read_file])
    hooks = SayNext(server, [f"I look.\n{call('a.py')}\n{call('ä.py')}", "Two files: 2 lines and 1."])
    if is_stream:
        result = agents.Runner.run_streamed(agent, "What is there?", hooks=hooks, **more)
        text = "".join([event.data.delta async for event in result.stream_events()
                        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"])
        assert text == "I look.Two files: 2 lines and 1.", text
    else:
        result = await agents.Runner.run(agent, "What is there?", hooks=hooks, **more)
    assert result.final_output == "Two files: 2 lines and 1.", result.final_output
    assert sorted(seen) == sorted(FILES) and not hooks.script, seen
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert sorted(outputs) == sorted(FILES.values()), outputs
    return result


async def main():
    for is_stream in (False, True):
        with Scripted(sys.argv[1], "hermes") as server:
            client = openai.AsyncOpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0)
            responses = agents.OpenAIResponsesModel("tiny-python", client)
            first = await run(server, responses, is_stream)
            second = await run(server, responses, is_stream, previous_response_id=first.last_response_id)
            assert second.last_response_id != first.last_response_id
            await run(server, agents.OpenAIChatCompletionsModel("tiny-python", client), is_stream)
            await client.close()
    print("agents SDK: whole and streamed, over responses and chats")


if __name__ == "__main__":
    asyncio.run(main())
