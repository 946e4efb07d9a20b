#include "reference/head_digest.h"

#include "engine/base/check.h"

namespace verbatim::reference {

HeadDigester::HeadDigester(const ModelConfig& config, int64_t length) {
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (const auto& mamba = config.layers[i].mamba) {
            parts_.push_back({layer, HeadPart::kSsm, mamba->d_inner() * mamba->d_state});
            parts_.push_back({layer, HeadPart::kConv, (mamba->d_conv - 1) * mamba->conv_dim()});
        }
        if (const auto& attention = config.layers[i].attention) {
            parts_.push_back({layer, HeadPart::kK, length * attention->kv_rows()});
            parts_.push_back({layer, HeadPart::kV, length * attention->kv_rows()});
        }
    }
    digester_.add(length);
}

void HeadDigester::advance(int32_t layer, HeadPart part, int64_t num_elements) {
    if (num_elements == 0) return;
    while (current_ < parts_.size() && num_fed_ == parts_[current_].num_elements) {
        ++current_;
        num_fed_ = 0;
    }
    CHECK(current_ < parts_.size(), "layer {}: more than the model holds", layer);
    const Part& wanted = parts_[current_];
    CHECK(wanted.layer == layer && wanted.part == part, "layer {} part {} came, layer {} part {} has {} of {} elements",
          layer, static_cast<int>(part), wanted.layer, static_cast<int>(wanted.part), num_fed_, wanted.num_elements);
    CHECK_LE(num_fed_ + num_elements, wanted.num_elements);
    if (num_fed_ == 0) {
        digester_.add(layer);
        digester_.add(part);
        digester_.add(wanted.num_elements);
    }
    num_fed_ += num_elements;
}

void HeadDigester::add(int32_t layer, HeadPart part, std::span<const float> piece) {
    advance(layer, part, static_cast<int64_t>(piece.size()));
    digester_.bytes(piece.data(), piece.size_bytes());
}

void HeadDigester::add(int32_t layer, HeadPart part, std::span<const uint16_t> piece) {
    advance(layer, part, static_cast<int64_t>(piece.size()));
    digester_.bytes(piece.data(), piece.size_bytes());
}

Digest HeadDigester::digest() const {
    for (size_t i = current_; i < parts_.size(); ++i) {
        const int64_t num_fed = i == current_ ? num_fed_ : 0;
        CHECK(num_fed == parts_[i].num_elements, "layer {} part {} has {} of {} elements", parts_[i].layer,
              static_cast<int>(parts_[i].part), num_fed, parts_[i].num_elements);
    }
    return digester_.digest();
}

}  // namespace verbatim::reference
