// engine/fields.h: one list of a struct's fields, from which its digest, its text and its bytes follow.
//
// A plain struct says what it consists of by its definition (engine/base/aggregate.h).
// From it follow add_fields (a digest), to_text, write_fields and read_fields. Fields may be integers, enums, numbers
// with a fraction (by their bits), strings, token sequences (by their ids), structs with fields, and optionals and
// vectors of these.
//   F1  no two values of a type give the same bytes: whatever has a length says it first
//   F2  read_fields(write_fields(x)) == x; what else it is given is an error, and it reads no further than its bytes
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/aggregate.h"
#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// Of an enum whose values end in kCount, the only ones that a field may have.
template <typename T>
concept IsClosedEnum = std::is_enum_v<T> && requires {
    T::kCount;
};

// --- names

struct SamplingParams;
struct SchedulerConfig;
struct ScheduledSequence;
struct StepPlan;

struct FieldName {
    std::string_view field;
    std::string_view kept;
};
// Fields that have another name since records and digests were kept: those keep the old one.
template <typename T>
inline constexpr std::array<FieldName, 0> kKeptNames = {};
template <>
inline constexpr std::array<FieldName, 1> kKeptNames<SchedulerConfig> = {{{"max_state_lag_tokens", "max_row_lag"}}};
template <>
inline constexpr std::array<FieldName, 2> kKeptNames<ScheduledSequence> = {
    {{"num_sampled_positions", "num_draws"}, {"num_scored_positions", "num_scored"}}};
template <>
inline constexpr std::array<FieldName, 2> kKeptNames<StepPlan> = {
    {{"finished_slots", "ends"}, {"new_sequences", "starts"}}};

template <typename T>
[[nodiscard]] constexpr std::string_view kept_name(std::string_view field) {
    for (const FieldName& name : kKeptNames<T>)
        if (name.field == field) return name.kept;
    return field;
}

// Calls `visit(name, field)` for every field of a struct in turn.
template <typename T, typename Visit>
void visit_fields(T& value, const Visit& visit) {
    for_each_field(value,
                   [&](std::string_view name, auto& field) { visit(kept_name<std::remove_const_t<T>>(name), field); });
}

// --- digest

// What types gained after digests of theirs had been kept, in records for example. An empty or zero field of these is
// left out of a digest; another one comes behind its name.
template <typename T>
inline constexpr std::array<std::string_view, 0> kLaterFields = {};
template <>
inline constexpr std::array<std::string_view, 4> kLaterFields<SamplingParams> = {"min_p", "min_tokens", "end_tokens",
                                                                                 "logit_bias"};
template <>
inline constexpr std::array<std::string_view, 2> kLaterFields<ScheduledSequence> = {"num_scored", "mask"};
template <>
inline constexpr std::array<std::string_view, 1> kLaterFields<StepPlan> = {"mask_runs"};

template <typename T>
void add_fields(Digester& digester, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
        using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
        digester.add(std::bit_cast<Bits>(value));
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        digester.add(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        digester.add(std::string_view(value));
    } else if constexpr (std::is_same_v<T, TokenSeq>) {
        value.add_to(digester);
    } else if constexpr (kIsOptional<T>) {
        digester.add(static_cast<uint8_t>(value.has_value()));
        if (value) add_fields(digester, *value);
    } else if constexpr (kIsVector<T>) {
        using Element = typename T::value_type;
        if constexpr (std::is_integral_v<Element> || std::is_enum_v<Element>) {
            digester.add_all(std::span(value));
        } else {
            digester.add(static_cast<uint64_t>(value.size()));
            for (const Element& element : value) add_fields(digester, element);
        }
    } else {
        static_assert(IsAggregate<T>);
        visit_fields(value, [&](std::string_view name, const auto& field) {
            if constexpr (!kLaterFields<T>.empty()) {
                const bool is_later = std::ranges::find(kLaterFields<T>, name) != kLaterFields<T>.end();
                if (is_later && field == std::remove_cvref_t<decltype(field)>{}) return;
                if (is_later) digester.add(std::string_view(name));
            }
            add_fields(digester, field);
        });
    }
}

template <typename T>
[[nodiscard]] Digest digest_of_fields(const T& value) {
    Digester digester;
    add_fields(digester, value);
    return digester.digest();
}

// --- text: {slot: 1, tokens: [5, 7]}

template <typename T>
void append_text(std::string& text, const T& value) {
    const auto append_list = [&text](const auto& list) {
        text += '[';
        for (size_t i = 0; i < list.size(); ++i) {
            if (i > 0) text += ", ";
            append_text(text, list[i]);
        }
        text += ']';
    };
    if constexpr (std::is_same_v<T, bool>) {
        text += value ? "true" : "false";
    } else if constexpr (std::is_enum_v<T>) {
        fmt::format_to(std::back_inserter(text), "{}", static_cast<int64_t>(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
        fmt::format_to(std::back_inserter(text), "{}", value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        fmt::format_to(std::back_inserter(text), "\"{}\"", value);
    } else if constexpr (std::is_same_v<T, TokenSeq>) {
        append_list(value.to_vector());
    } else if constexpr (kIsOptional<T>) {
        if (!value) {
            text += "none";
        } else {
            append_text(text, *value);
        }
    } else if constexpr (kIsVector<T>) {
        append_list(value);
    } else {
        static_assert(IsAggregate<T>);
        text += '{';
        bool first = true;
        visit_fields(value, [&](std::string_view name, const auto& field) {
            if (!std::exchange(first, false)) text += ", ";
            text += name;
            text += ": ";
            append_text(text, field);
        });
        text += '}';
    }
}

template <typename T>
[[nodiscard]] std::string to_text(const T& value) {
    std::string text;
    append_text(text, value);
    return text;
}

// --- bytes: little-endian, every integer in its width, counts in eight bytes

template <typename T>
void write_fields(std::vector<std::byte>& out, const T& value) {
    const auto append = [&out](const void* data, size_t num_bytes) {
        const auto* bytes = static_cast<const std::byte*>(data);
        out.insert(out.end(), bytes, bytes + num_bytes);
    };
    const auto append_count = [&append](size_t count) {
        const auto wide = static_cast<uint64_t>(count);
        append(&wide, sizeof wide);
    };
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
        append(&value, sizeof value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        append_count(value.size());
        append(value.data(), value.size());
    } else if constexpr (std::is_same_v<T, TokenSeq>) {
        write_fields(out, value.to_vector());
    } else if constexpr (kIsOptional<T>) {
        write_fields(out, value.has_value());
        if (value) write_fields(out, *value);
    } else if constexpr (kIsVector<T>) {
        append_count(value.size());
        for (const auto& element : value) write_fields(out, element);
    } else {
        static_assert(IsAggregate<T>);
        visit_fields(value, [&](std::string_view, const auto& field) { write_fields(out, field); });
    }
}

// Reads values one after another. What it is given may be anything.
class FieldReader {
public:
    // Token sequences are stored in `store`, which is borrowed, like `bytes`.
    FieldReader(std::span<const std::byte> bytes, TokenStore& store) : bytes_(bytes), store_(store) {}

    template <typename T>
    Status read(T& value) {
        if constexpr (std::is_same_v<T, bool>) {
            uint8_t byte = 0;
            RETURN_IF_ERROR(read(byte));
            if (byte > 1) return error("{}: {} is no bool", where(), byte);
            value = byte == 1;
        } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
            RETURN_IF_ERROR(copy(&value, sizeof value));
            if constexpr (IsClosedEnum<T>) {
                if (value >= T::kCount) return error("{}: {} is none of its values", where(), static_cast<int>(value));
            }
        } else if constexpr (std::is_same_v<T, std::string>) {
            size_t count = 0;
            RETURN_IF_ERROR(read_count(count, 1));
            value.resize(count);
            RETURN_IF_ERROR(copy(value.data(), count));
        } else if constexpr (std::is_same_v<T, TokenSeq>) {
            std::vector<TokenId> tokens;
            RETURN_IF_ERROR(read(tokens));
            for (const TokenId token : tokens) {
                if (token >= 0 && token < store_.vocab_size()) continue;
                return error("{}: token {} of a vocabulary of {}", where(), token, store_.vocab_size());
            }
            value = store_.store(tokens);
        } else if constexpr (kIsOptional<T>) {
            bool has_value = false;
            RETURN_IF_ERROR(read(has_value));
            value.reset();
            if (has_value) RETURN_IF_ERROR(read(value.emplace()));
        } else if constexpr (kIsVector<T>) {
            size_t count = 0;
            using Element = typename T::value_type;
            RETURN_IF_ERROR(read_count(
                count, std::is_arithmetic_v<Element> || std::is_enum_v<Element> ? sizeof(Element) : size_t{1}));
            value.clear();
            value.reserve(std::min<size_t>(count, 4096));  // what is not there is not reserved
            for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(read(value.emplace_back()));
        } else {
            static_assert(IsAggregate<T>);
            Status status;
            visit_fields(value, [&](std::string_view name, auto& field) {
                if (!status) return;
                field_ = name;
                status = read(field);
            });
            return status;
        }
        return {};
    }
    // Nothing may follow.
    [[nodiscard]] Status end() const;

private:
    Status copy(void* out, size_t num_bytes);
    Status read_count(size_t& count, size_t least_bytes);  // of elements that take so many bytes each
    [[nodiscard]] std::string where() const;

    std::span<const std::byte> bytes_;
    TokenStore& store_;
    size_t at_ = 0;
    std::string_view field_ = "value";
};

// The whole of `bytes` as one T.
template <typename T>
[[nodiscard]] Result<T> read_fields(std::span<const std::byte> bytes, TokenStore& store) {
    FieldReader reader(bytes, store);
    T value;
    RETURN_IF_ERROR(reader.read(value));
    RETURN_IF_ERROR(reader.end());
    return value;
}

}  // namespace verbatim
