#include "kernels/cuda/cuda_backend.h"

#include <algorithm>

#include "engine/base/check.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/pack_blocks.h"
#include "reference/forward_pass.h"

namespace verbatim::cuda {

using reference::Buffer;
using reference::Columns;
using reference::Matrix;
using reference::MatrixId;
using reference::StateKind;
using reference::StatePer;
using reference::StateTensor;

namespace {

constexpr int64_t kMinRuns = 64;        // capacity of attention's workspace
constexpr int64_t kMaxGraphRows = 512;  // of a step that runs as a graph

// The numbers of sequences and rows that graphs exist for: powers of two and the midpoints between them.
int64_t round_up(int64_t count) {
    int64_t power = 1;
    while (2 * power < count) power *= 2;
    if (count <= power) return power;
    return count <= power / 2 * 3 ? power / 2 * 3 : 2 * power;
}

// Whether every row draws: one token per sequence, or windows.
bool is_decode(const PooledStep& step) {
    const int64_t num_rows = step.batch.num_rows();
    const bool scores = std::ranges::any_of(step.sequences, [](const auto& of) { return of.num_scored_positions > 0; });
    return num_rows > 0 && num_rows <= kMaxGraphRows && !step.is_observed() && !scores &&
           step.batch.num_logit_rows() == num_rows;
}

// A padding sequence has at least one row.
GraphShape graph_shape(int64_t num_sequences, int64_t num_rows) {
    if (num_rows == num_sequences) return {round_up(num_rows), round_up(num_rows)};
    const auto shape_from = [&](int64_t sequences) {
        return GraphShape{sequences, round_up(num_rows + sequences - num_sequences)};
    };
    const GraphShape shape = shape_from(round_up(num_sequences));
    const bool nobody_fills = shape.num_sequences == num_sequences && shape.num_rows > num_rows;
    return nobody_fills ? shape_from(round_up(num_sequences + 1)) : shape;
}

DeviceArray<float> floats_of(Device& device, std::span<const float> values) {
    return values.empty() ? DeviceArray<float>() : DeviceArray<float>(device, values);
}

AttentionShape shape_of(const reference::AttentionConfig& attention, float scale = 1.0F) {
    return {attention.n_heads, attention.n_kv_heads, attention.head_dim, scale};
}

// The number of rows that may attend in one CTA in every layer.
int64_t query_rows(const reference::ModelConfig& config) {
    int64_t rows = kAttendColumns;
    for (const reference::LayerConfig& layer : config.layers) {
        if (layer.attention) rows = std::min(rows, attend_rows(shape_of(*layer.attention)));
    }
    return rows;
}

// Whether many rows may attend by tiles in every layer.
bool attends_by_tiles(const Device& device, reference::Profile profile, const reference::ModelConfig& config,
                      int32_t block_size) {
    return std::ranges::all_of(config.layers, [&](const reference::LayerConfig& layer) {
        return !layer.attention || device.attends_by_tiles(profile, shape_of(*layer.attention), block_size);
    });
}

// Number of matrices of one shape that lie one after another: experts.
int64_t copies_of(const reference::ModelConfig& config, MatrixId id) {
    const bool of_expert =
        id.matrix == Matrix::kExpertGate || id.matrix == Matrix::kExpertUp || id.matrix == Matrix::kExpertDown;
    return of_expert ? config.layers[id.layer].moe->n_experts : 1;
}

// Whether the device stores this tensor: all of a state row, of the blocks K and V.
bool has_room(const StateTensor& tensor) {
    return tensor.per == StatePer::kSequence || tensor.kind == StateKind::kK || tensor.kind == StateKind::kV;
}

}  // namespace

std::vector<std::string> unsupported(const reference::ModelConfig& config, const PoolSizes& pools,
                                     const CudaLimits& limits) {
    std::vector<std::string> problems;
    const auto most = [&](size_t layer, const char* field, int64_t value, int64_t limit) {
        if (value <= limit) return;
        problems.push_back(
            fmt::format("layer {}: {} = {}, the CUDA kernels take up to {}", layer, field, value, limit));
    };
    for (size_t i = 0; i < config.layers.size(); ++i) {
        if (const auto& moe = config.layers[i].moe) most(i, "n_experts", moe->n_experts, limits.experts);
        if (const auto& delta = config.layers[i].delta) {
            most(i, "tiled_values", delta->tiled_values ? 1 : 0, 0);
            most(i, "key_dim", delta->key_dim, limits.key_dim);
            most(i, "d_conv", delta->d_conv, limits.d_conv);
            most(i, "n_value_heads", delta->n_value_heads, limits.mamba_heads);
            most(i, "2 · n_key_heads", 2 * int64_t{delta->n_key_heads}, limits.mamba_heads);
            most(i, "state elements", delta->state_elements(), limits.state_floats);
        }
        if (const auto& attention = config.layers[i].attention) {
            most(i, "head_dim", attention->head_dim, limits.head_dim);
            most(i, "num_blocks · block_size · n_kv_heads",
                 int64_t{pools.num_blocks} * pools.block_size * attention->n_kv_heads, limits.kv_slots);
        }
        const auto& mamba = config.layers[i].mamba;
        if (!mamba) continue;
        most(i, "d_state", mamba->d_state, limits.d_state);
        most(i, "d_conv", mamba->d_conv, limits.d_conv);
        most(i, "n_heads", mamba->n_heads, limits.mamba_heads);
        most(i, "d_inner · d_state", mamba->d_inner() * mamba->d_state, limits.state_floats);
    }
    return problems;
}

std::vector<std::string> unsupported_weights(const reference::ModelConfig& config,
                                             const reference::ModelWeights& weights) {
    std::map<std::string, std::string> first_place;  // of each problem
    const auto take = [&](const std::string& where, const reference::BlockFormat* format) {
        if (format != nullptr && !find_weight_format(*format))
            first_place.emplace(fmt::format("the CUDA kernels take no {}", format->name), where);
    };
    take("the embedding", weights.embedding.format);
    for (const MatrixId id : reference::matrices_of(config)) {
        const reference::MatrixView weight = linear_of(weights, id).weight;
        const reference::MatrixView first = linear_of(weights, {id.layer, id.matrix}).weight;
        const std::string where = fmt::format("layer {}, {}", id.layer, matrix_name(id.matrix));
        take(where, weight.format);
        if (weight.format != first.format || weight.activations != first.activations)
            first_place.emplace("the CUDA kernels take experts whose weights have one type", where);
    }
    std::vector<std::string> problems;
    for (const auto& [problem, where] : first_place) problems.push_back(where + ": " + problem);
    return problems;
}

// --- data that stays on the device

CudaBackend::CudaBackend(KernelModel& model, const reference::StateTensors& tensors, Device& device,
                         const PooledExecutorConfig& pooled, const UnitPlaces& places, reference::Profile profile,
                         int32_t num_threads)
    : model_(model),
      tensors_(tensors),
      device_(device),
      pools_(pooled.pools),
      profile_(profile),
      place_(model.config().layers.size() + 1),
      layers_(model.config().layers.size()),
      final_norm_(device, model.norm(static_cast<int32_t>(model.config().layers.size()), reference::Norm::kFinal)),
      row_layout_(row_layout(tensors, kSectorBytes)),
      log_(device, model.config(), pooled.max_log_tokens),
      lists_(device, model.config().vocab_size, query_rows(model.config()),
             attends_by_tiles(device, profile, model.config(), pooled.pools.block_size)) {
    CHECK(unsupported(config(), pools_, device.limits()).empty());
    CHECK(std::ranges::all_of(tensors, has_room), "the device's blocks hold K and V alone");
    CHECK(unsupported_weights(config(), model.weights()).empty());
    reference::WorkerPool threads(num_threads);
    upload_embedding(threads);
    pack_matrices(threads);
    make_pools(places);
    // Sized for the longest possible head: a later allocation would invalidate every graph.
    head_blocks_ = DeviceArray<int32_t>(device, pools_.num_blocks);
    head_sums_ = DeviceArray<uint64_t>(device, 2 * std::ssize(tensors));
    for (size_t i = 0; i < layers_.size(); ++i) upload_layer(static_cast<int32_t>(i));
}

void CudaBackend::upload_embedding(reference::WorkerPool& threads) {
    const reference::MatrixView& table = model_.weights().embedding;
    if (table.is_quantised()) {
        const auto words = pack_blocks(table, threads);
        embedding_blocks_ = {DeviceArray<uint32_t>(device_, std::span<const uint32_t>(words)),
                             {},
                             table.rows,
                             table.cols,
                             *find_weight_format(*table.format),
                             RowForm::kPairs};
    } else {
        embedding_ = DeviceArray<uint16_t>(
            device_, std::span<const uint16_t>(table.data, static_cast<size_t>(table.rows * table.cols)));
    }
}

void CudaBackend::pack_matrices(reference::WorkerPool& threads) {
    const auto ids = reference::matrices_of(config());
    for (const MatrixId id : ids) {
        const reference::Linear linear = linear_of(model_.weights(), id);
        const bool quantised = linear.weight.is_quantised();
        CHECK(!quantised || takes_blocks(profile_), "{}", reference::name(profile_));
        const std::vector<uint32_t> words = quantised           ? pack_blocks(linear.weight, threads)
                                            : on_tensor_cores() ? pack_fragments(linear.weight, threads)
                                                                : pack_pairs(linear.weight, threads);
        const auto size = static_cast<int64_t>(words.size());
        if (id.expert == 0) {
            place_[id.layer][static_cast<size_t>(id.matrix)] = static_cast<int32_t>(matrices_.size());
            matrices_.push_back({DeviceArray<uint32_t>(device_, size * copies_of(config(), id)),
                                 floats_of(device_, linear.bias), linear.weight.rows, linear.weight.cols,
                                 quantised ? *find_weight_format(*linear.weight.format) : WeightFormat::kPairs,
                                 inputs_of(linear.weight)});
        }
        Matrix& matrix = matrices_[place_[id.layer][static_cast<size_t>(id.matrix)]];
        matrix.words.upload(id.expert * size, words);
        if (matrix.inputs == RowForm::kFp8OfRow) take_static_scale(matrix, id, linear.weight.activation_scale);
    }
}

void CudaBackend::take_static_scale(Matrix& matrix, MatrixId id, float scale) {
    const int64_t copies = copies_of(config(), id);
    if (id.expert == 0) matrix.static_scale = scale;
    if (copies == 1 || scale == 0.0F) return;
    if (id.expert == 0) matrix.expert_scales = DeviceArray<float>(device_, copies);
    matrix.expert_scales.upload(id.expert, std::span(&scale, 1));
}

void CudaBackend::upload_layer(int32_t i) {
    Layer& layer = layers_[i];
    layer.mixer_norm = floats_of(device_, model_.norm(i, reference::Norm::kMixer));
    layer.mlp_norm = floats_of(device_, model_.norm(i, reference::Norm::kMlp));
    layer.few_rows = few_rows_of(config().layers[i]);
    upload_mixer(i);
    if (config().layers[i].moe) upload_moe(i);
    if (const auto& attention = config().layers[i].attention) {
        layer.q_norm = floats_of(device_, model_.q_norm(i));
        layer.k_norm = floats_of(device_, model_.k_norm(i));
        run_floats_ = std::max(run_floats_, attention_floats(1, shape_of(*attention)));
        if (attention->rope.kind != reference::RopeKind::kNone) upload_angles(i);
    }
}

void CudaBackend::upload_mixer(int32_t i) {
    const reference::LayerWeights& weights = model_.weights().layers[i];
    Layer& layer = layers_[i];
    if (config().layers[i].mamba) {
        layer.gate_norm = floats_of(device_, weights.mamba.norm);
        layer.conv_weight = floats_of(device_, weights.mamba.conv_weight);
        layer.conv_bias = floats_of(device_, weights.mamba.conv_bias);
        layer.a = floats_of(device_, model_.decay_rates(i));
        layer.d = floats_of(device_, weights.mamba.d);
        layer.dt_bias = floats_of(device_, weights.mamba.dt_bias);
    }
    if (const auto& delta = config().layers[i].delta) {
        std::vector<float> norm;  // one head's, repeated for each head
        for (int32_t head = 0; head < delta->n_value_heads; ++head) {
            norm.insert(norm.end(), weights.delta.norm.begin(), weights.delta.norm.end());
        }
        layer.gate_norm = floats_of(device_, norm);
        layer.conv_weight = floats_of(device_, weights.delta.conv_weight);
        layer.a = floats_of(device_, model_.decay_rates(i));
        layer.dt_bias = floats_of(device_, weights.delta.dt_bias);
    }
}

void CudaBackend::upload_angles(int32_t layer) {
    const int64_t num_positions =
        std::min<int64_t>(int64_t{pools_.num_blocks} * pools_.block_size, config().max_position_embeddings);
    const RotaryTable& table = model_.rotary_table(layer, num_positions);
    const auto known = std::ranges::find(angles_, &table, &Angles::table);
    layers_[layer].angles = static_cast<size_t>(known - angles_.begin());
    if (known != angles_.end()) return;
    const auto count = static_cast<size_t>(table.num_positions() * table.n_pairs());
    angles_.push_back({&table, DeviceArray<float>(device_, std::span<const float>(table.cos(0), count)),
                       DeviceArray<float>(device_, std::span<const float>(table.sin(0), count))});
}

// --- a step

void CudaBackend::run(const PooledStep& step) {
    if (step.sequences.empty() && step.moves.empty() && step.copies.empty()) return;
    CHECK_LE(std::ssize(step.draws), step.batch.num_logit_rows());
    const bool decodes = is_decode(step);
    const PooledStep padded = decodes ? pad(step) : step;
    has_host_logits_ = false;
    upload_lists(padded, decodes);
    copy_tails(static_cast<int64_t>(step.copies.size()));
    if (!step.moves.empty()) move_states();
    if (decodes) {
        run_graph(padded);
    } else if (!step.sequences.empty()) {
        walk(step);
    }
    lists_.download_results();
    status_ = device_.synchronize();
}

// Pads the step to a size that has a graph, with sequences that neither attend nor write.
PooledStep CudaBackend::pad(const PooledStep& step) {
    padded_.tokens.assign(step.batch.tokens.begin(), step.batch.tokens.end());
    padded_.parts.assign(step.batch.sequences.begin(), step.batch.sequences.end());
    padded_.sequences.assign(step.sequences.begin(), step.sequences.end());
    padded_.logit_rows.assign(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
    padded_.draws.assign(step.draws.begin(), step.draws.end());
    const auto [num_sequences, num_rows] = graph_shape(std::ssize(step.sequences), step.batch.num_rows());
    for (int64_t i = std::ssize(step.sequences); i < num_sequences; ++i) {
        const auto first_row = static_cast<int32_t>(padded_.tokens.size());
        const auto count = static_cast<int32_t>((num_rows - first_row) / (num_sequences - i));
        CHECK_GT(count, 0);
        padded_.parts.push_back({first_row, count, 0});
        padded_.sequences.push_back({.slot = kNoSlot, .num_sampled_positions = count});
        for (int32_t r = 0; r < count; ++r) padded_.logit_rows.push_back(first_row + r);
        padded_.tokens.resize(padded_.tokens.size() + count);
        padded_.draws.resize(padded_.draws.size() + count);
    }
    CHECK(std::ssize(padded_.tokens) == num_rows && std::ssize(padded_.logit_rows) == num_rows,
          "{} tokens and {} rows of logits in a step of {}", padded_.tokens.size(), padded_.logit_rows.size(),
          num_rows);
    return {{padded_.tokens, padded_.parts, padded_.logit_rows},
            padded_.sequences,
            step.moves,
            step.copies,
            padded_.draws,
            step.observer};
}

void CudaBackend::upload_lists(const PooledStep& step, bool decodes) {
    lists_.describe(step, log_, decodes);
    lists_.upload();
    step_ = lists_.batch();
    const int64_t num_runs = lists_.first_runs.values.back();
    CHECK_GE(num_runs, 0);
    if (num_runs > max_runs_) max_runs_ = std::max({kMinRuns, num_runs, 2 * max_runs_});
    step_.max_runs = max_runs_;
    workspace_.ensure(device_, max_runs_ * run_floats_);
}

void CudaBackend::copy_tails(int64_t num_copies) {
    if (num_copies == 0) return;
    for (size_t i = 0; i < layers_.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        const auto& attention = config().layers[i].attention;
        if (attention) device_.copy_tails(lists_.place(lists_.copies), num_copies, pages(layer));
    }
}

void CudaBackend::walk(const PooledStep& step) {
    set_step(config(), step);
    is_few_rows_ = !step.is_observed() && !model_.weights().quantised && step.batch.num_rows() <= matvec_rows(profile_);
    takes_norms_ = is_few_rows_ && step.batch.num_rows() <= kMatvecNormRows;
    reference::walk(config(), model_.pass(), step.batch, *this);
    CHECK_EQ(waiting_.num_products, 0);
    if (step.batch.num_logit_rows() > 0) draw();
}

void CudaBackend::draw() {
    const Floats logits = rows(Buffer::kLogits, config().vocab_size);
    CHECK_EQ(logits.num_rows, step_.num_logit_rows);
    const int64_t num_parts = logits.num_rows * draw_parts(logits.width);
    device_.draw(step_, logits,
                 {.scaled = scaled_.ensure(device_, logits.num_rows * logits.width),
                  .lowest = lowest_.ensure(device_, logits.num_rows),
                  .scores = scores_.ensure(device_, num_parts),
                  .ids = ids_.ensure(device_, num_parts)});
}

// The first step of a shape runs launch by launch and allocates its memory; the second one records the graph.
void CudaBackend::run_graph(const PooledStep& step) {
    Bucket& bucket = buckets_[{std::ssize(step.sequences), step.batch.num_rows()}];
    if (bucket.num_allocations != device_.counts().allocations) {
        bucket.graph.reset();
        walk(step);
        bucket.num_allocations = device_.counts().allocations;
        return;
    }
    if (!bucket.graph) {
        device_.begin_graph();
        walk(step);
        bucket.graph = device_.end_graph();
    }
    device_.launch_graph(*bucket.graph);
}

void CudaBackend::begin(const reference::WalkBatch& batch) {
    PooledWalk::begin(batch);
    rounded_from_.reset();
    quantised_.from.reset();
}

std::span<const float> CudaBackend::logits(int64_t logit_row) {
    CHECK(logit_row >= 0 && logit_row < step_.num_logit_rows, "logits of row {} of {}", logit_row,
          step_.num_logit_rows);
    const auto width = static_cast<size_t>(config().vocab_size);
    if (!has_host_logits_) {
        host_logits_.resize(static_cast<size_t>(step_.num_logit_rows) * width);
        buffers_[static_cast<size_t>(Buffer::kLogits)].floats.download(0, host_logits_);
        has_host_logits_ = true;
    }
    return std::span(host_logits_).subspan(static_cast<size_t>(logit_row) * width, width);
}

std::optional<TokenId> CudaBackend::drawn(int64_t logit_row) const { return lists_.result(lists_.drawn, logit_row); }

std::optional<int32_t> CudaBackend::fault_layer(int64_t logit_row) const {
    if (!status_) return std::nullopt;
    const int32_t layer = lists_.result(lists_.faults, logit_row);
    return layer == StepLists::kNoFault ? std::nullopt : std::optional(layer);
}

// --- buffers

Floats CudaBackend::fresh(Buffer buffer, int64_t width) {
    CHECK_GT(width, 0);
    Activations& activations = buffers_[static_cast<size_t>(buffer)];
    activations.width = width;
    activations.floats.ensure(device_, num_rows(buffer) * width);
    forget_inputs(buffer);
    return rows(buffer, width);
}

// The buffer changes: matmuls no longer read what was made of it.
void CudaBackend::forget_inputs(Buffer of) {
    if (rounded_from_ == of) rounded_from_.reset();
    if (quantised_.from == of) quantised_.from.reset();
}

Floats CudaBackend::rows(Buffer buffer, int64_t width) const {
    const Activations& activations = buffers_[static_cast<size_t>(buffer)];
    CHECK_EQ(activations.width, width);
    return {activations.floats.data(), num_rows(buffer), width, width};
}

reference::ConstFloatRows CudaBackend::host_rows(Buffer buffer) {
    const Activations& activations = buffers_[static_cast<size_t>(buffer)];
    host_floats_.resize(static_cast<size_t>(num_rows(buffer) * activations.width));
    activations.floats.download(0, host_floats_);
    return reference::dense_rows<const float>(host_floats_.data(), num_rows(buffer), activations.width);
}

// --- operations

void CudaBackend::embed(float multiplier) {
    const Floats out = fresh(Buffer::kResidual, config().hidden_size);
    if (embedding_blocks_.format != WeightFormat::kPairs)
        return device_.embed_blocks(step_, embedding_blocks_.view(), multiplier, out);
    device_.embed(step_, embedding_.data(), config().vocab_size, multiplier, out);
}

void CudaBackend::norm(int32_t layer, reference::Norm norm, float eps) {
    const bool final = norm == reference::Norm::kFinal;
    const DeviceArray<float>& weight = final                             ? final_norm_
                                       : norm == reference::Norm::kMixer ? layers_[layer].mixer_norm
                                                                         : layers_[layer].mlp_norm;
    const FewRows waits = takes_norms_ && !final ? layers_[layer].few_rows : FewRows{};
    if (norm == reference::Norm::kMixer ? waits.mixer_norm : waits.mlp) {
        return begin_matvec({.is_normed = true,
                             .x = rows(Buffer::kResidual, config().hidden_size),
                             .weight = weight.data(),
                             .eps = eps});
    }
    const Floats out = fresh(final ? Buffer::kHead : Buffer::kNormed, config().hidden_size);
    device_.rms_norm(rows(Buffer::kResidual, config().hidden_size), final ? step_.logit_rows : nullptr, weight.data(),
                     eps, out, rounded_to(final ? Buffer::kHead : Buffer::kNormed, config().hidden_size));
}

// The buffer for a rounded copy of what an operation writes to `buffer`, for matmuls that do not read the original.
uint32_t* CudaBackend::rounded_to(Buffer buffer, int64_t width) {
    forget_inputs(buffer);
    rounded_from_ = buffer;
    rounded_multiplier_ = 1.0F;
    return rounded_.ensure(device_, num_rows(buffer) * row_pairs_of(width));
}

// Inputs that several matmuls read are rounded once.
const uint32_t* CudaBackend::rounded(Buffer in, int64_t width, float multiplier) {
    const Floats x = rows(in, width);
    uint32_t* pairs = rounded_.ensure(device_, x.num_rows * row_pairs_of(width));
    if (rounded_from_ != in || rounded_multiplier_ != multiplier) device_.round_rows(x, multiplier, pairs);
    rounded_from_ = in;
    rounded_multiplier_ = multiplier;
    return pairs;
}

RowForm CudaBackend::inputs_of(const reference::MatrixView& matrix) const {
    if (!matrix.is_quantised()) return RowForm::kPairs;
    const WeightFormat format = *find_weight_format(*matrix.format);
    if (profile_ == reference::Profile::kExactFp8) return row_form(matrix.activations);
    const bool in_int8 = profile_ == reference::Profile::kExactInt8 && has_integers(format);
    return in_int8 ? row_form(int8_sharing(format)) : RowForm::kPairs;
}

// As `rounded`, for matmuls of other forms.
const uint32_t* CudaBackend::quantised(Buffer in, const Matrix& matrix, float multiplier) {
    const Floats x = rows(in, matrix.num_k);
    const RowForm form = matrix.inputs;
    const reference::RowFactors factors{multiplier, matrix.static_scale};
    uint32_t* words = quantised_.words.ensure(device_, x.num_rows * row_words(form, matrix.num_k));
    const bool is_there = quantised_.from == in && quantised_.factors == factors && quantised_.form == form;
    if (!is_there) device_.quantise_rows(x, factors, form, words);
    quantised_.from = in;
    quantised_.factors = factors;
    quantised_.form = form;
    return words;
}

const uint32_t* CudaBackend::inputs(Buffer in, const Matrix& matrix, float multiplier) {
    return matrix.inputs == RowForm::kPairs ? rounded(in, matrix.num_k, multiplier) : quantised(in, matrix, multiplier);
}

void CudaBackend::matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) {
    if (joins(id)) return join(id, in, in_multiplier, out);
    const Matrix& matrix = matrix_of(id);
    const uint32_t* from = inputs(in, matrix, in_multiplier);
    const Floats y = fresh(out, matrix.num_outputs);
    on_tensor_cores() ? device_.tensor_matmul(profile_, from, matrix.view(), y)
                      : device_.matmul(from, matrix.view(), y);
}

void CudaBackend::scale(Buffer buffer, Columns part, float multiplier) {
    CHECK_LE(part.first + part.count, buffers_[static_cast<size_t>(buffer)].width);
    forget_inputs(buffer);
    device_.scale(columns(rows(buffer, buffers_[static_cast<size_t>(buffer)].width), part), multiplier);
}

// Heads are rows, `step` elements apart: with an output gate, q's heads in kQGate.
void CudaBackend::head_norm(int32_t layer, const reference::AttentionConfig& attention, float eps) {
    const auto heads = [&](const Floats& x, int64_t n_heads, int64_t step) {
        return Floats{x.data, x.num_rows * n_heads, attention.head_dim, step};
    };
    const int64_t dim = attention.head_dim;
    const bool gated = attention.output_gate;
    const Floats from = gated ? rows(Buffer::kQGate, attention.q_proj_rows()) : rows(Buffer::kQ, attention.q_rows());
    const Floats q = gated ? fresh(Buffer::kQ, attention.q_rows()) : from;
    CHECK_GE(from.width, attention.n_heads * (gated ? 2 * dim : dim));
    const Floats k = heads(rows(Buffer::kK, attention.kv_rows()), attention.n_kv_heads, dim);
    device_.rms_norm(heads(from, attention.n_heads, gated ? 2 * dim : dim), nullptr, layers_[layer].q_norm.data(), eps,
                     heads(q, attention.n_heads, dim), nullptr);
    device_.rms_norm(k, nullptr, layers_[layer].k_norm.data(), eps, k, nullptr);
}

void CudaBackend::output_gate(int32_t, const reference::AttentionConfig& attention) {
    device_.sigmoid_gate(attention.head_dim, rows(Buffer::kQGate, attention.q_proj_rows()),
                         rows(Buffer::kMixed, attention.q_rows()), rounded_to(Buffer::kMixed, attention.q_rows()));
}

void CudaBackend::rope(int32_t layer, const reference::AttentionConfig& attention) {
    const Angles& angles = angles_[layers_[layer].angles];
    const auto turn = [&](Buffer buffer, int64_t n_heads) {
        device_.rope(step_, n_heads, attention.head_dim, angles.cos.data(), angles.sin.data(),
                     angles.table->num_positions(), angles.table->n_pairs(),
                     rows(buffer, n_heads * attention.head_dim));
    };
    turn(Buffer::kQ, attention.n_heads);
    turn(Buffer::kK, attention.n_kv_heads);
}

void CudaBackend::store_kv(int32_t layer, const reference::AttentionConfig& attention) {
    device_.store_kv(step_, rows(Buffer::kK, attention.kv_rows()), rows(Buffer::kV, attention.kv_rows()), pages(layer));
}

void CudaBackend::attention(int32_t layer, const reference::AttentionConfig& attention, float scale) {
    const Floats out = fresh(Buffer::kMixed, attention.q_rows());
    device_.attention(profile_, step_, shape_of(attention, scale), rows(Buffer::kQ, attention.q_rows()), pages(layer),
                      workspace_.data(), out, rounded_to(Buffer::kMixed, attention.q_rows()));
}

void CudaBackend::activation(int32_t, const reference::MlpConfig& mlp) {
    if (waiting_.num_products > 0) {
        CHECK_EQ(waiting_.num_products, mlp.kind == reference::MlpKind::kReluSquared ? 1 : 2);
        waiting_.gate_multiplier = static_cast<float>(mlp.gate_multiplier);
        if (!waiting_.input.is_normed) std::swap(rounded_, other_rounded_);  // rounded_ is still read as input
        waiting_.pairs = rounded_to(Buffer::kUp, mlp.d_ff);
        return end_matvec(mlp.kind == reference::MlpKind::kReluSquared ? MatvecEnd::kReluSquared : MatvecEnd::kSwiglu);
    }
    const Floats up = rows(Buffer::kUp, mlp.d_ff);
    uint32_t* pairs = rounded_to(Buffer::kUp, mlp.d_ff);
    if (mlp.kind == reference::MlpKind::kReluSquared) return device_.relu_squared(up, pairs);
    device_.swiglu(rows(Buffer::kGate, mlp.d_ff), static_cast<float>(mlp.gate_multiplier), up, pairs);
}

void CudaBackend::add_branch(float branch_multiplier, float residual_multiplier) {
    if (waiting_.num_products > 0) {
        CHECK_EQ(waiting_.num_products, 1);
        waiting_.branch_multiplier = branch_multiplier;
        waiting_.residual_multiplier = residual_multiplier;
        waiting_.residual = rows(Buffer::kResidual, config().hidden_size);
        return end_matvec(MatvecEnd::kAddBranch);
    }
    device_.add_branch(rows(Buffer::kBranch, config().hidden_size), branch_multiplier, residual_multiplier,
                       rows(Buffer::kResidual, config().hidden_size));
}

void CudaBackend::scale_logits(float multiplier, float divisor) {
    device_.scale_logits(rows(Buffer::kLogits, config().vocab_size), multiplier, divisor);
}

void CudaBackend::check_logits() {
    device_.check_logits(step_, static_cast<int32_t>(config().layers.size()),
                         rows(Buffer::kLogits, config().vocab_size));
}

}  // namespace verbatim::cuda
