#include "kernels/cuda/tensor_self_test.h"

#include <cstring>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/result.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/tensor_fit.h"

namespace verbatim::cuda {
namespace {

// `part` of every tile, as words: pairs of bf16 have the lower k in the lower half.
template <typename Word, typename Part>
std::vector<Word> words_of(const std::vector<TensorTile>& tiles, const Part& part) {
    constexpr size_t kWords = sizeof(part(tiles.front())) / sizeof(Word);
    std::vector<Word> words(tiles.size() * kWords);
    for (size_t t = 0; t < tiles.size(); ++t) std::memcpy(&words[t * kWords], &part(tiles[t]), kWords * sizeof(Word));
    return words;
}

std::vector<TensorSums> sums_of(const std::vector<float>& values) {
    std::vector<TensorSums> sums(values.size() / TensorSums::kCount);
    for (size_t t = 0; t < sums.size(); ++t) {
        std::memcpy(&sums[t].d, &values[t * TensorSums::kCount], sizeof(sums[t].d));
    }
    return sums;
}

}  // namespace

Status test_tensor_cores(Device& device, int64_t num_tiles) {
    CHECK(num_tiles > 0, "a self-test of {} tiles", num_tiles);
    const std::vector<TensorTile> tiles = tensor_tiles(num_tiles);
    const auto a_words = words_of<uint32_t>(
        tiles, [](const TensorTile& tile) -> const auto& { return tile.a; });
    const auto b_words = words_of<uint32_t>(
        tiles, [](const TensorTile& tile) -> const auto& { return tile.b; });
    const auto c_words = words_of<float>(
        tiles, [](const TensorTile& tile) -> const auto& { return tile.c; });
    const DeviceArray<uint32_t> a(device, std::span<const uint32_t>(a_words));
    const DeviceArray<uint32_t> b(device, std::span<const uint32_t>(b_words));
    const DeviceArray<float> c(device, std::span<const float>(c_words));
    const DeviceArray<float> sums(device, std::ssize(c_words));
    std::string differences;
    for (const TensorCaller caller : {TensorCaller::kWarp, TensorCaller::kGroup}) {
        if (caller == TensorCaller::kGroup && !device.multiplies_by_groups()) continue;
        device.multiply_tiles(caller, a.data(), b.data(), c.data(), sums.data(), num_tiles);
        std::vector<float> got(c_words.size());
        sums.download(0, got);
        RETURN_IF_ERROR(device.synchronize());
        const std::string difference = difference_from_hopper(tiles, sums_of(got));
        if (difference.empty()) continue;
        differences += caller == TensorCaller::kWarp ? ", by mma " : ", by wgmma ";
        differences += difference;
    }
    if (differences.empty()) return {};
    return tl::unexpected(Error{
        "tensor.sm90 is refused: in the self-test of " + device.description() + differences + "; exact runs everywhere",
        ErrorKind::kMachine});
}

}  // namespace verbatim::cuda
