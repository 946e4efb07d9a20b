#include "reference/head_digest.h"

#include <type_traits>

#include "engine/base/check.h"

namespace verbatim::reference {

HeadDigester::HeadDigester(const ModelConfig& config, int64_t length) : length_(length) {
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (const auto& mamba = config.layers[i].mamba) {
            parts_.push_back({layer, HeadPart::kSsm, mamba->d_inner() * mamba->d_state, 0, {}});
            parts_.push_back({layer, HeadPart::kConv, (mamba->d_conv - 1) * mamba->conv_dim(), 0, {}});
        }
        if (const auto& attention = config.layers[i].attention) {
            parts_.push_back({layer, HeadPart::kK, length * attention->kv_rows(), 0, {}});
            parts_.push_back({layer, HeadPart::kV, length * attention->kv_rows(), 0, {}});
        }
    }
}

HeadDigester::Part& HeadDigester::advance(int32_t layer, HeadPart part, int64_t num_elements) {
    while (current_ < parts_.size() && parts_[current_].num_fed == parts_[current_].num_elements) ++current_;
    CHECK(current_ < parts_.size(), "layer {}: more than the model holds", layer);
    Part& wanted = parts_[current_];
    CHECK(wanted.layer == layer && wanted.part == part, "layer {} part {} came, layer {} part {} has {} of {} elements",
          layer, static_cast<int>(part), wanted.layer, static_cast<int>(wanted.part), wanted.num_fed,
          wanted.num_elements);
    CHECK_LE(wanted.num_fed + num_elements, wanted.num_elements);
    wanted.num_fed += num_elements;
    return wanted;
}

template <typename T>
void HeadDigester::add_elements(int32_t layer, HeadPart part, std::span<const T> piece) {
    if (piece.empty()) return;
    Part& current = advance(layer, part, static_cast<int64_t>(piece.size()));
    int64_t i = current.num_fed - static_cast<int64_t>(piece.size());
    for (const T element : piece) {
        if constexpr (std::is_same_v<T, float>)
            current.sum.add(i++, bits_from_float(element));
        else
            current.sum.add(i++, element);
    }
}

void HeadDigester::add(int32_t layer, HeadPart part, std::span<const float> piece) { add_elements(layer, part, piece); }

void HeadDigester::add(int32_t layer, HeadPart part, std::span<const uint16_t> piece) {
    add_elements(layer, part, piece);
}

void HeadDigester::add(int32_t layer, HeadPart part, const ElementSum& sum) {
    Part& current = advance(layer, part, 0);
    CHECK_EQ(current.num_fed, 0);
    current.num_fed = current.num_elements;
    current.sum = sum;
}

Digest HeadDigester::digest() const {
    Digester digester;
    digester.add(length_);
    for (const Part& part : parts_) {
        CHECK(part.num_fed == part.num_elements, "layer {} part {} has {} of {} elements", part.layer,
              static_cast<int>(part.part), part.num_fed, part.num_elements);
        digester.add(part.layer);
        digester.add(part.part);
        digester.add(part.num_elements);
        digester.add(part.sum.low);
        digester.add(part.sum.high);
    }
    return digester.digest();
}

}  // namespace verbatim::reference
