// kernels/simt/ordering_places.h: owns the record of the barriers and waits that a kernel's threads have reached,
// by place in the code, and which one of them is skipped (mutation).
#pragma once

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

namespace verbatim::simt {

// A call of a simt.h operation that orders accesses, in a kernel's file or in a header.
struct OrderingPlace {
    std::string what;  // the operation: "sync_block", "wait_async", "wait" of a barrier
    std::string file;  // as passed to the compiler
    uint32_t line = 0;
    uint32_t column = 0;

    // Never 0; a hash of the text, so it is equal in every process.
    [[nodiscard]] uint64_t id() const;
    friend auto operator<=>(const OrderingPlace&, const OrderingPlace&) = default;
};

class OrderingPlaces {
public:
    // 0: no place is skipped.
    explicit OrderingPlaces(uint64_t left_out = 0) : left_out_(left_out) {}
    // A thread reaches the place. True: skip it.
    [[nodiscard]] bool meets(const char* what, std::source_location where);
    // In the order of first execution.
    [[nodiscard]] const std::vector<OrderingPlace>& met() const { return met_; }

private:
    uint64_t left_out_;
    std::vector<OrderingPlace> met_;
    // Whether a place is skipped, keyed by the compiler's constants for it.
    std::map<std::tuple<const char*, uint32_t, uint32_t>, bool> known_;
};

}  // namespace verbatim::simt
