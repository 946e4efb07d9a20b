// server/http/structured_output.h: owns the fields by which a client says what form an answer has, and the grammar
// that they make (server/text/run_grammars.py).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/api.h"

namespace verbatim::server {

inline constexpr size_t kMaxGrammarBytes = size_t{256} << 10;

// A grammar that one of the fields asks for.
struct AskedGrammar {
    std::string field;  // "response_format": for errors
    std::string text;   // empty: none
};

// Whether the field is one of them.
[[nodiscard]] bool is_of_structured_output(std::string_view field);
// Errors: a form that is not known, a value that is none, a grammar of more than kMaxGrammarBytes.
[[nodiscard]] ApiResult<AskedGrammar> read_grammar(const std::string& field, const Json& value);
// What does not go together with a grammar.
[[nodiscard]] std::optional<ApiError> problem_beside_grammar(const GenerateRequest& request);

}  // namespace verbatim::server
