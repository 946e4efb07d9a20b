// tests/server/http/api_clients.h: what clients of /v1/responses and /v1/messages put together from the events of a
// stream, with the rules that the events keep.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace verbatim::tests {

// (event, data) of every server-sent event; a comment is left out.
[[nodiscard]] std::vector<std::pair<std::string, nlohmann::json>> named_events(const std::string& body);

// The response that the deltas make: the last event's, whose output is what was joined. Fails the test where an event
// is out of order or the joined output is another than the last event's.
[[nodiscard]] nlohmann::json joined_response(const std::string& body);

// The message that the deltas make. Fails the test where an event is out of order.
[[nodiscard]] nlohmann::json joined_message(const std::string& body);

}  // namespace verbatim::tests
