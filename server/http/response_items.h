// server/http/response_items.h: owns the input of a stored response, shown as items, page by page. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/api.h"

namespace verbatim::server {

// The end of the path of a response's input.
inline constexpr std::string_view kInputItemsPath = "/input_items";

struct ItemPage {
    int64_t limit = 20;
    bool is_ascending = false;
    std::string after;  // the id of the item before the page's first one; empty: it begins at the beginning
};

// The items of a response's messages, each of these as it is written. `number`: the response's id without its prefix.
// An assistant's message is up to three kinds of items: its reasoning, its text, its calls.
[[nodiscard]] std::vector<Json> items_of_messages(const std::vector<std::string>& messages, const std::string& number);

// A page of them: {"object": "list", "data", "first_id", "last_id", "has_more"}. Errors: no item has the id `after`.
[[nodiscard]] ApiResult<Json> item_list(std::vector<Json> items, const ItemPage& page);

}  // namespace verbatim::server
