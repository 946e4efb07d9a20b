// tools/trace/chat_log.h: converts conversations in text to a trace with the token ids of one model.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"
#include "traces/trace.h"

namespace verbatim::tools {

// `path` has lines {"messages": [{"role", "content"}, ..]}; `model` is a folder with tokenizer and template. Every
// answer of an assistant becomes a request: its prompt is the conversation before it, rendered by the template, in
// token ids; its limit is the length of the recorded answer, and the model's stop tokens end it. The next prompt
// continues this one's prompt with the recorded answer, whatever the replay generates. At most `limit` conversations
// (0: all). Errors name the line.
Result<traces::Trace> read_chat_log(const std::string& path, const std::string& model, int64_t limit);

}  // namespace verbatim::tools
