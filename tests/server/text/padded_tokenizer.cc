#include "tests/server/text/padded_tokenizer.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace verbatim::tests {
namespace {

using nlohmann::json;

constexpr TokenId kFirstByte = 5;
constexpr TokenId kFirstPair = kFirstByte + 256;

}  // namespace

bool is_missing(Padding padding, TokenId id) {
    const bool is_byte = id >= kFirstByte && id < kFirstPair;
    switch (padding) {
        case Padding::kTail: return id >= 900;
        case Padding::kHoles: return id > 400 && id % 3 != 0;
        case Padding::kFirst: return id < 3;
        case Padding::kAllButBytes: return !is_byte;
    }
    return false;
}

std::string padded_tokenizer_json(const std::function<bool(TokenId)>& is_missing) {
    std::ifstream stream(VERBATIM_SOURCE_DIR "/server/models/tiny-python/tokenizer.json");
    json file = json::parse(std::string(std::istreambuf_iterator<char>(stream), {}));
    std::set<std::string> gone;
    json vocabulary = json::object();
    for (const auto& [token, id] : file["model"]["vocab"].items()) {
        const auto number = id.get<TokenId>();
        const bool is_byte = number >= kFirstByte && number < kFirstPair;
        if (!is_byte && is_missing(number))
            gone.insert(token);
        else
            vocabulary[token] = number;
    }
    json merges = json::array();
    for (const json& merge : file["model"]["merges"]) {
        const auto left = merge[0].get<std::string>();
        const auto right = merge[1].get<std::string>();
        if (!gone.contains(left) && !gone.contains(right) && !gone.contains(left + right)) merges.push_back(merge);
    }
    json added = json::array();
    for (const json& token : file["added_tokens"]) {
        if (!is_missing(token["id"].get<TokenId>())) added.push_back(token);
    }
    file["model"]["vocab"] = std::move(vocabulary);
    file["model"]["merges"] = std::move(merges);
    file["added_tokens"] = std::move(added);
    return file.dump();
}

}  // namespace verbatim::tests
