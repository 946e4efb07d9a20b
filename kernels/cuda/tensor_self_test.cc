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
    device.multiply_tiles(a.data(), b.data(), c.data(), sums.data(), num_tiles);
    std::vector<float> got(c_words.size());
    sums.download(0, got);
    RETURN_IF_ERROR(device.synchronize());
    std::vector<TensorSums> results(tiles.size());
    for (size_t t = 0; t < results.size(); ++t) {
        std::memcpy(&results[t].d, &got[t * TensorSums::kCount], sizeof(results[t].d));
    }
    const std::string difference = difference_from_hopper(tiles, results);
    if (difference.empty()) return {};
    return tl::unexpected(Error{"tensor.sm90 is refused: in the self-test of " + device.description() + ", " +
                                    difference + "; exact runs everywhere",
                                ErrorKind::kMachine});
}

}  // namespace verbatim::cuda
