// engine/cache/byte_budget.h: owns the count of the bytes that memory units of all pools hold together.
//   Y1  num_held() <= total(): KV blocks and state rows share one number of bytes in any mix
//   Y2  num_fenced() <= num_held(): bytes that open steps may still write become free when those steps complete
#pragma once

#include <cstdint>
#include <limits>

#include "engine/base/check.h"

namespace verbatim {

class ByteBudget {
public:
    static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

    explicit ByteBudget(int64_t total_bytes = kUnlimited) : total_(total_bytes) { CHECK_GE(total_bytes, 0); }

    void hold(int64_t bytes) {
        CHECK(bytes >= 0 && bytes <= num_free(), "{} bytes of {} free ones", bytes, num_free());
        held_ += bytes;
    }
    void fence(int64_t bytes) {
        fenced_ += bytes;
        CHECK(bytes >= 0 && fenced_ <= held_, "{} bytes of {} are fenced", fenced_, held_);
    }
    void unfence(int64_t bytes) {
        fenced_ -= bytes;
        CHECK(bytes >= 0 && fenced_ >= 0, "{} bytes are fenced", fenced_);
    }
    void free(int64_t bytes) {
        held_ -= bytes;
        CHECK(bytes >= 0 && fenced_ <= held_, "{} bytes are held, {} fenced", held_, fenced_);
    }

    [[nodiscard]] int64_t total() const { return total_; }
    [[nodiscard]] int64_t num_held() const { return held_; }
    [[nodiscard]] int64_t num_fenced() const { return fenced_; }
    [[nodiscard]] int64_t num_free() const { return total_ - held_; }
    // Free now, or free when the open steps complete.
    [[nodiscard]] int64_t num_reclaimable() const { return num_free() + fenced_; }

private:
    int64_t total_;
    int64_t held_ = 0;
    int64_t fenced_ = 0;
};

}  // namespace verbatim
