#include "tests/server/http/api_clients.h"

#include <gtest/gtest.h>

#include <sstream>

namespace verbatim::tests {

using nlohmann::json;

std::vector<std::pair<std::string, json>> named_events(const std::string& body) {
    std::vector<std::pair<std::string, json>> events;
    std::istringstream lines(body);
    std::string name;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("event: ")) name = line.substr(7);
        if (!line.starts_with("data: ")) continue;
        events.emplace_back(name, json::parse(line.substr(6), nullptr, false));
        EXPECT_EQ(events.back().second.value("type", ""), name) << line;
    }
    return events;
}

namespace {

void append(json& to, const std::string& member, const json& delta) {
    to[member] = to.value(member, "") + delta.get<std::string>();
}

// The text of an item, and the member that the event of its end has it in.
json& text_of(json& item) { return item["type"] == "function_call" ? item : item["content"][0]; }

void take_item_event(const std::string& name, const json& event, json& output) {
    const auto index = event["output_index"].get<size_t>();
    if (name == "response.output_item.added") {
        EXPECT_EQ(index, output.size());
        EXPECT_EQ(event["item"]["status"], "in_progress");
        output.push_back(event["item"]);
        return;
    }
    ASSERT_EQ(index + 1, output.size()) << name;
    json& item = output[index];
    if (name == "response.output_item.done") {
        item["status"] = event["item"]["status"];
        EXPECT_EQ(item, event["item"]);
        return;
    }
    EXPECT_EQ(event["item_id"], item["id"]) << name;
    if (name == "response.content_part.added") {
        EXPECT_EQ(item["content"], json::array());
        item["content"].push_back(event["part"]);
    } else if (name.ends_with(".delta")) {
        append(text_of(item), item["type"] == "function_call" ? "arguments" : "text", event["delta"]);
    } else if (name == "response.content_part.done") {
        EXPECT_EQ(event["part"], item["content"][0]);
    } else {
        const char* member = item["type"] == "function_call" ? "arguments" : "text";
        EXPECT_TRUE(name.ends_with(".done")) << name;
        EXPECT_EQ(event[member], text_of(item)[member]);
    }
}

}  // namespace

json joined_response(const std::string& body) {
    const auto events = named_events(body);
    json output = json::array();
    if (events.size() < 3) {
        ADD_FAILURE() << body;
        return {};
    }
    EXPECT_EQ(events[0].first, "response.created");
    EXPECT_EQ(events[1].first, "response.in_progress");
    for (size_t i = 0; i < events.size(); ++i) {
        const auto& [name, event] = events[i];
        EXPECT_EQ(event["sequence_number"], i);
        if (i > 1 && i + 1 < events.size()) take_item_event(name, event, output);
    }
    const auto& [name, last] = events.back();
    EXPECT_EQ(name, "response." + last["response"]["status"].get<std::string>());
    if (name != "response.failed") EXPECT_EQ(last["response"]["output"], output);
    return last["response"];
}

json joined_message(const std::string& body) {
    const auto events = named_events(body);
    json message;
    std::vector<std::string> inputs;
    bool is_open = false;
    for (const auto& [name, event] : events) {
        if (name == "message_start") {
            EXPECT_TRUE(message.is_null());
            message = event["message"];
        } else if (name == "content_block_start") {
            EXPECT_FALSE(std::exchange(is_open, true));
            EXPECT_EQ(event["index"], message["content"].size());
            message["content"].push_back(event["content_block"]);
            inputs.emplace_back();
        } else if (name == "content_block_delta") {
            EXPECT_TRUE(is_open);
            EXPECT_EQ(event["index"], message["content"].size() - 1);
            const json& delta = event["delta"];
            json& block = message["content"].back();
            if (delta["type"] == "text_delta") append(block, "text", delta["text"]);
            if (delta["type"] == "thinking_delta") append(block, "thinking", delta["thinking"]);
            if (delta["type"] == "input_json_delta") inputs.back() += delta["partial_json"].get<std::string>();
        } else if (name == "content_block_stop") {
            EXPECT_TRUE(std::exchange(is_open, false));
            json& block = message["content"].back();
            const json input = json::parse(inputs.back(), nullptr, false);
            if (block["type"] == "tool_use") block["input"] = input.is_object() ? input : json::object();
        } else if (name == "message_delta") {
            EXPECT_FALSE(is_open);
            message.update(event["delta"]);
            message["usage"] = event["usage"];
        } else {
            EXPECT_TRUE(name == "ping" || name == "message_stop" || name == "error") << name;
        }
    }
    if (events.empty() || (events.back().first != "message_stop" && events.back().first != "error"))
        ADD_FAILURE() << body;
    return message;
}

}  // namespace verbatim::tests
