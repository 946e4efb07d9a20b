// reference/head_digest.h: the digest of a sequence's cached state, in logical order, so that contiguous, paged and
// pooled executors give the same one for the same state.
//
// A head's parts are the tensors of reference/model/state_tensors.h in the list's order; those per token are
// [length, shape]: all of K before all of V. Of each part enter its layer, its kind's number, its number of elements
// and their ElementSum, so that whoever holds a part sums it where it lies, in any order. Nothing beyond `length`
// enters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "reference/model/state_tensors.h"
#include "reference/numerics/element_sum.h"

namespace verbatim::reference {

// Fed part after part, each in pieces of any size; it insists on the order and the sizes above.
class HeadDigester {
public:
    // Borrows the list.
    HeadDigester(const StateTensors& tensors, int64_t length);

    // Whole elements of a part.
    void add(const StateTensor& tensor, std::span<const std::byte> piece);
    // A whole part.
    void add(const StateTensor& tensor, const ElementSum& sum);
    // REQUIRES: every part is complete.
    [[nodiscard]] Digest digest() const;

    struct Part {
        const StateTensor* tensor = nullptr;
        int64_t num_elements = 0;
        int64_t num_fed = 0;
        ElementSum sum;
    };
    // What a head consists of, in the order above.
    [[nodiscard]] std::span<const Part> parts() const { return parts_; }

private:
    // The part that goes on with so many elements, which are counted as fed.
    Part& advance(const StateTensor& tensor, int64_t num_elements);

    int64_t length_;
    std::vector<Part> parts_;
    size_t current_ = 0;
};

}  // namespace verbatim::reference
