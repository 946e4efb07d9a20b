// reference/records/codec.h: encodes values with fields (engine/fields.h) compactly, together with a text that
// describes their layout: a type that has gained or lost a field can still be read.
//
// A *shape* is a type's text: i an integer, an enum or a bool; u an integer of 8 bytes; f, d float and double; s a
// string; t a token sequence; ?X an optional; [X a list; {name:X,name:X} a struct. Bytes: integers as varints, groups
// of 7 bits, lowest first, sign in the lowest bit; u, f and d as in memory, little-endian; lists and strings after
// their count; a token sequence as its runs: one made by rule (engine/tokens/token_seq.h) takes a few bytes.
//   C1  decode(shape_of<T>(), encode(x)) == x
//   C2  bytes and shapes may be arbitrary: malformed input is an error, no byte beyond the last is read, and allocated
//       memory is proportional to the input
//   C3  a field that the shape lacks keeps the type's default; a field that the type lacks is skipped
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/fields.h"
#include "engine/tokens/token_seq.h"

namespace verbatim::records {

// --- shapes

// REQUIRES: engine/fields.h supports T.
template <typename T>
void append_shape(std::string& text) {
    if constexpr (std::is_same_v<T, uint64_t>) {
        text += 'u';
    } else if constexpr (std::is_floating_point_v<T>) {
        text += sizeof(T) == sizeof(float) ? 'f' : 'd';
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        text += 'i';
    } else if constexpr (std::is_same_v<T, std::string>) {
        text += 's';
    } else if constexpr (std::is_same_v<T, TokenSeq>) {
        text += 't';
    } else if constexpr (kIsOptional<T>) {
        text += '?';
        append_shape<typename T::value_type>(text);
    } else if constexpr (kIsVector<T>) {
        text += '[';
        append_shape<typename T::value_type>(text);
    } else {
        static_assert(IsAggregate<T>);
        text += '{';
        bool first = true;
        const T value{};
        visit_fields(value, [&](std::string_view name, const auto& field) {
            if (!std::exchange(first, false)) text += ',';
            text += name;
            text += ':';
            append_shape<std::remove_cvref_t<decltype(field)>>(text);
        });
        text += '}';
    }
}
template <typename T>
[[nodiscard]] std::string shape_of() {
    std::string text;
    append_shape<T>(text);
    return text;
}

struct Shape {
    char kind = 'i';
    std::vector<std::string> names;  // of a struct's fields
    std::vector<Shape> parts;        // a struct's fields, or the element of an optional or a list
};
// Errors: not a shape, one of more than some thousand parts, one nested deeper than any supported type.
[[nodiscard]] Result<Shape> parse_shape(std::string_view text);

// --- writing

class Encoder {
public:
    explicit Encoder(std::vector<std::byte>& out) : out_(out) {}

    template <typename T>
    void write(const T& value) {
        if constexpr (std::is_same_v<T, uint64_t> || std::is_floating_point_v<T>) {
            append(&value, sizeof value);
        } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
            write_integer(static_cast<int64_t>(value));
        } else if constexpr (std::is_same_v<T, std::string>) {
            write_count(value.size());
            append(value.data(), value.size());
        } else if constexpr (std::is_same_v<T, TokenSeq>) {
            write_tokens(value);
        } else if constexpr (kIsOptional<T>) {
            write_count(value.has_value() ? 1 : 0);
            if (value) write(*value);
        } else if constexpr (kIsVector<T>) {
            write_count(value.size());
            for (const auto& element : value) write(element);
        } else {
            visit_fields(value, [&](std::string_view, const auto& field) { write(field); });
        }
    }
    void write_count(uint64_t count);
    void append(const void* data, size_t num_bytes);

private:
    void write_integer(int64_t value);
    void write_tokens(const TokenSeq& tokens);

    std::vector<std::byte>& out_;
};

// --- reading

class Decoder {
public:
    // Token sequences go into `store`. Borrows `bytes` and `store`.
    Decoder(std::span<const std::byte> bytes, TokenStore& store) : bytes_(bytes), store_(store) {}

    template <typename T>
    Status read(const Shape& shape, T& value) {
        if constexpr (std::is_same_v<T, uint64_t> || std::is_floating_point_v<T>) {
            RETURN_IF_ERROR(expect(shape, std::is_integral_v<T> ? 'u' : sizeof(T) == sizeof(float) ? 'f' : 'd'));
            return copy(&value, sizeof value);
        } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
            return read_integer(shape, value);
        } else if constexpr (std::is_same_v<T, std::string>) {
            RETURN_IF_ERROR(expect(shape, 's'));
            ASSIGN_OR_RETURN(const size_t count, read_count());
            value.resize(count);
            return copy(value.data(), count);
        } else if constexpr (std::is_same_v<T, TokenSeq>) {
            RETURN_IF_ERROR(expect(shape, 't'));
            ASSIGN_OR_RETURN(value, read_tokens());
            return {};
        } else if constexpr (kIsOptional<T>) {
            RETURN_IF_ERROR(expect(shape, '?'));
            ASSIGN_OR_RETURN(const bool has_value, read_flag());
            value.reset();
            return has_value ? read(shape.parts[0], value.emplace()) : Status{};
        } else if constexpr (kIsVector<T>) {
            RETURN_IF_ERROR(expect(shape, '['));
            ASSIGN_OR_RETURN(const size_t count, read_count());
            value.clear();
            value.reserve(std::min(count, kMostReserved));
            for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(read(shape.parts[0], value.emplace_back()));
            return {};
        } else {
            return read_struct(shape, value);
        }
    }
    // Error: bytes are left.
    [[nodiscard]] Status end() const;
    // The bytes that are left.
    [[nodiscard]] std::span<const std::byte> rest() const { return bytes_.subspan(at_); }
    Result<uint64_t> read_varint();
    // A count of elements that take at least one byte each.
    Result<size_t> read_count();
    // The next `num_bytes` bytes.
    Result<std::span<const std::byte>> take(size_t num_bytes);

private:
    static constexpr size_t kMostReserved = 4096;  // longer lists grow as their elements are read

    template <typename T>
    Status read_integer(const Shape& shape, T& value) {
        RETURN_IF_ERROR(expect(shape, 'i'));
        ASSIGN_OR_RETURN(const uint64_t raw, read_varint());
        const int64_t wide = static_cast<int64_t>(raw >> 1) ^ -static_cast<int64_t>(raw & 1);
        if constexpr (std::is_same_v<T, bool>) {
            if (wide != 0 && wide != 1) return wrong(wide);
        } else if constexpr (std::is_enum_v<T>) {
            if (!std::in_range<std::underlying_type_t<T>>(wide)) return wrong(wide);
            if constexpr (IsClosedEnum<T>) {
                if (wide < 0 || wide >= static_cast<int64_t>(T::kCount)) return wrong(wide);
            }
        } else {
            if (!std::in_range<T>(wide)) return wrong(wide);
        }
        value = static_cast<T>(wide);
        return {};
    }
    template <typename T>
    Status read_struct(const Shape& shape, T& value) {
        RETURN_IF_ERROR(expect(shape, '{'));
        for (size_t i = 0; i < shape.parts.size(); ++i) {
            Status status;
            bool known = false;
            visit_fields(value, [&](std::string_view name, auto& field) {
                if (known || shape.names[i] != name) return;
                known = true;
                field_ = name;
                status = read(shape.parts[i], field);
            });
            RETURN_IF_ERROR(status);
            if (!known) RETURN_IF_ERROR(skip(shape.parts[i]));
        }
        return {};
    }
    Status skip(const Shape& shape);
    [[nodiscard]] Status expect(const Shape& shape, char kind) const;
    [[nodiscard]] Status wrong(int64_t value) const;
    Status copy(void* out, size_t num_bytes);
    Result<bool> read_flag();
    Result<TokenSeq> read_tokens();

    std::span<const std::byte> bytes_;
    TokenStore& store_;
    size_t at_ = 0;
    std::string_view field_ = "value";
};

template <typename T>
[[nodiscard]] std::vector<std::byte> encode(const T& value) {
    std::vector<std::byte> bytes;
    Encoder(bytes).write(value);
    return bytes;
}

// Decodes all of `bytes` as one T.
template <typename T>
[[nodiscard]] Result<T> decode(const Shape& shape, std::span<const std::byte> bytes, TokenStore& store) {
    Decoder decoder(bytes, store);
    T value{};
    RETURN_IF_ERROR(decoder.read(shape, value));
    RETURN_IF_ERROR(decoder.end());
    return value;
}

}  // namespace verbatim::records
