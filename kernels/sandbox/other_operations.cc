// The operations whose results are integers: sampling, head_digest.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/operation_parts.h"

namespace verbatim::sandbox {
namespace {

// --- sampling: rows, vocab, prompt, generated

constexpr const char* kSamplingContract =
    "logits [rows, vocab] f32, finite; draws [rows]; prompt, generated: ids of the row's prefix; tokens [rows] i32\n"
    "1  ids in prompt or generated, once each:  l = l > 0 ? l / repetition : l * repetition\n"
    "   ids generated n times:                  l = l - presence;  l = fma(-frequency, float(n), l)\n"
    "   (a penalty that is off, 1 or 0, changes nothing)\n"
    "2  temperature 0: the lowest id among the largest l. Else l = l / temperature\n"
    "3  order: l descending, then id ascending; top_k > 0 keeps the first top_k\n"
    "4  0 < top_p < 1: of what is kept, weight = floor(exp(l - max) * 2^32); the shortest part of the order whose "
    "weights\n"
    "   add up to ceil(top_p * total) is kept; all in integers, top_p taken as the exact value of its binary32\n"
    "5  the lowest id among the largest l + gumbel_noise(seed, position, id)      reference/numerics/draw.h\n";

constexpr int64_t kDrawWords = sizeof(verbatim_draw) / 8;
static_assert(sizeof(verbatim_draw) == kDrawWords * 8);

std::vector<TensorSpec> sampling_tensors(const Sizes& sizes) {
    const auto integers = [](const char* name, Dtype dtype, int64_t width) {
        return TensorSpec{.name = name, .dtype = dtype, .width = width, .fill = Fill::kOwn};
    };
    return {{.name = "logits", .width = sizes[1], .strided = true},
            integers("draws", Dtype::kU64, kDrawWords),
            integers("prompt", Dtype::kI32, sizes[2]),
            integers("num_prompt", Dtype::kI32, 1),
            integers("generated", Dtype::kI32, sizes[3]),
            integers("num_generated", Dtype::kI32, 1),
            {.name = "tokens", .dtype = Dtype::kI32, .role = Role::kOut, .width = 1}};
}

verbatim_draw some_draw(int64_t vocab, Prng& prng) {
    constexpr float kTemperatures[] = {0.0F, 1.0F, 0.7F, 1e-30F};
    constexpr float kTopPs[] = {1.0F, 0.9F, 0.5F, 0.999F, 1e-6F};
    const auto top_k = static_cast<int32_t>(prng.below(static_cast<uint64_t>(vocab + 2)));
    return {.temperature = kTemperatures[prng.below(4)],
            .top_k = prng.below(2) == 0 ? 0 : top_k,
            .top_p = kTopPs[prng.below(5)],
            .repetition_penalty = prng.below(3) == 0 ? 1.3F : 1.0F,
            .presence_penalty = prng.below(4) == 0 ? -0.7F : 0.0F,
            .frequency_penalty = prng.below(3) == 0 ? 0.4F : 0.0F,
            .seed = prng.next(),
            .position = prng.next() >> prng.below(64)};
}

// Ids in all places, of which some are counted.
void fill_ids(Tensor& ids, Tensor& counts, int64_t vocab, Prng& prng) {
    for (int32_t& id : ids.as<int32_t>()) id = static_cast<int32_t>(prng.below(static_cast<uint64_t>(vocab)));
    for (int32_t& count : counts.as<int32_t>()) {
        count = static_cast<int32_t>(prng.below(static_cast<uint64_t>(ids.spec.width + 1)));
    }
}
void sampling_finish(Arguments& arguments, Prng& prng) {
    for (verbatim_draw& draw : arguments.tensor("draws").as<verbatim_draw>())
        draw = some_draw(arguments.sizes[1], prng);
    fill_ids(arguments.tensor("prompt"), arguments.tensor("num_prompt"), arguments.sizes[1], prng);
    fill_ids(arguments.tensor("generated"), arguments.tensor("num_generated"), arguments.sizes[1], prng);
}
// The same rows with prefixes as wide as they need, and wider ones.
std::vector<Arguments> sampling_bounded_otherwise(const Arguments& call) {
    std::vector<Arguments> calls;
    for (const bool wider : {false, true}) {
        Sizes sizes = call.sizes;
        const std::pair<const char*, const char*> prefixes[] = {{"prompt", "num_prompt"},
                                                                {"generated", "num_generated"}};
        for (size_t i = 0; i < 2; ++i) {
            const auto counts = call.tensor(prefixes[i].second).as<int32_t>();
            sizes[2 + i] = wider ? sizes[2 + i] + 70 : *std::ranges::max_element(counts);
        }
        Arguments& other = calls.emplace_back(empty_arguments(*call.operation, sizes, call.item_rows));
        for (const char* name : {"logits", "draws", "num_prompt", "num_generated"})
            other.tensor(name).bytes = call.tensor(name).bytes;
        for (size_t i = 0; i < 2; ++i) {
            const auto from = call.tensor(prefixes[i].first).as<int32_t>();
            const auto to = other.tensor(prefixes[i].first).as<int32_t>();
            const int64_t count = std::min(call.sizes[2 + i], sizes[2 + i]);
            for (int64_t row = 0; row < call.num_rows(); ++row)
                std::ranges::copy_n(from.begin() + row * call.sizes[2 + i], count, to.begin() + row * sizes[2 + i]);
        }
    }
    return calls;
}
bool is_allowed(const verbatim_draw& draw) {
    const bool finite = std::isfinite(draw.temperature) && std::isfinite(draw.repetition_penalty) &&
                        std::isfinite(draw.presence_penalty) && std::isfinite(draw.frequency_penalty);
    return finite && draw.temperature >= 0 && draw.top_k >= 0 && draw.top_p > 0 && draw.repetition_penalty > 0;
}
Status sampling_admits(const Arguments& arguments) {
    const auto logits = arguments.tensor("logits").as<float>();
    if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
        return error("`logits` are not finite");
    }
    if (!std::ranges::all_of(arguments.tensor("draws").as<verbatim_draw>(), is_allowed)) {
        return error("`draws` has a parameter that no request may have");
    }
    for (const auto& [ids, counts] : {std::pair{"prompt", "num_prompt"}, {"generated", "num_generated"}}) {
        RETURN_IF_ERROR(in_range<int32_t>(arguments, ids, 0, arguments.sizes[1]));
        RETURN_IF_ERROR(in_range<int32_t>(arguments, counts, 0, arguments.tensor(ids).spec.width + 1));
    }
    return {};
}
verbatim_args sampling_bind(const Placed& call, AbiArgs& abi) {
    abi.sampling = {.logits = placed_inputs(call, 0, call.sizes[1]),
                    .draws = placed<const verbatim_draw>(call, 1),
                    .prompt = placed<const int32_t>(call, 2),
                    .num_prompt = placed<const int32_t>(call, 3),
                    .generated = placed<const int32_t>(call, 4),
                    .num_generated = placed<const int32_t>(call, 5),
                    .max_prompt = call.sizes[2],
                    .max_generated = call.sizes[3],
                    .tokens = placed<int32_t>(call, 6)};
    return {.sampling = &abi.sampling};
}
// Of a logit: division, exp, noise and comparison.
Work sampling_work(const Arguments& arguments) {
    return {bytes_of_tensors(arguments),
            40.0 * static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[1])};
}
std::vector<Sizes> sampling_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        shapes.push_back({1, config.vocab_size, 9, 9});
    });
}

// Most ids need more than 16 bits.
const std::vector<int64_t> kRealVocabs = {131'073, 200'001, 262'145};

Operation sampling() {
    return {.name = "sampling",
            .contract = kSamplingContract,
            .takes_not_finite = false,
            .sizes = {{"rows", 1, 3, {1, 2, 3, 5}, false, false, real_rows()},
                      {"vocab", 1, 40, {1, 2, 3, 4, 5, 31, 64, 65, 257, 1023, 1024, 1025}, false, true, kRealVocabs},
                      {"prompt", 0, 5, {0, 1, 5, 64}},
                      {"generated", 0, 5, {0, 1, 5, 20}}},
            .published = sampling_published,
            .tensors = sampling_tensors,
            .items = single_rows,
            .finish = sampling_finish,
            .bounded_otherwise = sampling_bounded_otherwise,
            .admits = sampling_admits,
            .bind = sampling_bind,
            .work = sampling_work};
}

// --- head_digest: rows, width, element_bytes, pieces

constexpr const char* kDigestContract =
    "elements [rows, width] of 2 or 4 bytes, first_index [rows] i64 or null (zeros), sums [rows, 2] u64\n"
    "element i of row r has number e = first_index[r] + i and bits b (zero-extended); all modulo 2^64, in any order:\n"
    "  mixed = (e << 32 | b) + (1 + (e >> 32)) * 0x9E3779B97F4A7C15\n"
    "  mixed = (mixed ^ mixed >> 33) * 0xFF51AFD7ED558CCD;  mixed = (mixed ^ mixed >> 33) * 0xC4CEB9FE1A85EC53\n"
    "  mixed = mixed ^ mixed >> 33;                         low += mixed\n"
    "  again = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93;  high += again ^ again >> 32\n";

std::vector<TensorSpec> digest_tensors(const Sizes& sizes) {
    return {
        {.name = "elements", .dtype = sizes[2] == 2 ? Dtype::kBf16 : Dtype::kF32, .width = sizes[1], .strided = true},
        {.name = "first_index", .dtype = Dtype::kI64, .width = sizes[3] != 0 ? 1 : 0, .fill = Fill::kOwn},
        {.name = "sums", .dtype = Dtype::kU64, .role = Role::kOut, .width = 2}};
}
void digest_finish(Arguments& arguments, Prng& prng) {
    for (int64_t& first : arguments.tensor("first_index").as<int64_t>()) {
        first = static_cast<int64_t>(prng.next() >> (24 + prng.below(40)));
    }
}
Status digest_admits(const Arguments& arguments) {
    return in_range<int64_t>(arguments, "first_index", 0, int64_t{1} << 62);
}
verbatim_args digest_bind(const Placed& call, AbiArgs& abi) {
    abi.head_digest = {.element_bytes = call.sizes[2],
                       .elements = call.data[0],
                       .num_rows = call.num_rows,
                       .width = call.sizes[1],
                       .stride = call.stride[0],
                       .first_index = placed<const int64_t>(call, 1),
                       .sums = placed<uint64_t>(call, 2)};
    return {.head_digest = &abi.head_digest};
}
Work digest_work(const Arguments& arguments) {
    return {bytes_of_tensors(arguments),
            16.0 * static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[1])};
}
std::vector<Sizes> digest_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* attention = first_of(config, &reference::LayerConfig::attention)) {
            shapes.push_back({2, 100 * attention->kv_rows(), 2, 0});
        }
        if (const auto* mamba = first_of(config, &reference::LayerConfig::mamba)) {
            shapes.push_back({1, mamba->d_inner() * mamba->d_state, 4, 0});
        }
    });
}

Operation head_digest() {
    return {.name = "head_digest",
            .contract = kDigestContract,
            .sizes = {{"rows", 1, 3, {1, 2, 3, 5}, false, false, real_rows()},
                      {"width", 1, 70, edges_up_to(513), false, true},
                      {"element_bytes", 2, 4, {2, 4}, true},
                      {"pieces", 0, 0, {0, 1}, true}},
            .published = digest_published,
            .tensors = digest_tensors,
            .items = single_rows,
            .finish = digest_finish,
            .admits = digest_admits,
            .bind = digest_bind,
            .work = digest_work};
}

}  // namespace

std::vector<Operation> other_operations() { return {sampling(), head_digest()}; }

}  // namespace verbatim::sandbox
