#include "kernels/sandbox/bound_call.h"

#include <cstddef>
#include <cstring>

namespace verbatim::sandbox {

BoundCall bound_call(const Operation& operation, Placed placed) {
    // Addresses that no other number in a struct has.
    const auto address_of = [](size_t i) { return (uint64_t{0x5A5A5A5A} << 32U) + (uint64_t{i} << 12U); };
    for (size_t i = 0; i < placed.data.size(); ++i) {
        if (placed.data[i] != nullptr) placed.data[i] = reinterpret_cast<std::byte*>(address_of(i));
    }
    BoundCall call;
    std::memset(static_cast<void*>(&call.abi), 0, sizeof call.abi);
    operation.bind(placed, call.abi);
    for (size_t at = 0; at + sizeof(uint64_t) <= sizeof call.abi; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const std::byte*>(&call.abi) + at, sizeof word);
        for (size_t i = 0; i < placed.data.size(); ++i) {
            if (placed.data[i] == nullptr || word != address_of(i)) continue;
            call.pointers.push_back({static_cast<int64_t>(at), static_cast<int64_t>(i)});
        }
    }
    return call;
}

}  // namespace verbatim::sandbox
