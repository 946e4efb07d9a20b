#include "kernels/simt/ptx_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/emulator.h"

namespace verbatim::simt {
namespace {

// Of loads, stores and atomic operations ptxas takes the words in any order: the semantics, the scope and the state
// space first, as the manual has them.
std::string in_order(const std::string& opcode) {
    constexpr std::string_view kFirst[][6] = {{"weak", "relaxed", "acquire", "release", "acq_rel", "volatile"},
                                              {"cta", "cluster", "gpu", "sys"},
                                              {"global", "shared", "shared::cta", "shared::cluster"}};
    std::vector<std::string> words;
    for (size_t begin = 0; begin <= opcode.size();) {
        const size_t end = std::min(opcode.find('.', begin), opcode.size());
        words.push_back(opcode.substr(begin, end - begin));
        begin = end + 1;
    }
    const std::string& name = words[0];
    const bool is_async = words.size() > 1 && words[1] == "async";
    if (is_async || (name != "ld" && name != "st" && name != "atom" && name != "red")) return opcode;
    const auto rank = [&](const std::string& word) {
        const auto* const found = std::ranges::find_if(
            kFirst, [&](const auto& some) { return std::ranges::find(some, word) != std::end(some) && !word.empty(); });
        return found - std::begin(kFirst);
    };
    std::stable_sort(words.begin() + 1, words.end(),
                     [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
    std::string ordered = name;
    for (size_t i = 1; i < words.size(); ++i) ordered += "." + words[i];
    return ordered;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$'; }

// Spaces instead of comments: every place stays where it is.
std::string without_comments(std::string_view text) {
    std::string code(text);
    for (size_t i = 0; i + 1 < code.size(); ++i) {
        if (code[i] != '/' || (code[i + 1] != '/' && code[i + 1] != '*')) continue;
        const bool is_line = code[i + 1] == '/';
        const size_t found = code.find(is_line ? "\n" : "*/", i + 2);
        const size_t end = std::min(found, code.size()) + (is_line || found == std::string::npos ? 0 : 2);
        std::fill(code.begin() + static_cast<int64_t>(i), code.begin() + static_cast<int64_t>(end), ' ');
    }
    return code;
}

// "12", "12U", "0x1F", "017", "0b101"; "0f3F800000" and "0d3FF0000000000000": the bits of a float.
std::optional<uint64_t> value_of(std::string_view digits) {
    const bool is_prefixed = digits.size() > 1 && digits[0] == '0';
    const char kind = is_prefixed ? static_cast<char>(std::tolower(static_cast<unsigned char>(digits[1]))) : ' ';
    const size_t num_digits = kind == 'f' ? 8 : kind == 'd' ? 16 : 0;
    if (num_digits != 0 && digits.size() != num_digits + 2) return std::nullopt;
    if (num_digits == 0 && digits.size() > 1 && digits.back() == 'U') digits.remove_suffix(1);
    const bool has_letter = kind == 'f' || kind == 'd' || kind == 'x' || kind == 'b';
    const int base = has_letter ? (kind == 'b' ? 2 : 16) : is_prefixed ? 8 : 10;
    if (has_letter) digits.remove_prefix(2);
    uint64_t value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (problem != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return value;
}

class Reader {
public:
    Reader(std::string_view text, size_t num_operands, PtxProgram& program, PtxProblem& problem)
        : text_(without_comments(text)), num_operands_(num_operands), program_(program), problem_(problem) {
        program_.num_registers = num_operands;
    }

    bool read() {
        while (skip_blanks(), at_ < text_.size()) {
            if (text_[at_] == '{' && !open_scope()) return false;
            if (text_[at_] == '}') close_scope();
            if (text_[at_] == '{' || text_[at_] == '}' || text_[at_] == ';') {
                ++at_;
            } else if (!statement()) {
                return false;
            }
        }
        return resolve();
    }

private:
    bool fail(size_t at, std::string what) {
        problem_ = {at, std::move(what)};
        return false;
    }
    void skip_blanks() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    bool take(char c) {
        skip_blanks();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    std::string word() {
        skip_blanks();
        const size_t begin = at_;
        while (at_ < text_.size() && is_word(text_[at_])) ++at_;
        return text_.substr(begin, at_ - begin);
    }

    // Registers and labels are of the braces around them.
    bool open_scope() {
        constexpr size_t kDeepest = 64;
        if (open_.size() > kDeepest) return fail(at_, fmt::format("braces in PTX are at most {} deep here", kDeepest));
        scopes_.push_back({open_.back(), {}, {}});
        open_.push_back(scopes_.size() - 1);
        return true;
    }
    void close_scope() {
        if (open_.size() > 1) open_.pop_back();
    }
    struct Local {
        int32_t index;
        bool is_predicate;
    };
    std::optional<PtxOperand> local(const std::string& name) const {
        for (const size_t scope : std::views::reverse(open_)) {
            if (const auto found = scopes_[scope].locals.find(name); found != scopes_[scope].locals.end())
                return PtxOperand{.kind = PtxOperand::Kind::kRegister,
                                  .index = found->second.index,
                                  .is_predicate = found->second.is_predicate};
        }
        return std::nullopt;
    }

    bool statement() {
        const size_t begin = at_;
        if (text_.compare(at_, 4, ".reg") == 0) return registers();
        PtxInstruction one;
        one.at = begin;
        if (take('@') && !guard(one)) return false;
        skip_blanks();
        const size_t opcode_at = at_;
        std::string opcode;
        while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.' || text_[at_] == ':')) {
            if (text_[at_] == ':' && text_.compare(at_, 2, "::") != 0) break;
            if (text_[at_] == ':') opcode += text_[at_++];
            opcode += text_[at_++];
        }
        if (one.guard < 0 && take(':')) {
            scopes_[open_.back()].labels[opcode] = program_.instructions.size();
            return true;
        }
        if (opcode.empty()) return fail(begin, "a PTX instruction is expected");
        one.at = opcode_at;
        if (opcode == "bra" || opcode == "bra.uni") {
            one.label = word();
            branches_.emplace_back(program_.instructions.size(), open_.back());
        } else {
            constexpr size_t kLongest = 128;  // of an opcode
            PtxOpcode known = opcode.size() > kLongest ? PtxOpcode{} : find_ptx(in_order(opcode));
            if (known.run == nullptr) {
                return fail(opcode_at,
                            fmt::format("`{}` in inline PTX is not taken",
                                        opcode.size() > kLongest ? opcode.substr(0, kLongest) + "..." : opcode));
            }
            one.run = known.run;
            one.words = std::move(known.words);
            if (!operands_of(one)) return false;
            if (one.operands.size() < known.least_operands)
                return fail(opcode_at, fmt::format("`{}` has {} operands or more", opcode, known.least_operands));
            if (!has_its_elements(one, known, opcode)) return false;
        }
        if (!take(';')) return fail(opcode_at, fmt::format("`{}` does not end with a semicolon", opcode));
        program_.instructions.push_back(std::move(one));
        return true;
    }
    bool has_its_elements(const PtxInstruction& one, const PtxOpcode& known, const std::string& opcode) {
        size_t num_coordinates = 0;
        for (const PtxOperand& operand : one.operands) num_coordinates += operand.coordinates.size();
        if (num_coordinates != known.num_coordinates)
            return fail(one.at,
                        fmt::format("`{}` has {} coordinates, not {}", opcode, known.num_coordinates, num_coordinates));
        for (size_t i = 0; i < one.operands.size(); ++i) {
            const PtxOperand& operand = one.operands[i];
            if (!operand.with_predicate.empty() && (i > 0 || !known.takes_predicate))
                return fail(one.at, fmt::format("`{}`: operand {} has no predicate", opcode, i + 1));
            if (known.takes_parts && (operand.elements.size() == 2 || operand.elements.size() == 4)) continue;
            const bool is_vector = operand.kind == PtxOperand::Kind::kVector;
            const size_t has = is_vector ? operand.elements.size() : 0;
            const size_t wanted = i < known.elements.size() ? known.elements[i] : 0;
            if (has == wanted || (wanted == 1 && !is_vector) || (i == known.or_scalar && !is_vector)) continue;
            return fail(one.at, wanted == 0 ? fmt::format("`{}`: operand {} is no vector", opcode, i + 1)
                                            : fmt::format("`{}`: operand {} is a vector of {}, not of {}", opcode,
                                                          i + 1, wanted, has));
        }
        return true;
    }
    bool guard(PtxInstruction& one) {
        one.guard_wants = !take('!');
        const auto predicate = scalar();
        if (!predicate || predicate->kind != PtxOperand::Kind::kRegister)
            return fail(one.at, "a predicate is expected");
        one.guard = predicate->index;
        return true;
    }
    // ".reg .b32 a, b<4>;"
    bool registers() {
        const size_t begin = at_;
        at_ += 4;
        skip_blanks();
        if (!take('.')) return fail(begin, "`.reg` has a type");
        const bool is_predicate = word() == "pred";
        auto& locals = scopes_[open_.back()].locals;
        do {
            while (take('%')) {
            }
            const std::string name = word();
            if (name.empty()) return fail(begin, "`.reg` has names");
            if (!take('<')) {
                locals[name] = {add_register(), is_predicate};
                continue;
            }
            const int64_t count = std::atoll(word().c_str());
            (void)take('>');
            for (int64_t i = 0; i < count && program_.num_registers <= kPtxRegisters; ++i)
                locals[fmt::format("{}{}", name, i)] = {add_register(), is_predicate};
        } while (take(','));
        if (!take(';')) return fail(begin, "`.reg` does not end with a semicolon");
        return true;
    }
    int32_t add_register() { return static_cast<int32_t>(program_.num_registers++); }

    bool operands_of(PtxInstruction& one) {
        skip_blanks();
        if (at_ >= text_.size() || text_[at_] == ';') return true;
        do {
            auto next = operand();
            if (!next) return problem_.what.empty() ? fail(at_, "an operand is expected") : false;
            one.operands.push_back(std::move(*next));
        } while (take(','));
        return true;
    }

    std::optional<PtxOperand> operand() {
        skip_blanks();
        if (take('{')) return vector();
        if (take('[')) return address();
        auto one = scalar();
        if (!one || !take('|')) return one;
        auto predicate = scalar();
        if (!predicate) return std::nullopt;
        one->with_predicate.push_back(std::move(*predicate));
        return one;
    }
    // A register or a number.
    std::optional<PtxOperand> scalar() {
        skip_blanks();
        if (at_ < text_.size() && text_[at_] == '%') return numbered();
        return at_ < text_.size() && is_word(text_[at_]) && std::isdigit(static_cast<unsigned char>(text_[at_])) == 0
                   ? named(word())
                   : number();
    }
    std::optional<PtxOperand> vector() {
        PtxOperand all{.kind = PtxOperand::Kind::kVector};
        do {
            auto next = scalar();
            if (!next) return std::nullopt;
            all.elements.push_back(std::move(*next));
        } while (take(','));
        if (!take('}')) return std::nullopt;
        return all;
    }
    std::optional<PtxOperand> address() {
        auto base = scalar();
        if (!base) return std::nullopt;
        if (base->kind == PtxOperand::Kind::kImmediate) {
            base->index = -1;
        } else if (base->kind != PtxOperand::Kind::kRegister) {
            return std::nullopt;
        }
        PtxOperand place{.kind = PtxOperand::Kind::kAddress, .index = base->index, .immediate = base->immediate};
        if (take('+')) {
            const auto offset = scalar();
            if (!offset) return std::nullopt;
            if (offset->kind == PtxOperand::Kind::kRegister) {
                place.elements.push_back(*offset);  // an operand "n"
            } else {
                place.immediate += offset->immediate;
            }
        }
        if (take(',')) {
            auto box = take('{') ? vector() : std::nullopt;
            if (!box) return std::nullopt;
            place.coordinates = std::move(box->elements);
        }
        if (!take(']')) return std::nullopt;
        return place;
    }
    // "%0", "%%laneid"
    std::optional<PtxOperand> numbered() {
        const size_t begin = at_++;
        if (at_ < text_.size() && text_[at_] == '%') ++at_;
        const std::string name = word();
        if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) == 0) return special(begin, name);
        const int64_t index = std::atoll(name.c_str());
        if (index >= static_cast<int64_t>(num_operands_)) return no_operand(begin, name);
        return PtxOperand{.kind = PtxOperand::Kind::kRegister, .index = static_cast<int32_t>(index)};
    }
    std::optional<PtxOperand> no_operand(size_t at, const std::string& name) {
        (void)fail(at, fmt::format("`%{}`: the asm has no such operand", name));
        return std::nullopt;
    }
    std::optional<PtxOperand> special(size_t at, std::string name) {
        if (auto found = local(name)) return found;
        if (take('.')) name.append(1, '.').append(word());
        constexpr std::string_view kKnown[] = {
            "laneid",           "warpid",           "tid.x",           "tid.y",           "tid.z",
            "ntid.x",           "ntid.y",           "ntid.z",          "ctaid.x",         "ctaid.y",
            "ctaid.z",          "nctaid.x",         "nctaid.y",        "nctaid.z",        "lanemask_eq",
            "lanemask_lt",      "lanemask_le",      "lanemask_gt",     "lanemask_ge",     "cluster_ctarank",
            "cluster_nctarank", "cluster_ctaid.x",  "cluster_ctaid.y", "cluster_ctaid.z", "cluster_nctaid.x",
            "cluster_nctaid.y", "cluster_nctaid.z", "clusterid.x",     "clusterid.y",     "clusterid.z",
            "nclusterid.x",     "nclusterid.y",     "nclusterid.z"};
        if (std::ranges::find(kKnown, name) != std::end(kKnown))
            return PtxOperand{.kind = PtxOperand::Kind::kSpecial, .name = std::move(name)};
        (void)fail(at, fmt::format("`%{}` in inline PTX is not taken", name));
        return std::nullopt;
    }
    std::optional<PtxOperand> named(const std::string& name) {
        if (name == "_") return PtxOperand{};
        if (auto found = local(name)) return found;
        (void)fail(at_ - name.size(), fmt::format("`{}` is no register", name));
        return std::nullopt;
    }
    std::optional<PtxOperand> number() {
        const bool is_negative = take('-');
        const std::string digits = word();
        if (digits.empty()) return std::nullopt;
        const auto value = value_of(digits);
        if (!value) {
            (void)fail(at_ - digits.size(), fmt::format("`{}` is no number", digits.substr(0, 40)));
            return std::nullopt;
        }
        const uint64_t signed_value = is_negative ? 0 - *value : *value;
        return PtxOperand{.kind = PtxOperand::Kind::kImmediate, .immediate = static_cast<int64_t>(signed_value)};
    }

    std::optional<size_t> target_of(const std::string& label, size_t scope) const {
        for (;; scope = scopes_[scope].parent) {
            if (const auto found = scopes_[scope].labels.find(label); found != scopes_[scope].labels.end())
                return found->second;
            if (scope == 0) return std::nullopt;
        }
    }
    bool resolve() {
        for (const auto& [at, scope] : branches_) {
            PtxInstruction& one = program_.instructions[at];
            const auto target = target_of(one.label, scope);
            if (!target) return fail(one.at, fmt::format("`{}` is no label of this asm", one.label));
            one.target = *target;
        }
        if (program_.num_registers > kPtxRegisters)
            return fail(0, fmt::format("an asm has at most {} operands and registers", kPtxRegisters));
        return true;
    }

    std::string text_;
    size_t num_operands_;
    PtxProgram& program_;
    PtxProblem& problem_;
    size_t at_ = 0;
    struct Scope {
        size_t parent;
        std::map<std::string, Local> locals;
        std::map<std::string, size_t> labels;
    };
    std::vector<Scope> scopes_ = {{}};
    std::vector<size_t> open_ = {0};                   // the scopes around what is read
    std::vector<std::pair<size_t, size_t>> branches_;  // an instruction, and its scope
};

}  // namespace

bool read_ptx(std::string_view text, size_t num_operands, PtxProgram& program, PtxProblem& problem) {
    return Reader(text, num_operands, program, problem).read();
}

uint64_t PtxThread::value(const PtxOperand& operand) const {
    using Kind = PtxOperand::Kind;
    switch (operand.kind) {
        case Kind::kRegister: return register_value(operand.index);
        case Kind::kImmediate: return static_cast<uint64_t>(operand.immediate);
        case Kind::kAddress: {
            const uint64_t base = operand.index < 0 ? 0 : register_value(operand.index);
            const uint64_t more = operand.elements.empty() ? 0 : value(operand.elements[0]);
            return base + static_cast<uint64_t>(operand.immediate) + static_cast<uint64_t>(static_cast<int32_t>(more));
        }
        case Kind::kSpecial: return cuda_source::special_register(operand.name);
        default: return 0;
    }
}

void PtxThread::set(const PtxOperand& operand, uint64_t value) {
    if (operand.kind != PtxOperand::Kind::kRegister) return;
    registers[operand.index] = value;
    written.set(static_cast<size_t>(operand.index));
}

uint64_t PtxThread::register_value(int32_t index) const {
    if (written.test(static_cast<size_t>(index))) return registers[index];
    Emulator::current().found(FindingKind::kUninitialised,
                              fmt::format("register {} of an asm is read, and nothing has written it", index));
    return 0;
}

PtxThread::PtxThread(cuda_source::Place asm_place, const cuda_source::PtxOperands& given)
    : where(asm_place), operands(given) {
    CHECK_LE(given.count, kPtxRegisters);
    std::copy_n(given.values, given.count, registers);
    for (size_t i = 0; i < given.count; ++i) written.set(i, given.are_written[i]);
}

void PtxThread::run(const PtxProgram& program) {
    for (size_t next = 0; next < program.instructions.size();) {
        const PtxInstruction& one = program.instructions[next++];
        if (one.guard >= 0 && (register_value(one.guard) != 0) != one.guard_wants) continue;
        if (one.run == nullptr) {
            next = one.target;
        } else {
            one.run(*this, one);
        }
    }
}

}  // namespace verbatim::simt
