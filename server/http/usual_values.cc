#include "server/http/usual_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "server/http/field_values.h"

namespace verbatim::server {
namespace {

using UsualValues = std::map<std::string, std::vector<Json>, std::less<>>;

const UsualValues& common_values() {
    static const UsualValues kValues = {
        // OpenAI
        {"service_tier", {"auto", "default"}},
        {"store", {false}},
        // vLLM
        {"bad_words", {Json::array()}},
        {"detokenize", {true}},
        {"early_stopping", {false}},
        {"include_stop_str_in_output", {false}},
        {"length_penalty", {1}},
        {"priority", {0}},
        {"return_token_ids", {false}},
        {"return_tokens_as_token_ids", {false}},
        {"skip_special_tokens", {true}},
        {"spaces_between_special_tokens", {true}},
        {"use_beam_search", {false}},
        // llama.cpp
        {"cache_prompt", {true}},
        {"dry_multiplier", {0}},
        {"dynatemp_range", {0}},
        {"grammar", {""}},
        {"id_slot", {-1}},
        {"mirostat", {0}},
        {"n_keep", {0}},
        {"n_probs", {0}},
        {"repeat_penalty", {1}},
        {"timings_per_token", {false}},
        {"typical_p", {1}},
        {"xtc_probability", {0}},
    };
    return kValues;
}

const UsualValues& chat_values() {
    static const UsualValues kValues = {
        {"add_special_tokens", {false}},  // the template writes them
        {"best_of", {1}},
        {"echo", {false}},
        {"function_call", {"none", "auto"}},
        {"functions", {Json::array()}},
        {"include_reasoning", {true}},
        {"modalities", {Json::array({"text"})}},
        {"verbosity", {"medium"}},
    };
    return kValues;
}

const UsualValues& completion_values() {
    static const UsualValues kValues = {{"add_special_tokens", {true}}, {"suffix", {""}}};
    return kValues;
}

}  // namespace

std::optional<ApiError> problem_of_usual_value(ApiKind kind, const std::string& field, const Json& value) {
    for (const UsualValues* values :
         {&common_values(), kind == ApiKind::kChat ? &chat_values() : &completion_values()}) {
        const auto known = values->find(field);
        if (known == values->end()) continue;
        if (std::ranges::find(known->second, value) != known->second.end()) return std::nullopt;
        std::vector<std::string> served;
        for (const Json& one : known->second) served.push_back(quoted(one));
        return ApiError{400,
                        fmt::format("{} = {} is not supported: {} {}", field, quoted(value), fmt::join(served, " and "),
                                    served.size() == 1 ? "is" : "are"),
                        field, "unsupported_value"};
    }
    return ApiError{400, fmt::format("{} is not supported", field), field, "unsupported_parameter"};
}

}  // namespace verbatim::server
