// reference/head_digest.h: the digest of a sequence's cached state in logical order: contiguous, paged and pooled
// executors give equal digests for equal states.
//
// A head's parts are the tensors of reference/model/state_tensors.h in the list's order; tensors per token are [length,
// shape]: all of K before all of V. Each part contributes its layer, its kind's number, its number of elements and
// their ElementSum; an executor may therefore sum a part in place, in any order. Nothing beyond `length` contributes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "reference/model/state_tensors.h"
#include "reference/numerics/element_sum.h"

namespace verbatim::reference {

// Bytes of a tensor in a head of `length` tokens, and of all parts.
[[nodiscard]] int64_t part_num_bytes(const StateTensor& tensor, int64_t length);
[[nodiscard]] int64_t head_num_bytes(const StateTensors& tensors, int64_t length);
// The digest of all parts, one after the other without gaps. REQUIRES: they have head_num_bytes().
[[nodiscard]] Digest digest_of_head(const StateTensors& tensors, int64_t length, std::span<const std::byte> bytes);

// Takes the parts in order, each in pieces of any size; checks the order and the sizes above.
class HeadDigester {
public:
    // Borrows the list.
    HeadDigester(const StateTensors& tensors, int64_t length);

    // Adds whole elements of a part.
    void add(const StateTensor& tensor, std::span<const std::byte> piece);
    // Adds a whole part.
    void add(const StateTensor& tensor, const ElementSum& sum);
    // REQUIRES: every part is complete.
    [[nodiscard]] Digest digest() const;

    struct Part {
        const StateTensor* tensor = nullptr;
        int64_t num_elements = 0;
        int64_t num_fed = 0;
        ElementSum sum;
    };
    // The parts of a head, in the order above.
    [[nodiscard]] std::span<const Part> parts() const { return parts_; }

private:
    // The part that the next `num_elements` elements belong to; counts them as fed.
    Part& advance(const StateTensor& tensor, int64_t num_elements);

    int64_t length_;
    std::vector<Part> parts_;
    size_t current_ = 0;
};

}  // namespace verbatim::reference
