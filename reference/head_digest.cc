#include "reference/head_digest.h"

#include <cstring>

#include "engine/base/check.h"

namespace verbatim::reference {
namespace {

// Elements `first`, first + 1, ... of a part, as their bits.
template <typename Bits>
void add_bits(ElementSum& sum, int64_t first, std::span<const std::byte> piece) {
    for (size_t at = 0; at < piece.size(); at += sizeof(Bits)) {
        Bits bits;
        std::memcpy(&bits, piece.data() + at, sizeof(Bits));
        sum.add(first++, bits);
    }
}

}  // namespace

HeadDigester::HeadDigester(const StateTensors& tensors, int64_t length) : length_(length) {
    CHECK_GE(length, 0);
    for (const StateTensor& tensor : tensors) {
        const int64_t times = tensor.per == StatePer::kToken ? length : 1;
        parts_.push_back({&tensor, times * tensor.num_elements(), 0, {}});
    }
}

HeadDigester::Part& HeadDigester::advance(const StateTensor& tensor, int64_t num_elements) {
    while (current_ < parts_.size() && parts_[current_].num_fed == parts_[current_].num_elements) ++current_;
    CHECK(current_ < parts_.size(), "layer {} {}: more than the model holds", tensor.layer, tensor.kind.name);
    Part& wanted = parts_[current_];
    CHECK(wanted.tensor->layer == tensor.layer && wanted.tensor->kind == tensor.kind,
          "layer {} {} came, layer {} {} has {} of {} elements", tensor.layer, tensor.kind.name, wanted.tensor->layer,
          wanted.tensor->kind.name, wanted.num_fed, wanted.num_elements);
    CHECK_LE(wanted.num_fed + num_elements, wanted.num_elements);
    wanted.num_fed += num_elements;
    return wanted;
}

void HeadDigester::add(const StateTensor& tensor, std::span<const std::byte> piece) {
    if (piece.empty()) return;
    const int64_t each = element_bytes(tensor.dtype);
    const auto size = static_cast<int64_t>(piece.size());
    CHECK(size % each == 0, "{} bytes of {}", size, dtype_name(tensor.dtype));
    Part& part = advance(tensor, size / each);
    const int64_t first = part.num_fed - size / each;
    each == 2 ? add_bits<uint16_t>(part.sum, first, piece) : add_bits<uint32_t>(part.sum, first, piece);
}

void HeadDigester::add(const StateTensor& tensor, const ElementSum& sum) {
    Part& part = advance(tensor, 0);
    CHECK_EQ(part.num_fed, 0);
    part.num_fed = part.num_elements;
    part.sum = sum;
}

Digest HeadDigester::digest() const {
    Digester digester;
    digester.add(length_);
    for (const Part& part : parts_) {
        CHECK(part.num_fed == part.num_elements, "layer {} {} has {} of {} elements", part.tensor->layer,
              part.tensor->kind.name, part.num_fed, part.num_elements);
        digester.add(part.tensor->layer);
        digester.add(part.tensor->kind.number);
        digester.add(part.num_elements);
        digester.add(part.sum.low);
        digester.add(part.sum.high);
    }
    return digester.digest();
}

int64_t part_num_bytes(const StateTensor& tensor, int64_t length) {
    return (tensor.per == StatePer::kToken ? length : 1) * tensor.num_bytes();
}

int64_t head_num_bytes(const StateTensors& tensors, int64_t length) {
    return tensors.num_bytes(StatePer::kSequence) + length * tensors.num_bytes(StatePer::kToken);
}

Digest digest_of_head(const StateTensors& tensors, int64_t length, std::span<const std::byte> bytes) {
    CHECK_EQ(static_cast<int64_t>(bytes.size()), head_num_bytes(tensors, length));
    HeadDigester digester(tensors, length);
    for (const StateTensor& tensor : tensors) {
        const auto size = static_cast<size_t>(part_num_bytes(tensor, length));
        digester.add(tensor, bytes.first(size));
        bytes = bytes.subspan(size);
    }
    return digester.digest();
}

}  // namespace verbatim::reference
