#include "kernels/simt/ptx_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

namespace verbatim::simt {
namespace {

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

class Reader {
public:
    Reader(std::string_view text, size_t num_operands, PtxProgram& program, PtxProblem& problem)
        : text_(without_comments(text)), num_operands_(num_operands), program_(program), problem_(problem) {
        program_.num_registers = num_operands;
    }

    bool read() {
        while (skip_blanks(), at_ < text_.size()) {
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
            labels_[opcode] = program_.instructions.size();
            return true;
        }
        if (opcode.empty()) return fail(begin, "a PTX instruction is expected");
        one.at = opcode_at;
        if (opcode == "bra" || opcode == "bra.uni") {
            one.label = word();
        } else {
            PtxOpcode known = find_ptx(opcode);
            if (known.run == nullptr) return fail(opcode_at, fmt::format("`{}` in inline PTX is not taken", opcode));
            one.run = known.run;
            one.words = std::move(known.words);
            if (!operands_of(one)) return false;
            if (one.operands.size() < known.least_operands)
                return fail(opcode_at, fmt::format("`{}` has {} operands or more", opcode, known.least_operands));
        }
        if (!take(';')) return fail(opcode_at, fmt::format("`{}` does not end with a semicolon", opcode));
        program_.instructions.push_back(std::move(one));
        return true;
    }
    bool guard(PtxInstruction& one) {
        one.guard_wants = !take('!');
        const auto predicate = operand();
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
        (void)word();
        do {
            (void)take('%');
            const std::string name = word();
            if (name.empty()) return fail(begin, "`.reg` has names");
            if (!take('<')) {
                locals_[name] = add_register();
                continue;
            }
            const int64_t count = std::atoll(word().c_str());
            (void)take('>');
            for (int64_t i = 0; i < count && program_.num_registers <= kPtxRegisters; ++i)
                locals_[fmt::format("{}{}", name, i)] = add_register();
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
        if (at_ < text_.size() && text_[at_] == '%') return numbered();
        return at_ < text_.size() && is_word(text_[at_]) && std::isdigit(static_cast<unsigned char>(text_[at_])) == 0
                   ? named(word())
                   : number();
    }
    std::optional<PtxOperand> vector() {
        PtxOperand all{.kind = PtxOperand::Kind::kVector};
        do {
            auto next = operand();
            if (!next) return std::nullopt;
            all.elements.push_back(std::move(*next));
        } while (take(','));
        if (!take('}')) return std::nullopt;
        return all;
    }
    std::optional<PtxOperand> address() {
        auto base = operand();
        if (!base) return std::nullopt;
        if (base->kind == PtxOperand::Kind::kImmediate) {
            base->index = -1;
        } else if (base->kind != PtxOperand::Kind::kRegister) {
            return std::nullopt;
        }
        PtxOperand place{.kind = PtxOperand::Kind::kAddress, .index = base->index, .immediate = base->immediate};
        if (take('+')) {
            const auto offset = operand();
            if (!offset) return std::nullopt;
            if (offset->kind == PtxOperand::Kind::kRegister) {
                place.elements.push_back(*offset);  // an operand "n"
            } else {
                place.immediate += offset->immediate;
            }
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
        if (const auto local = locals_.find(name); local != locals_.end())
            return PtxOperand{.kind = PtxOperand::Kind::kRegister, .index = local->second};
        if (take('.')) name.append(1, '.').append(word());
        constexpr std::string_view kKnown[] = {"laneid",   "tid.x",    "tid.y",   "tid.z",   "ntid.x",
                                               "ntid.y",   "ntid.z",   "ctaid.x", "ctaid.y", "ctaid.z",
                                               "nctaid.x", "nctaid.y", "nctaid.z"};
        if (std::ranges::find(kKnown, name) != std::end(kKnown))
            return PtxOperand{.kind = PtxOperand::Kind::kSpecial, .name = std::move(name)};
        (void)fail(at, fmt::format("`%{}` in inline PTX is not taken", name));
        return std::nullopt;
    }
    std::optional<PtxOperand> named(const std::string& name) {
        if (name == "_") return PtxOperand{};
        if (const auto local = locals_.find(name); local != locals_.end())
            return PtxOperand{.kind = PtxOperand::Kind::kRegister, .index = local->second};
        (void)fail(at_ - name.size(), fmt::format("`{}` is no register", name));
        return std::nullopt;
    }
    std::optional<PtxOperand> number() {
        const bool is_negative = take('-');
        const std::string digits = word();
        if (digits.empty()) return std::nullopt;
        // "0f3F800000": the bits of a float.
        const bool is_float = digits.starts_with("0f") || digits.starts_with("0F");
        const auto value = static_cast<int64_t>(is_float ? std::strtoull(digits.c_str() + 2, nullptr, 16)
                                                         : std::strtoull(digits.c_str(), nullptr, 0));
        return PtxOperand{.kind = PtxOperand::Kind::kImmediate, .immediate = is_negative ? -value : value};
    }

    bool resolve() {
        for (PtxInstruction& one : program_.instructions) {
            if (one.label.empty()) continue;
            const auto found = labels_.find(one.label);
            if (found == labels_.end()) return fail(one.at, fmt::format("`{}` is no label of this asm", one.label));
            one.target = found->second;
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
    std::map<std::string, int32_t> locals_;
    std::map<std::string, size_t> labels_;
};

}  // namespace

bool read_ptx(std::string_view text, size_t num_operands, PtxProgram& program, PtxProblem& problem) {
    return Reader(text, num_operands, program, problem).read();
}

uint64_t PtxThread::value(const PtxOperand& operand) const {
    using Kind = PtxOperand::Kind;
    switch (operand.kind) {
        case Kind::kRegister: return registers[operand.index];
        case Kind::kImmediate: return static_cast<uint64_t>(operand.immediate);
        case Kind::kAddress: {
            const uint64_t base = operand.index < 0 ? 0 : registers[operand.index];
            const uint64_t more = operand.elements.empty() ? 0 : value(operand.elements[0]);
            return base + static_cast<uint64_t>(operand.immediate) + static_cast<uint64_t>(static_cast<int32_t>(more));
        }
        case Kind::kSpecial: return cuda_source::special_register(operand.name);
        default: return 0;
    }
}

void PtxThread::set(const PtxOperand& operand, uint64_t value) {
    if (operand.kind == PtxOperand::Kind::kRegister) registers[operand.index] = value;
}

void PtxThread::run(const PtxProgram& program) {
    for (size_t next = 0; next < program.instructions.size();) {
        const PtxInstruction& one = program.instructions[next++];
        if (one.guard >= 0 && (registers[one.guard] != 0) != one.guard_wants) continue;
        if (one.run == nullptr) {
            next = one.target;
        } else {
            one.run(*this, one);
        }
    }
}

}  // namespace verbatim::simt
