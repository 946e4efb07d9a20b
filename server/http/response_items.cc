#include "server/http/response_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace verbatim::server {
namespace {

class ItemList {
public:
    explicit ItemList(const std::string& number) : number_(number) {}

    void add(const Json& message) {
        const std::string role = message.value("role", "");
        if (role == "tool") return add_output(message);
        if (role != "assistant") return add_text(role, "input_text", message["content"]);
        add_reasoning(message.value("reasoning_content", Json()));
        add_text(role, "output_text", message.value("content", Json()));
        for (const Json& call : message.value("tool_calls", Json::array())) add_call(call);
    }
    [[nodiscard]] std::vector<Json> take() { return std::move(items_); }

private:
    void add_item(const char* prefix, const char* type, Json members) {
        Json item = {{"id", fmt::format("{}_{}_in{}", prefix, number_, items_.size())}, {"type", type}};
        item.update(members);
        items_.push_back(std::move(item));
    }
    void add_text(const std::string& role, const char* type, const Json& text) {
        if (!text.is_string()) return;
        Json part = {{"type", type}, {"text", text}};
        if (role == "assistant") part["annotations"] = Json::array();
        add_item("msg", "message", {{"role", role}, {"status", "completed"}, {"content", Json::array({part})}});
    }
    void add_reasoning(const Json& text) {
        if (!text.is_string()) return;
        const Json part = {{"type", "reasoning_text"}, {"text", text}};
        add_item("rs", "reasoning", {{"summary", Json::array()}, {"content", Json::array({part})}});
    }
    void add_call(const Json& call) {
        const Json function = call.value("function", Json::object());
        const Json arguments = function.value("arguments", Json());
        add_item("fc", "function_call",
                 {{"status", "completed"},
                  {"call_id", call.value("id", "")},
                  {"name", function.value("name", "")},
                  {"arguments", arguments.is_string() ? arguments : Json(arguments.dump())}});
    }
    void add_output(const Json& message) {
        add_item(
            "fco", "function_call_output",
            {{"status", "completed"}, {"call_id", message.value("tool_call_id", "")}, {"output", message["content"]}});
    }

    const std::string& number_;
    std::vector<Json> items_;
};

}  // namespace

std::vector<Json> items_of_messages(const std::vector<std::string>& messages, const std::string& number) {
    ItemList items(number);
    for (const std::string& message : messages) {
        const Json json = Json::parse(message, nullptr, /*allow_exceptions=*/false);
        if (json.is_object() && json.contains("content")) items.add(json);
    }
    return items.take();
}

ApiResult<Json> item_list(std::vector<Json> items, const ItemPage& page) {
    if (!page.is_ascending) std::ranges::reverse(items);
    auto first = items.begin();
    if (!page.after.empty()) {
        first = std::ranges::find_if(items, [&](const Json& item) { return item["id"] == page.after; });
        if (first == items.end())
            return tl::unexpected(ApiError{400, "after is no item of this response's input", "after", "invalid_value"});
        ++first;
    }
    const auto num_shown = std::min<int64_t>(page.limit, std::distance(first, items.end()));
    Json list = {{"object", "list"}, {"data", Json::array()}, {"first_id", nullptr}, {"last_id", nullptr}};
    list["has_more"] = num_shown < std::distance(first, items.end());
    if (num_shown > 0) list["first_id"] = (*first)["id"];
    if (num_shown > 0) list["last_id"] = (*(first + num_shown - 1))["id"];
    for (auto item = first; item != first + num_shown; ++item) list["data"].push_back(std::move(*item));
    return list;
}

}  // namespace verbatim::server
