#include "server/text/stop_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "files/mapped_file.h"
#include "files/strict_json.h"
#include "server/text/gguf_text.h"

namespace verbatim::text {
namespace {

constexpr size_t kMaxStopTokensBytes = size_t{1} << 20;

}  // namespace

Result<std::vector<TokenId>> load_stop_tokens(const std::filesystem::path& folder, int32_t vocab_size) {
    if (reference::is_gguf(folder)) {
        ASSIGN_OR_RETURN(const GgufTexts texts, load_gguf_texts(folder));
        return texts.stop_tokens;
    }
    for (const char* name : {"generation_config.json", "config.json"}) {
        const std::filesystem::path path = folder / name;
        if (!std::filesystem::exists(path)) continue;
        ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxStopTokensBytes));
        ASSIGN_OR_RETURN(const nlohmann::json config, parse_strict_json(text, path.string()));
        if (!config.is_object()) return error("{}: it is no object", path.string());
        const nlohmann::json eos = config.value("eos_token_id", nlohmann::json());
        if (eos.is_null()) continue;
        std::vector<TokenId> ids;
        for (const nlohmann::json& id : eos.is_array() ? eos : nlohmann::json::array({eos})) {
            if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
                return error(
                    "{}: eos_token_id is {}, wanted ids of the model's vocabulary, 0 to {}: is the file this model's?",
                    path.string(), quote_json(eos), vocab_size - 1);
            }
            ids.push_back(id.get<TokenId>());
        }
        std::ranges::sort(ids);
        return ids;
    }
    return std::vector<TokenId>();
}

}  // namespace verbatim::text
