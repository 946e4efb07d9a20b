#include "kernels/sandbox/ordering_calls.h"
#include "files/repository_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>

#include "kernels/sandbox/inline_ptx.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kWords = {"sync_block", "sync_warp",     "named_barrier", "wait_async",
                                                    "wait_bulk",  "wait_multiply", "wait_previous", "wait_at_least"};
constexpr std::string_view kWait = "wait";  // of a barrier: `.wait(parity)`

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Behind the call whose name ends here: "<0>()" or "(mask)". Empty: it is no call.
std::optional<size_t> end_of_call(std::string_view code, size_t at) {
    while (at < code.size() && is_blank(code[at])) ++at;
    if (at < code.size() && code[at] == '<') at = code.find('>', at) + 1;
    while (at < code.size() && is_blank(code[at])) ++at;
    if (at >= code.size() || code[at] != '(') return std::nullopt;
    int depth = 0;
    for (; at < code.size(); ++at) {
        depth += code[at] == '(' ? 1 : code[at] == ')' ? -1 : 0;
        if (depth == 0) return at + 1;
    }
    return std::nullopt;
}

// What stands before a name and its namespaces: "void" of a declaration, "return", "." of a member; "" for all else.
std::string_view before_name(std::string_view code, size_t at) {
    while (at > 0 && (is_of_a_name(code[at - 1]) || code[at - 1] == ':')) --at;
    while (at > 0 && is_blank(code[at - 1])) --at;
    if (at > 0 && code[at - 1] == '.') return ".";
    if (at > 1 && code.substr(at - 2, 2) == "->") return ".";
    const size_t end = at;
    while (at > 0 && is_of_a_name(code[at - 1])) --at;
    return code.substr(at, end - at);
}

// `calls` for a word that stands at [begin, end).
bool is_call(std::string_view code, size_t begin, size_t end, bool is_member, size_t behind) {
    const std::string_view before = before_name(code, begin);
    if (is_member) return before == "." && behind > end + 2;  // a parity in the brackets
    constexpr std::array<std::string_view, 4> kStatements = {"", "return", "else", "do"};
    return std::ranges::find(kStatements, before) != kStatements.end();
}

class Scanner {
public:
    explicit Scanner(std::string_view text) : text_(text) {}

    std::vector<OrderingCall> calls() {
        bool at_line_begin = true;
        while (at_ < text_.size()) {
            if (at_line_begin && text_[at_] == '#') {
                read_marker();
                continue;
            }
            at_line_begin = text_[at_] == '\n';
            if (at_line_begin) ++line_;
            if (text_[at_] == '"' || (text_[at_] == '\'' && (at_ == 0 || !is_of_a_name(text_[at_ - 1])))) {
                skip_quoted();
            } else if (is_of_a_name(text_[at_])) {
                read_word();
            } else {
                ++at_;
            }
        }
        return std::move(calls_);
    }

private:
    // # 33 "my_op.cu" 2
    void read_marker() {
        const size_t end = std::min(text_.find('\n', at_), text_.size());
        const std::string_view marker = text_.substr(at_, end - at_);
        at_ = std::min(end + 1, text_.size());
        ++line_;
        const size_t quote = marker.find('"');
        const size_t last = marker.rfind('"');
        if (marker.size() < 3 || std::isdigit(static_cast<unsigned char>(marker[2])) == 0 || last <= quote) return;
        std::from_chars(marker.data() + 2, marker.data() + marker.size(), line_);
        file_ = marker.substr(quote + 1, last - quote - 1);
        is_system_ = marker.find('3', last) != std::string_view::npos;
    }
    void skip_quoted() {
        const char quote = text_[at_++];
        while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
        at_ = std::min(at_ + (at_ < text_.size() && text_[at_] == quote ? 1 : 0), text_.size());
    }
    void read_word() {
        const size_t begin = at_;
        while (at_ < text_.size() && is_of_a_name(text_[at_])) ++at_;
        const std::string_view word = text_.substr(begin, at_ - begin);
        const bool is_member = word == kWait;
        if (is_system_ || (!is_member && std::ranges::find(kWords, word) == kWords.end())) return;
        const auto behind = end_of_call(text_, at_);
        if (!behind || !is_call(text_, begin, at_, is_member, *behind)) return;
        const auto lines = std::ranges::count(text_.substr(at_, *behind - at_), '\n');
        calls_.push_back({std::string(word), std::string(file_), line_, line_ + static_cast<uint32_t>(lines)});
    }

    std::string_view text_;
    size_t at_ = 0;
    std::string_view file_;
    uint32_t line_ = 1;
    bool is_system_ = false;
    std::vector<OrderingCall> calls_;
};

}  // namespace

std::vector<OrderingCall> ordering_calls(const std::string& preprocessed) { return Scanner(preprocessed).calls(); }

Result<std::vector<OrderingCall>> ordering_calls_of(const std::string& file, const CompiledKernel& compiled,
                                                    const ScratchFolder& folder) {
    const fs::path text = folder.path() / "preprocessed.txt";
    std::vector<std::string> command = compiled.command;
    command.back() = text.string();  // of -o
    command.emplace_back("-E");
    const fs::path output = folder.path() / "preprocessor.txt";
    if (const int code = run_command(command, output, {kMostCompilerBytes, kCompilerSeconds}); code != 0) {
        return error("{}: g++ -E ends with {}:\n{}", file, code, said_in(output));
    }
    std::vector<OrderingCall> calls = ordering_calls(said_in(text));
    const fs::path folder_of_file = fs::absolute(file).parent_path();
    const std::string ours = repository_path("");
    std::erase_if(calls, [&](const OrderingCall& call) {
        return call.file.starts_with(ours) && fs::path(call.file).parent_path() != folder_of_file;
    });
    return calls;
}

std::vector<OrderingCall> not_met(std::vector<OrderingCall> calls, const std::vector<simt::OrderingPlace>& met) {
    for (const simt::OrderingPlace& place : met) {
        const auto is_it = [&](const OrderingCall& call) {
            return call.what == place.what && call.file == place.file && call.line <= place.line &&
                   place.line <= call.last_line;
        };
        const auto found = std::ranges::find_if(calls, is_it);
        if (found != calls.end()) calls.erase(found);
    }
    return calls;
}

}  // namespace verbatim::sandbox
