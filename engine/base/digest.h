// engine/base/digest.h: 128-bit digests (XXH3) of values in a stated order, and a chain of them.
#pragma once

#include <xxhash.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace verbatim {

struct Digest {
    uint64_t high = 0;
    uint64_t low = 0;
    friend auto operator<=>(const Digest&, const Digest&) = default;
    [[nodiscard]] std::string hex() const;  // 32 lower-case digits
};

// Feeds values in order; digest() may be asked at any time and does not disturb what follows. Integers enter as
// little-endian bytes of their width, so a digest depends on values and their types, not on padding.
class Digester {
public:
    Digester();
    void bytes(const void* data, size_t num_bytes);
    template <typename T>
        requires(std::is_integral_v<T> || std::is_enum_v<T>)
    void add(T value) {
        if (num_held_ + sizeof value > held_.size()) flush();
        std::memcpy(held_.data() + num_held_, &value, sizeof value);
        num_held_ += sizeof value;
    }
    void add(std::string_view text);  // length, then bytes
    void add(const Digest& digest);
    template <typename T>
        requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
    void add_all(std::span<const T> values) {  // count, then values
        add(static_cast<uint64_t>(values.size()));
        bytes(values.data(), values.size_bytes());
    }
    [[nodiscard]] Digest digest() const;

private:
    void flush();

    struct Free {
        void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
    };
    std::unique_ptr<XXH3_state_t, Free> state_;
    std::array<std::byte, 512> held_;  // fed, and not yet in state_: a call for every integer would be most of the cost
    size_t num_held_ = 0;
};

}  // namespace verbatim
