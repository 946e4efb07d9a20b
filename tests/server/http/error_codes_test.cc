// docs/serve.md lists every code of an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "engine/engine.h"
#include "engine/ledger/ledger.h"
#include "server/http/api.h"

namespace verbatim::tests {
namespace {

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// From an opening brace to its closing one, whatever texts have between them.
std::string braced(const std::string& text, size_t begin) {
    int depth = 0;
    bool in_text = false;
    for (size_t at = begin; at < text.size(); ++at) {
        if (text[at] == '\\') {
            ++at;
        } else if (text[at] == '"') {
            in_text = !in_text;
        } else if (!in_text && text[at] == '{') {
            ++depth;
        } else if (!in_text && text[at] == '}' && --depth == 0) {
            return text.substr(begin, at - begin);
        }
    }
    return "";
}

// An ApiError is written {status, message, param, code}.
void add_codes_of(const std::string& source, std::set<std::string>& codes) {
    static const std::regex kError(R"(\{\s*[45]\d\d,)");
    static const std::regex kCode("\"([a-z_]+)\"\\s*$");
    static const std::regex kAssigned("code = \"([a-z_]+)\"");
    for (std::sregex_iterator found(source.begin(), source.end(), kError), end; found != end; ++found) {
        const std::string error = braced(source, static_cast<size_t>(found->position()));
        std::smatch code;
        if (std::regex_search(error, code, kCode)) codes.insert(code[1]);
    }
    for (std::sregex_iterator found(source.begin(), source.end(), kAssigned), end; found != end; ++found)
        codes.insert((*found)[1]);
}

std::set<std::string> codes_of_the_sources() {
    std::set<std::string> codes;
    const std::filesystem::path folder = std::filesystem::path(VERBATIM_SOURCE_DIR) / "server";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        const std::string kind = entry.path().extension();
        if (kind == ".cc" || kind == ".h") add_codes_of(text_of(entry.path()), codes);
    }
    return codes;
}

TEST(ErrorCodes, EveryOneStandsInTheDocument) {
    std::set<std::string> codes = codes_of_the_sources();
    for (const char* known : {"invalid_json", "invalid_value", "unexpected_body", "context_length_exceeded",
                              "overloaded", "draining", "internal_error", "ledger_unavailable"})
        EXPECT_TRUE(codes.contains(known)) << known << ": is it written in another way now?";
    for (size_t i = 0; i < static_cast<size_t>(RefusalReason::kCount); ++i)
        codes.insert(server::api_error({static_cast<RefusalReason>(i), "", {}}).code);
    for (const FinishReason reason : {FinishReason::kNonFinite, FinishReason::kExecutorFailed, FinishReason::kLeaseLost,
                                      FinishReason::kAnswerChanged})
        codes.insert(name(reason));
    EXPECT_GT(codes.size(), 30u);
    const std::string document = text_of(std::filesystem::path(VERBATIM_SOURCE_DIR) / "docs" / "serve.md");
    const std::string table = document.substr(document.find("## Errors"));
    for (const std::string& code : codes)
        EXPECT_NE(table.find("`" + code + "`"), std::string::npos) << code << " is not in docs/serve.md";
}

}  // namespace
}  // namespace verbatim::tests
