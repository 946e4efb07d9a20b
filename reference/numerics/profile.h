// reference/numerics/profile.h: the arithmetics of executors, and their names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "reference/numerics/constants.h"

namespace verbatim::reference {

enum class Profile : uint8_t {
    kExact,       // every result is a function of the sequence alone, with the same bits on every machine
    kTensorSm90,  // the same promise; the dot products are those of Hopper's tensor cores (tensor_sm90.h)
    kExactInt8,   // the same promise as kExact; activations are int8 where a model's weights are blocks of integers
    kExactFp8,    // the same promise; activations are FP8 where a checkpoint's recipe says so
    kFast,        // fast, within a tolerance; promises no bits (docs/kernels.md)
};
inline constexpr std::array kProfiles = {Profile::kExact, Profile::kTensorSm90, Profile::kExactInt8, Profile::kExactFp8,
                                         Profile::kFast};

// The spelling of flags and documents.
constexpr std::string_view name(Profile profile) {
    switch (profile) {
        case Profile::kExact: return "exact";
        case Profile::kTensorSm90: return "tensor.sm90";
        case Profile::kExactInt8: return "exact.int8";
        case Profile::kExactFp8: return "exact.fp8";
        case Profile::kFast: return "fast";
    }
    return "unknown";
}

// The name with its version: part of every head and record. `quantised`: the model has weights in blocks, which
// kExact, kExactInt8 and kExactFp8 take; the latter two take no other models.
constexpr std::string_view numerics_id(Profile profile, bool quantised = false) {
    switch (profile) {
        case Profile::kExact: return quantised ? kExactBlocksNumericsId : kExactNumericsId;
        case Profile::kTensorSm90: return "tensor.sm90/1";
        case Profile::kExactInt8: return kExactInt8NumericsId;
        case Profile::kExactFp8: return kExactFp8NumericsId;
        case Profile::kFast: return "fast/1";
    }
    return "unknown";
}

// Whether the profile defines products with weights in blocks.
constexpr bool takes_blocks(Profile profile) {
    return profile == Profile::kExact || profile == Profile::kExactInt8 || profile == Profile::kExactFp8;
}

// The profile of the other executor in a comparison: the same, or exact where the profile promises no bits.
constexpr Profile witness_profile(Profile profile) { return profile == Profile::kFast ? Profile::kExact : profile; }

}  // namespace verbatim::reference
