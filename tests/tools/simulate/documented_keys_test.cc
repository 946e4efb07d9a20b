// The keys of `simulate` and `plan` in JSON are those of docs/simulator.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "files/mapped_file.h"
#include "files/repository_path.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;

// All keys, but those below keys whose members are named by the question.
void collect_keys(const json& value, std::set<std::string>& keys) {
    if (value.is_array())
        for (const json& one : value) collect_keys(one, keys);
    if (!value.is_object()) return;
    for (const auto& [key, member] : value.items()) {
        keys.insert(key);
        if (key != "not_reused_tokens" && key != "values_s") collect_keys(member, keys);
    }
}

bool has_word(std::string_view text, std::string_view word) {
    const auto is_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !is_of_word(text[at - 1])) && (end == text.size() || !is_of_word(text[end]))) return true;
    }
    return false;
}

TEST(SimulatorJson, HasNoKeyThatThePageDoesNotHave) {
    const tests::ScratchFolder files;
    const std::string trace =
        files.write("two.jsonl", R"({"timestamp":0,"input_length":900,"output_length":4,"hash_ids":[1,2]}
{"timestamp":9,"input_length":900,"output_length":4,"hash_ids":[1,3]}
)");
    const auto page = read_text_file(repository_path("docs/simulator.md"), size_t{1} << 20);
    ASSERT_TRUE(page) << page.error().message;
    for (const std::vector<std::string>& more : {std::vector<std::string>{"simulate"},
                                                 {"simulate", "--slo", "ttft=2s", "--admission", "fewest-tokens"},
                                                 {"simulate", "--cache-only"},
                                                 {"simulate", "--host-memory", "1GB", "--model", "granite-4.0-h-tiny"},
                                                 {"simulate", "--prefill-replicas", "1", "--decode-replicas", "1"},
                                                 {"simulate", "--autoscale", "1..2"},
                                                 {"plan", "--slo", "p99:ttft=2s"},
                                                 {"plan", "--slo", "p99:ttft=1us", "--max-replicas", "2"}}) {
        std::vector<std::string> arguments = more;
        arguments.insert(arguments.end(), {"--trace", trace, "--format", "json"});
        const Outcome ran = run_verbatim(arguments);
        std::set<std::string> keys;
        collect_keys(json::parse(ran.out), keys);
        EXPECT_GT(keys.size(), 20u) << more[0];
        for (const std::string& key : keys) EXPECT_TRUE(has_word(*page, key)) << more[0] << ": " << key;
    }
}

}  // namespace
}  // namespace verbatim::tools
