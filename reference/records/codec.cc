#include "reference/records/codec.h"

#include "engine/base/check.h"

namespace verbatim::records {
namespace {

constexpr int kMaxDepth = 12;
constexpr size_t kMaxParts = 4096;
constexpr int64_t kMaxDerivedTokens = int64_t{1} << 31;  // of one sequence: they cost no bytes, so they need a bound
constexpr uint64_t kStored = 0;                          // how a run of tokens begins
constexpr uint64_t kDerived = 1;
constexpr uint64_t kDerivedSpaces = uint64_t{1} << 63;
constexpr int kGroupBits = 7;

class ShapeParser {
public:
    explicit ShapeParser(std::string_view text) : text_(text) {}

    Result<Shape> parse() {
        Shape shape;
        RETURN_IF_ERROR(parse(shape, 0));
        if (at_ != text_.size()) return wrong();
        return shape;
    }

private:
    [[nodiscard]] tl::unexpected<Error> wrong() const { return error("a shape ends or is wrong at character {}", at_); }

    Status parse(Shape& shape, int depth) {
        if (depth > kMaxDepth || ++num_parts_ > kMaxParts) return error("a shape of too many parts");
        if (at_ == text_.size()) return wrong();
        shape.kind = text_[at_++];
        if (std::string_view("iufdst").find(shape.kind) != std::string_view::npos) return {};
        if (shape.kind == '?' || shape.kind == '[') return parse(shape.parts.emplace_back(), depth + 1);
        if (shape.kind != '{') return wrong();
        for (;;) {
            const size_t colon = text_.find(':', at_);
            if (colon == std::string_view::npos || colon == at_) return wrong();
            shape.names.emplace_back(text_.substr(at_, colon - at_));
            at_ = colon + 1;
            RETURN_IF_ERROR(parse(shape.parts.emplace_back(), depth + 1));
            if (at_ == text_.size()) return wrong();
            const char next = text_[at_++];
            if (next == '}') return {};
            if (next != ',') return wrong();
        }
    }

    std::string_view text_;
    size_t at_ = 0;
    size_t num_parts_ = 0;
};

// Whether a run's tokens are made by rule.
bool is_derived(TokenSource source) { return static_cast<uint64_t>(source) < kDerivedSpaces; }

}  // namespace

Result<Shape> parse_shape(std::string_view text) { return ShapeParser(text).parse(); }

// --- writing

void Encoder::append(const void* data, size_t num_bytes) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), bytes, bytes + num_bytes);
}

void Encoder::write_count(uint64_t count) {
    for (; count >> kGroupBits != 0; count >>= kGroupBits) out_.push_back(static_cast<std::byte>(count | 0x80));
    out_.push_back(static_cast<std::byte>(count));
}

void Encoder::write_integer(int64_t value) {
    write_count(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
}

void Encoder::write_tokens(const TokenSeq& tokens) {
    write_count(tokens.num_runs());
    std::vector<TokenId> ids;
    int64_t position = 0;
    for (size_t i = 0; i < tokens.num_runs(); ++i) {
        const TokenRun run = tokens.run(i);
        if (is_derived(run.source)) {
            write_count(kDerived);
            append(&run.source, sizeof run.source);
            write_count(static_cast<uint64_t>(run.begin));
            write_count(static_cast<uint64_t>(run.length));
        } else {
            CHECK_GT(run.length, 0);
            ids.resize(static_cast<size_t>(run.length));
            tokens.read(position, ids);
            write_count(kStored);
            write(ids);
        }
        position += run.length;
    }
    CHECK_EQ(position, tokens.size());  // a reader finds no other end
}

// --- reading

Status Decoder::end() const {
    if (at_ == bytes_.size()) return {};
    return error("{} bytes are left after {}", bytes_.size() - at_, at_);
}

Status Decoder::expect(const Shape& shape, char kind) const {
    if (shape.kind == kind) return {};
    return error("{}: was recorded as '{}', this program reads '{}'", field_, shape.kind, kind);
}

Status Decoder::wrong(int64_t value) const {
    return error("byte {}, {}: {} is none of its values", at_, field_, value);
}

Result<std::span<const std::byte>> Decoder::take(size_t num_bytes) {
    if (num_bytes > bytes_.size() - at_) {
        return error("byte {}, {}: {} bytes are wanted, {} are left", at_, field_, num_bytes, bytes_.size() - at_);
    }
    const auto taken = bytes_.subspan(at_, num_bytes);
    at_ += num_bytes;
    return taken;
}

Status Decoder::copy(void* out, size_t num_bytes) {
    ASSIGN_OR_RETURN(const auto taken, take(num_bytes));
    if (num_bytes > 0) std::memcpy(out, taken.data(), num_bytes);
    return {};
}

Result<uint64_t> Decoder::read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += kGroupBits) {
        ASSIGN_OR_RETURN(const auto byte, take(1));
        const auto group = static_cast<uint64_t>(byte[0]);
        const uint64_t bits = group & 0x7F;
        if (shift == 63 && bits > 1) break;
        value |= bits << shift;
        if ((group & 0x80) == 0) return value;
    }
    return error("byte {}, {}: an integer of more than 64 bits", at_, field_);
}

Result<size_t> Decoder::read_count() {
    ASSIGN_OR_RETURN(const uint64_t count, read_varint());
    if (count > bytes_.size() - at_) {
        return error("byte {}, {}: {} elements in the {} bytes that are left", at_, field_, count, bytes_.size() - at_);
    }
    return static_cast<size_t>(count);
}

Result<bool> Decoder::read_flag() {
    ASSIGN_OR_RETURN(const uint64_t flag, read_varint());
    if (flag > 1) return error("byte {}, {}: {} is neither there nor not", at_, field_, flag);
    return flag == 1;
}

Result<TokenSeq> Decoder::read_tokens() {
    static const Shape kIds{'[', {}, {Shape{}}};
    ASSIGN_OR_RETURN(const size_t num_runs, read_count());
    TokenSeq tokens;
    for (size_t i = 0; i < num_runs; ++i) {
        ASSIGN_OR_RETURN(const uint64_t kind, read_varint());
        if (kind == kStored) {
            std::vector<TokenId> ids;
            RETURN_IF_ERROR(read(kIds, ids));
            for (const TokenId id : ids) {
                if (id < 0 || id >= store_.vocab_size()) {
                    return error("byte {}, {}: token {} of a vocabulary of {}", at_, field_, id, store_.vocab_size());
                }
            }
            tokens.append(store_.store(ids));
        } else if (kind == kDerived) {
            uint64_t space = 0;
            RETURN_IF_ERROR(copy(&space, sizeof space));
            ASSIGN_OR_RETURN(const uint64_t begin, read_varint());
            ASSIGN_OR_RETURN(const uint64_t length, read_varint());
            if (space >= kDerivedSpaces || begin >= kDerivedSpaces / 2 ||
                length > static_cast<uint64_t>(kMaxDerivedTokens - tokens.size())) {
                return error("byte {}, {}: {} tokens from {} of space {}", at_, field_, length, begin, space);
            }
            tokens.append(store_.derive(space, static_cast<int64_t>(begin), static_cast<int64_t>(length)));
        } else {
            return error("byte {}, {}: {} is no kind of run", at_, field_, kind);
        }
    }
    return tokens;
}

Status Decoder::skip(const Shape& shape) {
    const auto skip_bytes = [this](size_t count) -> Status {
        RETURN_IF_ERROR(take(count));
        return {};
    };
    switch (shape.kind) {
        case 'i': {
            RETURN_IF_ERROR(read_varint());
            return {};
        }
        case 'u':
        case 'd': return skip_bytes(sizeof(uint64_t));
        case 'f': return skip_bytes(sizeof(uint32_t));
        case 's': {
            ASSIGN_OR_RETURN(const size_t count, read_count());
            return skip_bytes(count);
        }
        case 't': {
            RETURN_IF_ERROR(read_tokens());
            return {};
        }
        case '?': {
            CHECK_EQ(shape.parts.size(), size_t{1});
            ASSIGN_OR_RETURN(const bool has_value, read_flag());
            return has_value ? skip(shape.parts[0]) : Status{};
        }
        case '[': {
            ASSIGN_OR_RETURN(const size_t count, read_count());
            for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(skip(shape.parts[0]));
            return {};
        }
        default: {
            CHECK_EQ(shape.names.size(), shape.parts.size());
            for (const Shape& part : shape.parts) RETURN_IF_ERROR(skip(part));
            return {};
        }
    }
}

}  // namespace verbatim::records
