// engine/base/digest.h: 128-bit digests (XXH3) of values in a stated order, and a chain of them.
#pragma once

#include <xxhash.h>

#include <compare>
#include <concepts>
#include <cstdint>
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
// little-endian bytes of their own width, so a digest depends on values and their types, not on padding.
class Digester {
public:
    Digester();
    void bytes(const void* data, size_t num_bytes);
    template <typename T>
        requires(std::is_integral_v<T> || std::is_enum_v<T>)
    void add(T value) { bytes(&value, sizeof value); }
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
    struct Free {
        void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
    };
    std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace verbatim
