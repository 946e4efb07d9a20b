// The keys of a verb's JSON are those of a page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/not_reused.h"
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
        if (key != "not_reused" && key != "not_reused_tokens" && key != "values_s") collect_keys(member, keys);
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

std::string two_requests(const tests::ScratchFolder& files) {
    return files.write("two.jsonl", R"({"timestamp":0,"input_length":900,"output_length":4,"hash_ids":[1,2]}
{"timestamp":9,"input_length":900,"output_length":4,"hash_ids":[1,3]}
)");
}

// A run's keys, of which there must be so many, are words of the page.
void expect_documented(std::vector<std::string> arguments, const std::string& page, size_t least) {
    const auto text = read_text_file(repository_path(page), size_t{1} << 20);
    ASSERT_TRUE(text) << text.error().message;
    arguments.insert(arguments.end(), {"--format", "json"});
    const Outcome ran = run_verbatim(arguments);
    std::set<std::string> keys;
    collect_keys(json::parse(ran.out), keys);
    EXPECT_GE(keys.size(), least) << arguments[0];
    for (const std::string& key : keys) EXPECT_TRUE(has_word(*text, key)) << arguments[0] << ": " << key;
}

TEST(DocumentedKeys, ReplaysAreThoseOfItsPage) {
    expect_documented(
        {"replay", "--trace", repository_path("traces/scenario.csv"), "--limit", "3", "--model", "tiny-granite"},
        "docs/records.md", 65);
    const auto cache = read_text_file(repository_path("docs/cache.md"), size_t{1} << 20);
    ASSERT_TRUE(cache) << cache.error().message;
    for (size_t i = 0; i < static_cast<size_t>(NotReused::kCount); ++i) {
        const std::string reason(name(static_cast<NotReused>(i)));
        EXPECT_TRUE(has_word(*cache, reason)) << reason;
    }
}

TEST(DocumentedKeys, ATracesStatisticsAreThoseOfItsPage) {
    const tests::ScratchFolder files;
    expect_documented({"trace", "stats", two_requests(files)}, "traces/README.md", 35);
}

TEST(DocumentedKeys, AModelsDescriptionIsThatOfItsPage) {
    expect_documented({"model", "info", repository_path("server/models/tiny-python")}, "docs/models.md", 30);
}

TEST(DocumentedKeys, TheSimulatorsAreThoseOfItsPage) {
    const tests::ScratchFolder files;
    const std::string trace = two_requests(files);
    for (const std::vector<std::string>& more : {std::vector<std::string>{"simulate"},
                                                 {"simulate", "--slo", "ttft=2s", "--admission", "fewest-tokens"},
                                                 {"simulate", "--cache-only"},
                                                 {"simulate", "--host-memory", "1GB", "--model", "granite-4.0-h-tiny"},
                                                 {"simulate", "--prefill-replicas", "1", "--decode-replicas", "1"},
                                                 {"simulate", "--autoscale", "1..2"},
                                                 {"plan", "--slo", "p99:ttft=2s"},
                                                 {"plan", "--slo", "p99:ttft=1us", "--max-replicas", "2"}}) {
        std::vector<std::string> arguments = more;
        arguments.insert(arguments.end(), {"--trace", trace});
        expect_documented(arguments, "docs/simulator.md", 21);
    }
}

}  // namespace
}  // namespace verbatim::tools
