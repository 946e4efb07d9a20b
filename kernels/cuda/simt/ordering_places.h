// kernels/cuda/simt/ordering_places.h: owns which barriers and waits of a kernel's code its threads have met, by their
// places there, and the one of them that is left out.
#pragma once

#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

namespace verbatim::simt {

// A call of one of simt.h's words that order accesses, wherever it is written: in a kernel's file or in a header.
struct OrderingPlace {
    std::string what;  // the word: "sync_block", "wait_async", "wait" of a barrier
    std::string file;  // as the compiler was told
    uint32_t line = 0;
    uint32_t column = 0;

    // Never 0, and the same in every process: of the text alone.
    [[nodiscard]] uint64_t id() const;
    friend auto operator<=>(const OrderingPlace&, const OrderingPlace&) = default;
};

class OrderingPlaces {
public:
    // 0: none is left out.
    explicit OrderingPlaces(uint64_t left_out = 0) : left_out_(left_out) {}
    // A thread meets it. True: it is to go on as if it were not there.
    [[nodiscard]] bool meets(const char* what, std::source_location where);
    // In the order of their first meeting.
    [[nodiscard]] const std::vector<OrderingPlace>& met() const { return met_; }

private:
    uint64_t left_out_;
    std::vector<OrderingPlace> met_;
    // By what the compiler has one of for each place: whether it is left out.
    std::map<std::tuple<const char*, uint32_t, uint32_t>, bool> known_;
};

}  // namespace verbatim::simt
