#include "server/text/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

constexpr size_t kMaxSets = 64;
constexpr size_t kMaxClasses = 255;

// What one match may cost: PCRE2's steps and its KiB of heap, beyond what grows with the text.
constexpr uint32_t kMinSteps = 1'000'000;
constexpr uint32_t kStepsPerCharacter = 64;
constexpr uint32_t kMaxHeapKib = 64 * 1024;

// Where some set begins or ends: the characters up to the next one are alike.
std::map<char32_t, uint64_t> changes_of(const std::vector<CodePointSet>& sets) {
    std::map<char32_t, uint64_t> changes = {{0, 0}};
    for (size_t i = 0; i < sets.size(); ++i) {
        for (const CodePointRange& range : sets[i].ranges()) {
            changes[range.first] ^= uint64_t{1} << i;
            changes[range.last + 1] ^= uint64_t{1} << i;
        }
    }
    return changes;
}

std::string pcre2_message(int code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

struct FreeMatch {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

Result<CharacterClasses> CharacterClasses::of(const std::vector<CodePointSet>& sets) {
    if (sets.size() > kMaxSets) return error("{} different sets of characters, {} at most", sets.size(), kMaxSets);
    CharacterClasses classes;
    std::vector<uint8_t> flat(kLastCodePoint + 1);
    const auto changes = changes_of(sets);
    uint64_t inside = 0;
    for (auto at = changes.begin(); at != changes.end() && at->first <= kLastCodePoint; ++at) {
        inside ^= at->second;
        const auto found = std::ranges::find(classes.sets_of_, inside);
        const size_t number = static_cast<size_t>(found - classes.sets_of_.begin());
        if (found == classes.sets_of_.end()) classes.sets_of_.push_back(inside);
        if (number >= kMaxClasses) return error("more than {} classes of characters", kMaxClasses);
        const char32_t end = std::next(at) == changes.end() ? kLastCodePoint + 1 : std::next(at)->first;
        std::fill(flat.begin() + at->first, flat.begin() + end, static_cast<uint8_t>(number));
    }
    std::map<std::string_view, uint16_t> known;
    const std::string_view all(reinterpret_cast<const char*>(flat.data()), flat.size());
    for (size_t begin = 0; begin < flat.size(); begin += kPage) {
        const auto [page, is_new] = known.emplace(all.substr(begin, kPage), known.size());
        if (is_new)
            classes.pages_.insert(classes.pages_.end(), flat.begin() + static_cast<std::ptrdiff_t>(begin),
                                  flat.begin() + static_cast<std::ptrdiff_t>(begin + kPage));
        classes.page_of_.push_back(page->second);
    }
    return classes;
}

std::string CharacterClasses::bracket(int set) const {
    std::string members;
    for (size_t i = 0; i < sets_of_.size(); ++i) {
        if (sets_of_[i] >> set & 1) members += fmt::format("\\x{:02x}", i);
    }
    return members.empty() ? "(?!)" : "[" + members + "]";
}

struct SplitRegex::Compiled {
    struct Free {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    };
    std::unique_ptr<pcre2_code, Free> code;
    bool has_jit = false;
};

SplitRegex::SplitRegex(CharacterClasses classes, std::unique_ptr<Compiled> compiled)
    : classes_(std::move(classes)), compiled_(std::move(compiled)) {}
SplitRegex::~SplitRegex() = default;
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;

Result<SplitRegex> SplitRegex::compile(const RegexParts& parts) {
    ASSIGN_OR_RETURN(CharacterClasses classes, CharacterClasses::of(parts.sets));
    std::string pattern;
    for (const RegexPart& part : parts.parts) pattern += part.set >= 0 ? classes.bracket(part.set) : part.text;
    auto compiled = std::make_unique<Compiled>();
    int code = 0;
    size_t where = 0;
    compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_NEVER_UTF,
                                       &code, &where, nullptr));
    if (!compiled->code) return error("{}", pcre2_message(code));
    uint32_t matches_empty = 0;
    pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) return error("it matches the empty text");
    compiled->has_jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
    return SplitRegex(std::move(classes), std::move(compiled));
}

Status SplitRegex::find_all(std::string_view text, std::vector<TextRange>& matches) const {
    matches.clear();
    std::vector<uint8_t> subject;
    subject.reserve(text.size());
    for (size_t at = 0; at < text.size();) subject.push_back(classes_.of(next_character(text, at)));

    const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
    const std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_create(nullptr));
    CHECK(data && context);
    const uint64_t steps = kMinSteps + uint64_t{kStepsPerCharacter} * subject.size();
    pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context.get(), kMaxHeapKib);
    const auto match = [&](size_t from, uint32_t options) {
        return pcre2_match(compiled_->code.get(), subject.data(), subject.size(), from, options, data.get(),
                           context.get());
    };

    const size_t* found = pcre2_get_ovector_pointer(data.get());
    const bool bytes_are_characters = subject.size() == text.size();
    size_t character = 0;
    size_t byte = 0;
    // The byte at which a later character begins.
    const auto byte_of = [&](size_t wanted) {
        if (bytes_are_characters) return wanted;
        for (; character < wanted; ++character) next_character(text, byte);
        return byte;
    };
    for (size_t from = 0; from < subject.size(); from = found[1]) {
        int code = match(from, 0);
        if (code == PCRE2_ERROR_JIT_STACKLIMIT) code = match(from, PCRE2_NO_JIT);
        if (code == PCRE2_ERROR_NOMATCH) break;
        if (code < 0) return error("the tokenizer's regex fails at character {}: {}", from, pcre2_message(code));
        CHECK_GT(found[1], from);
        const size_t begin = byte_of(found[0]);
        matches.push_back({begin, byte_of(found[1])});
    }
    return {};
}

}  // namespace verbatim::text
