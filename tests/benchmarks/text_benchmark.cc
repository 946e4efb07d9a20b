// Megabytes of text per second, one thread: encoding with each pipeline of tests/data/tokenizers and decoding.
//   text_benchmark [FOLDER...]   other folders with a tokenizer.json instead
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "server/text/decoder.h"
#include "server/text/tokenizer.h"
#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"

namespace verbatim {
namespace {

using namespace verbatim::text;

constexpr size_t kMegabyte = 1'000'000;
constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

std::string file_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The repository's own documents and sources, over and over.
std::string english_and_code() {
    const std::filesystem::path root(VERBATIM_SOURCE_DIR);
    std::vector<std::filesystem::path> paths;
    for (const char* folder : {"docs", "engine", "reference", "server"}) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
            const std::string ending = entry.path().extension().string();
            if (ending == ".md" || ending == ".cc" || ending == ".h") paths.push_back(entry.path());
        }
    }
    std::ranges::sort(paths);
    std::string text;
    while (text.size() < 4 * kMegabyte) {
        for (const auto& path : paths) text += file_text(path);
    }
    return text;
}

// Words of one script, of 1 to 8 letters.
std::string words(char32_t first, char32_t last) {
    std::string text;
    uint64_t state = 1;
    while (text.size() < 4 * kMegabyte) {
        for (uint64_t left = 1 + (state >> 40) % 8; left > 0; --left) {
            state = state * 6364136223846793005 + 1442695040888963407;
            append_utf8(text, first + static_cast<char32_t>((state >> 33) % (last - first)));
        }
        text += ' ';
    }
    return text;
}

std::string repeated(const std::string& part) {
    std::string text;
    while (text.size() < 10 * kMegabyte) text += part;
    return text;
}

struct NamedText {
    std::string name;
    std::string text;
};

const std::vector<NamedText>& texts() {
    static const std::vector<NamedText> kTexts = {
        {"english_and_code", english_and_code()}, {"cyrillic", words(0x430, 0x450)},
        {"devanagari", words(0x904, 0x94E)},      {"chinese", words(0x4E00, 0x5E00)},
        {"emoji", words(0x1F600, 0x1F640)},       {"one_letter_10MB", repeated("a")},
        {"spaces_10MB", repeated(" ")},           {"accents_10MB", repeated("e\u0301")}};
    return kTexts;
}

void measure_encoding(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
    WordCache cache;
    size_t num_tokens = 0;
    for (auto _ : state) {
        const auto ids = tokenizer.encode(text, kPlain, cache);
        if (!ids) std::abort();
        num_tokens = ids->size();
    }
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
    state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(num_tokens);
}

void measure_decoding(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
    WordCache cache;
    const auto ids = tokenizer.encode(text, kPlain, cache);
    if (!ids) std::abort();
    for (auto _ : state) benchmark::DoNotOptimize(decode(tokenizer, *ids));
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void add_benchmarks(const std::string& name, const Tokenizer& tokenizer) {
    for (const NamedText& text : texts()) {
        const std::string of = name + "/" + text.name;
        benchmark::RegisterBenchmark(("encode/" + of).c_str(), measure_encoding, std::ref(tokenizer), text.text);
        benchmark::RegisterBenchmark(("decode/" + of).c_str(), measure_decoding, std::ref(tokenizer), text.text);
    }
}

int run(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    std::vector<std::filesystem::path> folders(argv + 1, argv + argc);
    if (folders.empty()) {
        for (const char* family : {"llama3", "granite4", "qwen3_5", "tekken", "o200k", "gpt2"})
            folders.push_back(std::filesystem::path(VERBATIM_SOURCE_DIR) / "tests/data/tokenizers" / family);
    }
    std::vector<Tokenizer> tokenizers;
    tokenizers.reserve(folders.size());
    for (const auto& folder : folders) {
        auto tokenizer = load_tokenizer(folder);
        if (!tokenizer) return std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str()), 3;
        tokenizers.push_back(*std::move(tokenizer));
        add_benchmarks(folder.filename().string(), tokenizers.back());
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

}  // namespace
}  // namespace verbatim

int main(int argc, char** argv) { return verbatim::run(argc, argv); }
