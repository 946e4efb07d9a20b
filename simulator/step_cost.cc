#include "simulator/step_cost.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "engine/base/check.h"

namespace verbatim {
namespace {

// Per element of the state and token.
constexpr double kScanOperations = 5;   // decay, input, output
constexpr double kDeltaOperations = 7;  // decay, the value at the key, the written value, output

// A micro-batch of `work`, one of `count`: its share of the sequences, and of every chunk's tokens. A share of a chunk
// is behind half of the others.
StepWork micro_batch(const StepWork& work, int64_t count) {
    const auto share = [count](int64_t value) { return (value + count - 1) / count; };
    StepWork part;
    for (const Chunk& chunk : work.chunks) {
        const int64_t num_new = share(chunk.num_new);
        part.chunks.push_back({num_new, chunk.past + (chunk.num_new - num_new) / 2});
        part.num_tokens += num_new;
    }
    part.num_decodes = share(work.num_decodes);
    part.num_drafts = share(work.num_drafts);
    part.decode_context = share(work.decode_context);
    part.longest_decode = work.longest_decode;
    part.window_pairs = share(work.window_pairs);
    part.num_tokens += part.num_decodes + part.num_drafts;
    part.num_logit_rows = share(work.num_logit_rows);
    part.num_state_writes = share(work.num_state_writes);
    part.num_copied_slots = share(work.num_copied_slots);
    part.step = work.step;
    return part;
}

// Appends pieces of at most `window` tokens. Token i of a piece sees min(past, window - 1 - i) positions before it.
void add_windowed(const Chunk& chunk, int64_t window, std::vector<Chunk>& pieces) {
    for (int64_t begin = 0; begin < chunk.num_new; begin += window) {
        const int64_t num_new = std::min(window, chunk.num_new - begin);
        const int64_t past = chunk.past + begin;
        const int64_t all_see = std::clamp(window - past, int64_t{0}, num_new);  // tokens that see the whole past
        const int64_t others = num_new - all_see;
        const int64_t seen = all_see * past + others * (window - 1 - all_see) - others * (others - 1) / 2;
        pieces.push_back({num_new, seen / num_new});
    }
}

DecodeBatch windowed(DecodeBatch batch, int64_t window) {
    batch.longest = std::min(batch.longest, real(window));
    batch.context = std::min(batch.context, real(batch.num_sequences * window));
    return batch;
}

}  // namespace

void StepWork::clear() {
    chunks.clear();
    num_decodes = num_drafts = decode_context = longest_decode = window_pairs = 0;
    num_tokens = num_logit_rows = num_state_writes = num_copied_slots = step = 0;
}

// Its tokens are counted apart.
void StepWork::add_window(const Chunk& window) {
    CHECK(window.num_new > 0 && window.past >= 0, "a window of {} tokens behind {}", window.num_new, window.past);
    const int64_t context = window.past + window.num_new;
    ++num_decodes;
    num_drafts += window.num_new - 1;
    decode_context += context;
    longest_decode = std::max(longest_decode, context);
    window_pairs += (window.num_new - 1) * window.past + window.num_new * (window.num_new - 1) / 2;
}

void StepWork::add(const StepPlan& plan) {
    for (const BlockCopy& copy : plan.copies) num_copied_slots += copy.num_slots;
    num_state_writes += static_cast<int64_t>(plan.state_writes.size());
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_new_tokens == 0) continue;  // only its state row moves
        num_tokens += sequence.num_new_tokens;
        num_logit_rows += sequence.num_logit_positions();
        const Chunk chunk{sequence.num_new_tokens, sequence.num_computed_tokens};
        const bool all_draw = chunk.num_new == sequence.num_sampled_positions;
        if (chunk.num_new == 1 || all_draw) {
            add_window(chunk);
        } else {
            chunks.push_back(chunk);
        }
    }
}

StepCost::StepCost(const ModelShape& model, const Device& device, const KernelTimes& kernels,
                   const ExpertChance& chance)
    : model_(model), device_(device), kernels_(kernels), roofline_(device), experts_(model.experts, chance) {}

Price StepCost::price(const StepWork& work) {
    Price price;
    if (work.num_tokens == 0) return price;
    CHECK(work.num_sequences() > 0, "{} tokens of no sequence", work.num_tokens);
    price.add(
        {device_.step_overhead_ns + device_.sequence_overhead_ns * real(work.num_sequences()), PriceSource::kAssumed});
    const int32_t num_stages = model_.parallelism.pipeline;
    if (num_stages == 1) {
        add_layers(work, price);
        return price;
    }
    const int64_t chunk_tokens = work.num_tokens - work.num_decodes - work.num_drafts;
    const StepWork part = micro_batch(work, std::min<int64_t>(num_stages, work.num_decodes + chunk_tokens));
    add_layers(part, price);
    price.add({num_stages * stage_message_ns(part.num_tokens), PriceSource::kRoofline});
    return price;
}

// Of all stages together.
void StepCost::add_layers(const StepWork& work, Price& price) {
    price.add(by_tokens(work.num_tokens));
    price.add(by_logit_rows(work.num_logit_rows));
    add_attention(work, price);
    add_recurrences(work, price);
    add_experts(work, price);
    if (work.num_copied_slots > 0) {
        price.add(roofline_.kernel(2 * real(work.num_copied_slots) * real(model_.kv_bytes_per_token), 0));
    }
}

// Within a node over a link, else over the network: each GPU of a stage sends its part of the rows.
double StepCost::stage_message_ns(int64_t num_tokens) const {
    constexpr double kNsPerSecond = 1e9;
    const bool in_node = model_.parallelism.num_gpus() <= device_.node_gpus;
    const double bytes = real(num_tokens * model_.hidden_bytes) / model_.parallelism.tensor;
    return bytes / (in_node ? device_.link_bytes_per_s : device_.network_bytes_per_s) * kNsPerSecond +
           device_.link_latency_ns;
}

void StepCost::add_collectives(int64_t num_rows, bool on_logits, Price& price) const {
    const int32_t num_gpus = model_.parallelism.tensor;
    if (num_gpus == 1) return;
    for (const CollectiveShape& shape : model_.collectives) {
        if (shape.on_logits != on_logits) continue;
        const double bytes = real(num_rows * shape.bytes_per_token);
        price.add(on_logits ? roofline_.all_gather(num_gpus, bytes) : kernels_.all_reduce(num_gpus, bytes),
                  shape.count);
    }
}

const Price& StepCost::by_tokens(int64_t num_tokens) {
    return by_tokens_.get(num_tokens, [&] { return dense(num_tokens, /*on_logits=*/false); });
}

const Price& StepCost::by_logit_rows(int64_t num_rows) {
    return by_logit_rows_.get(num_rows, [&] { return dense(num_rows, /*on_logits=*/true); });
}

// Only bf16 was measured: of other formats the measured time is scaled by the roofline.
KernelPrice StepCost::linear(const MatmulShape& shape, int64_t num_rows) const {
    KernelPrice price = kernels_.matmul(num_rows, shape.n, shape.k);
    if ((shape.on_logits ? model_.head_value_bytes : model_.weight_value_bytes) == kBf16Bytes) return price;
    const KernelPrice in_its_format =
        shape.on_logits ? head_matmul(num_rows, shape.n, shape.k) : grouped_matmul(1, num_rows, shape.n, shape.k);
    price.ns *= in_its_format.ns / roofline_.matmul(num_rows, shape.n, shape.k).ns;
    if (price.source != PriceSource::kRoofline) price.source = PriceSource::kExtrapolated;
    return price;
}

Price StepCost::dense(int64_t num_rows, bool on_logits) const {
    Price price;
    if (num_rows == 0) return price;
    for (const MatmulShape& shape : model_.matmuls) {
        if (shape.on_logits == on_logits) price.add(linear(shape, num_rows), shape.count);
    }
    for (const ElementwiseShape& shape : model_.elementwise) {
        if (shape.on_logits != on_logits) continue;
        price.add(roofline_.kernel(real(num_rows) * real(shape.bytes_per_token), 0), shape.count);
    }
    add_collectives(num_rows, on_logits, price);
    return price;
}

void StepCost::add_attention(const StepWork& work, Price& price) const {
    for (const AttentionShape& shape : model_.attentions) {
        if (shape.window > 0) {
            std::vector<Chunk> pieces;
            for (const Chunk& chunk : work.chunks) add_windowed(chunk, shape.window, pieces);
            if (!pieces.empty()) price.add(kernels_.context_attention(shape, pieces), shape.count);
            if (work.num_decodes > 0)
                price.add(kernels_.decode_attention(shape, windowed(work.decodes(), shape.window)), shape.count);
            continue;
        }
        if (!work.chunks.empty()) price.add(kernels_.context_attention(shape, work.chunks), shape.count);
        if (work.num_decodes > 0) price.add(kernels_.decode_attention(shape, work.decodes()), shape.count);
    }
}

const KernelPrice& StepCost::decode_conv(const ConvShape& shape, int64_t num_sequences) {
    auto found = std::ranges::find(decode_convs_, shape, &DecodeConvs::shape);
    if (found == decode_convs_.end()) found = decode_convs_.insert(found, {shape, {}});
    return found->by_sequences.get(num_sequences, [&] { return kernels_.conv(shape, num_sequences, num_sequences); });
}

void StepCost::add_conv(const StepWork& work, const ConvShape& shape, int32_t count, Price& price) {
    const auto num_chunks = static_cast<int64_t>(work.chunks.size());
    const int64_t num_drawing = work.num_decodes + work.num_drafts;
    if (num_chunks > 0) price.add(kernels_.conv(shape, num_chunks, work.num_tokens - num_drawing), count);
    if (work.num_drafts > 0) {
        price.add(kernels_.conv(shape, work.num_decodes, num_drawing), count);
    } else if (work.num_decodes > 0) {
        price.add(decode_conv(shape, work.num_decodes), count);
    }
}

void StepCost::add_update(const StepWork& work, const StateUpdate& update, Price& price) const {
    const auto num_chunks = static_cast<int64_t>(work.chunks.size());
    const double states = real(2 * (num_chunks + work.num_decodes) + work.num_state_writes);
    price.add(roofline_.kernel(update.elements * real(model_.state_value_bytes) * states +
                                   real(work.num_tokens) * update.row * kBf16Bytes,
                               update.operations * update.elements * real(work.num_tokens)),
              update.count);
}

// Steps of decodes alone are most steps: their recurrences are priced once per number of sequences.
void StepCost::add_recurrences(const StepWork& work, Price& price) {
    if (!work.chunks.empty() || work.num_drafts > 0 || work.num_state_writes > 0) {
        add_mamba(work, price);
        add_delta(work, price);
        return;
    }
    price.add(by_decodes_.get(work.num_decodes, [&] {
        Price recurrences;
        add_mamba(work, recurrences);
        add_delta(work, recurrences);
        return recurrences;
    }));
}

void StepCost::add_mamba(const StepWork& work, Price& price) {
    for (const MambaShape& shape : model_.mambas) {
        add_conv(work, shape.conv(), shape.count, price);
        add_update(work,
                   {.elements = real(shape.scan_elements()),
                    .operations = kScanOperations,
                    .row = real(shape.conv_dim() + shape.d_inner() + shape.n_heads),
                    .count = shape.count},
                   price);
    }
}

// Two gates per value head: how much is forgotten, and how much is written.
void StepCost::add_delta(const StepWork& work, Price& price) {
    for (const DeltaShape& shape : model_.deltas) {
        add_conv(work, shape.conv(), shape.count, price);
        add_update(work,
                   {.elements = real(shape.state_elements()),
                    .operations = kDeltaOperations,
                    .row = real(shape.conv_dim() + shape.value_rows() + 2 * int64_t{shape.n_value_heads}),
                    .count = shape.count},
                   price);
    }
}

// `num_rows` rows, each times the matrix [k, n] of one of `num_experts` experts.
KernelPrice StepCost::grouped_matmul(int64_t num_experts, int64_t num_rows, int64_t n, int64_t k) const {
    const bool is_native = roofline_.has(model_.products);
    const double input_bytes =
        is_native && model_.products != ProductFormat::kBf16 ? model_.weight_value_bytes : kBf16Bytes;
    return roofline_.kernel(model_.weight_value_bytes * real(num_experts) * real(n) * real(k) +
                                real(num_rows) * (kBf16Bytes * real(n) + input_bytes * real(k)),
                            2 * real(num_rows) * real(n) * real(k), is_native ? model_.products : ProductFormat::kBf16);
}

// In bf16, with weights in whatever the head is stored in.
KernelPrice StepCost::head_matmul(int64_t num_rows, int64_t n, int64_t k) const {
    return roofline_.kernel(
        model_.head_value_bytes * real(n) * real(k) + real(num_rows) * kBf16Bytes * (real(n) + real(k)),
        2 * real(num_rows) * real(n) * real(k), ProductFormat::kBf16);
}

void StepCost::add_experts(const StepWork& work, Price& price) {
    experts_.visit(work.step, work.num_tokens, [&](const ExpertsShape& shape, int64_t distinct) {
        const auto on_one_gpu = [groups = model_.parallelism.experts](int64_t count) {
            return (count + groups - 1) / groups;
        };
        const int64_t num_rows = on_one_gpu(work.num_tokens * shape.n_chosen);
        distinct = on_one_gpu(distinct);
        price.add(grouped_matmul(distinct, num_rows, int64_t{shape.num_up} * shape.d_ff, shape.row_width));
        price.add(grouped_matmul(distinct, num_rows, shape.row_width, shape.d_ff));
    });
}

}  // namespace verbatim
