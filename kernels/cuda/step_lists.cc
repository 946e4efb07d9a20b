#include "kernels/cuda/step_lists.h"

#include <algorithm>
#include <cstring>

namespace verbatim::cuda {
namespace {

constexpr int64_t kPlaceBytes = 64;  // every list begins at a multiple
constexpr int64_t kLeastRoom = 64;   // elements

template <typename T>
int64_t bytes_of(const std::vector<T>& values) {
    return static_cast<int64_t>(values.size() * sizeof(T));
}

}  // namespace

void StepLists::clear() {
    each(*this, [](auto& list) { list.values.clear(); });
}

// Room for twice of what did not fit, and places for all.
void StepLists::make_room() {
    bool fits = true;
    each(*this, [&](auto& list) {
        const auto size = static_cast<int64_t>(list.values.size());
        if (size <= list.room && list.room > 0) return;
        list.room = std::max({kLeastRoom, size, 2 * list.room});
        fits = false;
    });
    if (fits) return;
    int64_t end = 0;
    each(*this, [&](auto& list) {
        using T = typename std::remove_reference_t<decltype(list.values)>::value_type;
        static_assert(kPlaceBytes % sizeof(T) == 0);
        list.offset = end;
        end += (list.room * static_cast<int64_t>(sizeof(T)) + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
    });
    memory_ = DeviceArray<int32_t>(device_, end / static_cast<int64_t>(sizeof(int32_t)));
    pinned_.ensure(end);
    results_.ensure(tokens.offset);
}

void StepLists::upload() {
    make_room();
    if (pinned_.data() == nullptr || memory_.data() == nullptr) return;  // the device has failed
    int64_t end = 0;
    each(*this, [&](const auto& list) {
        if (list.values.empty()) return;
        std::memcpy(pinned_.data() + list.offset, list.values.data(), static_cast<size_t>(bytes_of(list.values)));
        end = list.offset + bytes_of(list.values);
    });
    device_.upload_later(memory_.data(), pinned_.data(), static_cast<size_t>(end));
}

void StepLists::download_results() {
    if (results_.data() == nullptr || memory_.data() == nullptr) return;  // the device has failed
    device_.download_later(results_.data(), memory_.data(), static_cast<size_t>(drawn.offset + bytes_of(drawn.values)));
}

}  // namespace verbatim::cuda
