// tests/fuzz/mutate.cc: a fuzzer's program where libFuzzer is not: the corpus as it is, then inputs made of it. Input i
// is a function of the corpus, the seed and i. So a child computes them, and when it dies the parent knows what killed
// it and writes that to a file.
//   fuzz_NAME -runs=N -seed=N -max_len=N -artifact_prefix=PATH -seed_inputs=@LIST   LIST: paths with commas between
//   fuzz_NAME FILE                                                                  this input alone
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "engine/base/prng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace verbatim::tests {
namespace {

constexpr unsigned kMostSeconds = 10;  // for one input
// What parsers trip over.
constexpr std::string_view kPieces[] = {
    "0",  "-1",   "1e999", "18446744073709551615", "9223372036854775808", "null", "true", "\"", "[[[", "{}", ",",
    "\n", "\xff", "\\u"};

struct Options {
    size_t runs = 0;
    uint64_t seed = 1;
    size_t max_len = 4096;
    std::string prefix;
    std::vector<std::string> corpus;
};

[[noreturn]] void stop(const std::string& message) {
    fmt::print(stderr, "{}\n", message);
    std::exit(2);
}

std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) stop(path + ": cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t number(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) stop(fmt::format("'{}' is no number", text));
    return value;
}

std::vector<std::string> corpus_of(const std::string& list) {
    std::vector<std::string> corpus;
    std::string paths = bytes_of(list);
    for (size_t begin = 0; begin < paths.size();) {
        const size_t end = std::min(paths.find(',', begin), paths.size());
        corpus.push_back(bytes_of(paths.substr(begin, end - begin)));
        begin = end + 1;
    }
    if (corpus.empty()) stop(list + ": names no file");
    return corpus;
}

size_t place_in(const std::string& input, Prng& prng) { return prng.below(input.size() + 1); }

// One change: a bit, a byte, a piece put in, a part taken out or said twice, the end of another file, an early end.
void change(std::string& input, const Options& options, Prng& prng) {
    const size_t at = place_in(input, prng);
    const size_t count = std::min(input.size() - at, size_t{1} << prng.below(10));
    switch (prng.below(8)) {
        case 0:
            if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << prng.below(8)));
            break;
        case 1:
            if (at < input.size()) input[at] = static_cast<char>(prng.below(256));
            break;
        case 2: input.insert(at, kPieces[prng.below(std::size(kPieces))]); break;
        case 3: input.erase(at, count); break;
        case 4: input.insert(at, input.substr(at, count)); break;
        case 5: input.insert(place_in(input, prng), input.substr(at, count)); break;
        case 6: {
            const std::string& other = options.corpus[prng.below(options.corpus.size())];
            input = input.substr(0, at) + other.substr(place_in(other, prng));
            break;
        }
        default: input.resize(at);
    }
}

std::string input_at(size_t i, const Options& options) {
    if (i < options.corpus.size()) return options.corpus[i];
    Prng prng(options.seed * 0x100000001b3u + i);
    std::string input = options.corpus[prng.below(options.corpus.size())];
    for (uint64_t changes = 1 + prng.below(4); changes > 0; --changes) change(input, options, prng);
    if (input.size() > options.max_len) input.resize(options.max_len);
    return input;
}

void try_input(const std::string& input) {
    alarm(kMostSeconds);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    alarm(0);
}

// The exit code.
int try_all(const Options& options) {
    const size_t num_inputs = options.corpus.size() + options.runs;
    void* shared = mmap(nullptr, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) stop("no memory to share with the child");
    volatile auto* current = static_cast<size_t*>(shared);
    const pid_t child = fork();
    if (child < 0) stop("no process for the inputs");
    if (child == 0) {
        for (size_t i = 0; i < num_inputs; ++i) {
            *current = i;
            try_input(input_at(i, options));
        }
        std::exit(0);  // and leaks are looked for
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) stop("the child is lost");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        fmt::print("{} inputs, {} of them the corpus\n", num_inputs, options.corpus.size());
        return 0;
    }
    const std::string path = fmt::format("{}{}", options.prefix, *current);
    std::ofstream(path, std::ios::binary) << input_at(*current, options);
    const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    fmt::print(stderr, "input {} {}: it is in {}\n", *current,
               late ? fmt::format("takes more than {} seconds", kMostSeconds) : "ends the program", path);
    return 1;
}

Options parse(const std::vector<std::string>& arguments) {
    Options options;
    std::map<std::string, std::string> values;
    for (const std::string& argument : arguments) {
        const size_t equals = argument.find('=');
        if (argument[0] != '-' || equals == std::string::npos) stop(argument + ": no -NAME=VALUE");
        values[argument.substr(1, equals - 1)] = argument.substr(equals + 1);
    }
    for (const auto& [name, value] : values) {
        if (name == "runs") {
            options.runs = number(value);
        } else if (name == "seed") {
            options.seed = number(value);
        } else if (name == "max_len") {
            options.max_len = number(value);
        } else if (name == "artifact_prefix") {
            options.prefix = value;
        } else if (name == "seed_inputs" && value.starts_with('@')) {
            options.corpus = corpus_of(value.substr(1));
        } else {
            stop(fmt::format("-{}={}: no such option", name, value));
        }
    }
    if (options.corpus.empty()) stop("-seed_inputs=@LIST is missing");
    return options;
}

}  // namespace
}  // namespace verbatim::tests

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() == 1 && !arguments[0].starts_with('-')) {
        verbatim::tests::try_input(verbatim::tests::bytes_of(arguments[0]));
        return 0;
    }
    return verbatim::tests::try_all(verbatim::tests::parse(arguments));
}
