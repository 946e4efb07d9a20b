#include "tests/house/source_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace verbatim::house {
namespace {

namespace fs = std::filesystem;

// Every folder of ours, also one that came today; what builds leave behind and what git keeps is not ours.
bool is_ours(const std::string& folder) { return folder == ".ci" || (!folder.starts_with('.') && folder != "build"); }

bool ends_in_one_of(const std::string& path, const std::vector<std::string>& endings) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](const std::string& ending) { return path.ends_with(ending); });
}

std::string read_text(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + path.string());
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

// Walks a C++ text once and blanks what is to go.
class Blanker {
public:
    Blanker(std::string_view text, bool keep_strings) : text_(text), out_(text), keep_strings_(keep_strings) {}

    std::string run() {
        while (at_ < text_.size()) {
            if (starts_with("//")) {
                blank_to(text_.find('\n', at_));
            } else if (starts_with("/*")) {
                blank_past(text_.find("*/", at_ + 2), 2);
            } else if (starts_with("R\"") && !follows_word()) {
                raw_string();
            } else if (text_[at_] == '"' || (text_[at_] == '\'' && !follows_word())) {
                quoted(text_[at_]);
            } else {
                ++at_;
            }
        }
        return out_;
    }

private:
    [[nodiscard]] bool starts_with(std::string_view word) const { return text_.substr(at_).starts_with(word); }
    // A ' after a digit or letter separates digits; an R after a letter ends a name.
    [[nodiscard]] bool follows_word() const {
        return at_ > 0 && (std::isalnum(static_cast<unsigned char>(text_[at_ - 1])) != 0 || text_[at_ - 1] == '_');
    }

    void skip_to(size_t end) { at_ = std::min(end, text_.size()); }
    void blank_to(size_t end) {
        end = std::min(end, text_.size());
        for (; at_ < end; ++at_) {
            if (out_[at_] != '\n') out_[at_] = ' ';
        }
    }
    void blank_past(size_t end, size_t length) { blank_to(end == std::string_view::npos ? end : end + length); }

    void literal(size_t end) { keep_strings_ ? skip_to(end) : blank_to(end); }

    void raw_string() {
        const size_t open = text_.find('(', at_);
        if (open == std::string_view::npos) return literal(open);
        const std::string close = ")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"";
        const size_t end = text_.find(close, open);
        literal(end == std::string_view::npos ? end : end + close.size());
    }

    void quoted(char quote) {
        size_t end = at_ + 1;
        while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
        literal(end + 1);
    }

    std::string_view text_;
    std::string out_;
    bool keep_strings_;
    size_t at_ = 0;
};

}  // namespace

std::vector<SourceFile> repository_files(const std::vector<std::string>& endings) {
    const fs::path root = VERBATIM_SOURCE_DIR;
    std::vector<std::string> paths;
    for (const auto& top : fs::directory_iterator(root)) {
        const std::string name = top.path().filename().string();
        if (top.is_regular_file()) paths.push_back(name);
        if (!top.is_directory() || !is_ours(name)) continue;
        for (const auto& entry : fs::recursive_directory_iterator(top)) {
            const std::string path = entry.path().lexically_relative(root).string();
            if (entry.is_regular_file() && path.find("/data/") == std::string::npos) paths.push_back(path);
        }
    }
    std::sort(paths.begin(), paths.end());
    std::vector<SourceFile> files;
    for (const std::string& path : paths) {
        if (ends_in_one_of(path, endings)) files.push_back({path, read_text(root / path)});
    }
    return files;
}

std::vector<SourceFile> source_files() { return repository_files({".h", ".cc", ".cu", ".inc"}); }

std::vector<std::string> split_lines(std::string_view text) {
    std::vector<std::string> lines;
    std::istringstream in{std::string(text)};
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string blank_comments(std::string_view text, bool keep_strings) { return Blanker(text, keep_strings).run(); }

}  // namespace verbatim::house
