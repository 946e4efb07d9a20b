#include "kernels/cuda/tensor_self_test.h"

#include <cstring>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/result.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/tensor_fit.h"
#include "reference/numerics/float_bits.h"

namespace verbatim::cuda {
namespace {

// `part` of every tile as words: a bf16 pair has the lower k in the lower half.
template <typename Word, typename Part>
std::vector<Word> words_of(std::span<const TensorTile> tiles, const Part& part) {
    constexpr size_t kWords = sizeof(part(tiles.front())) / sizeof(Word);
    std::vector<Word> words(tiles.size() * kWords);
    for (size_t t = 0; t < tiles.size(); ++t) std::memcpy(&words[t * kWords], &part(tiles[t]), kWords * sizeof(Word));
    return words;
}

// For each of the two ways, how it differs from the model; empty: equal, or not available.
struct Differences {
    std::string by_warps;
    std::string by_groups;
    std::string remark;  // which rule the device follows where both are taken; empty: the model's
};

// Published models of one device disagree about zero factors (docs/numerics.md), and no value of a model that works
// shows which is right: both rules are granted, and the one that is not the model's is recorded.
constexpr TensorModel kOtherZeros{.zeros = TensorZeros::kHaveTheLeastExponent};

bool follows_other_zeros(std::span<const TensorTile> tiles, std::span<const TensorSums> sums) {
    const auto bits = [](float x) { return reference::is_nan(x) ? 0x7FC00000U : reference::bits_from_float(x); };
    for (size_t t = 0; t < tiles.size(); ++t) {
        const TensorSums wanted = multiply_by(kOtherZeros, tiles[t]);
        for (int i = 0; i < TensorSums::kCount; ++i) {
            if (bits(wanted.d[i / 8][i % 8]) != bits(sums[t].d[i / 8][i % 8])) return false;
        }
    }
    return true;
}

// How the sums differ from the model and from its other rule.
std::string difference(std::span<const TensorTile> tiles, std::span<const TensorSums> sums, const char* way,
                       std::string& remark) {
    std::string from_model = difference_from_hopper(tiles, sums);
    if (from_model.empty() || !follows_other_zeros(tiles, sums)) return from_model;
    remark += std::string("; tensor.sm90 by ") + way + ": zero factors have the exponent -126";
    return "";
}
Result<Differences> differences_of(Device& device, int64_t num_tiles) {
    CHECK(num_tiles > 0, "a self-test of {} tiles", num_tiles);
    const std::vector<TensorTile> tiles = tensor_tiles(num_tiles);
    Differences found;
    ASSIGN_OR_RETURN(const auto by_warps, multiply_on(device, TensorCaller::kWarp, tiles));
    found.by_warps = difference(tiles, by_warps, "mma.sync", found.remark);
    if (!device.uses_wgmma()) return found;
    ASSIGN_OR_RETURN(const auto by_groups, multiply_on(device, TensorCaller::kGroup, tiles));
    found.by_groups = difference(tiles, by_groups, "wgmma", found.remark);
    return found;
}

Status status_of(const Device& device, const Differences& found) {
    if (found.by_warps.empty() && found.by_groups.empty()) return {};
    std::string text = "tensor.sm90 is refused: in the self-test of " + device.description();
    if (!found.by_warps.empty()) text += ", by mma " + found.by_warps;
    if (!found.by_groups.empty()) text += ", by wgmma " + found.by_groups;
    return tl::unexpected(Error{text + "; exact runs everywhere", ErrorKind::kMachine});
}

}  // namespace

Result<std::vector<TensorSums>> multiply_on(Device& device, TensorCaller caller, std::span<const TensorTile> tiles) {
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
    device.multiply_tiles(caller, a.data(), b.data(), c.data(), sums.data(), std::ssize(tiles));
    std::vector<float> got(c_words.size());
    sums.download(0, got);
    RETURN_IF_ERROR(device.synchronize());
    std::vector<TensorSums> results(tiles.size());
    for (size_t t = 0; t < tiles.size(); ++t) {
        std::memcpy(&results[t].d, &got[t * TensorSums::kCount], sizeof(results[t].d));
    }
    return results;
}

Status test_tensor_cores(Device& device, int64_t num_tiles) {
    ASSIGN_OR_RETURN(const Differences found, differences_of(device, num_tiles));
    return status_of(device, found);
}

void grant_tensor_cores(Device& device, int64_t num_tiles) {
    const auto found = differences_of(device, num_tiles);
    if (!found) return device.set_self_test_result(tl::unexpected(found.error()));
    if (!found->by_warps.empty() || found->by_groups.empty())
        return device.set_self_test_result(status_of(device, *found), found->remark);
    device.use_warpgroups(false);
    device.set_self_test_result({}, found->remark +
                                        "; tensor.sm90 by mma.sync alone, no warpgroups: in the self-test, by wgmma " +
                                        found->by_groups);
}

}  // namespace verbatim::cuda
