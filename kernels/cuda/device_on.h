// kernels/cuda/device_on.h: owns the launch configuration (grids and blocks) of every operation of Device, for any
// machine that launches kernels, GPU or emulator. A Machine has
//
//   view(T* data, int64_t count) -> simt::Global<T>      a view of device memory; null gives an empty view
//   launch(const char* name, Dim3 grid, Dim3 block, const Kernel& kernel)
//   has_warpgroups() -> bool                             it executes the Hopper operations of simt/simt.h
//
// and the rest of Device: memory, transfers, graphs, synchronize, description, profiles.
#pragma once

#include <algorithm>

#include "kernels/cuda/blocks_on.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/conv.h"
#include "kernels/cuda/ops/conv_steps.h"
#include "kernels/cuda/ops/delta.h"
#include "kernels/cuda/ops/digest.h"
#include "kernels/cuda/ops/hopper_matmul.h"
#include "kernels/cuda/ops/norms.h"
#include "kernels/cuda/ops/ring_attention.h"
#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/sampling.h"
#include "kernels/cuda/ops/scan.h"
#include "kernels/cuda/ops/tensor_attention.h"
#include "kernels/cuda/ops/tensor_matmul.h"
#include "kernels/cuda/ops/tensor_probe.h"
#include "kernels/cuda/ops/tile_attention.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

template <typename Machine>
class DeviceOn : public BlocksOn<Machine> {
public:
    using BlocksOn<Machine>::BlocksOn;

    void embed(const DeviceBatch& batch, const uint16_t* table, int64_t vocab_size, float multiplier,
               Floats out) override {
        launch_rows(
            "embed", out,
            Embed{view(batch.tokens, batch.num_rows), view(table, vocab_size * out.width), multiplier, rows(out)});
    }
    void rms_norm(Floats x, const int32_t* selected, const float* weight, float eps, Floats out,
                  uint32_t* pairs) override {
        const auto launch_norm = [&]<typename Kernel>(Kernel) {
            launch("rms_norm", grid(out.num_rows), {norm_threads(x.width)},
                   Kernel{{rows(read_only(x)), view(selected, out.num_rows), selected != nullptr, view(weight, x.width),
                           eps, rows(out), pairs != nullptr ? pairs_of(out, pairs) : KernelPairs{}}});
        };
        x.width <= kHeadNormTile ? launch_norm(HeadRmsNorm{}) : launch_norm(RmsNorm{});
    }
    void gated_norm(GateKind kind, int64_t n_groups, Floats z, const float* weight, float eps, Floats y,
                    uint32_t* pairs) override {
        const bool norms = kind != GateKind::kGateOnly;
        const bool leaves = n_groups == 1 || y.width / n_groups % 2 == 0;
        const int64_t width = y.width / n_groups;
        const auto launch_norm = [&]<typename Kernel>(Kernel) {
            launch(
                "gated_norm", grid(y.num_rows, n_groups), {norm_threads(width)},
                Kernel{{norms, kind != GateKind::kNormThenGate, width, rows(read_only(z)),
                        view(weight, norms ? y.width : 0), eps, rows(y), leaves ? pairs_of(y, pairs) : KernelPairs{}}});
        };
        width <= kHeadNormTile ? launch_norm(HeadGatedNorm{}) : launch_norm(GatedNorm{});
        if (!leaves) round_rows(y, 1.0F, pairs);
    }
    void round_rows(Floats x, float multiplier, uint32_t* pairs) override {
        launch_pairs("round_rows", x, RoundRows{rows(read_only(x)), multiplier, pairs_of(x, pairs)});
    }
    void multiply_tiles(TensorCaller caller, const uint32_t* a, const uint32_t* b, const float* c, float* sums,
                        int64_t num_tiles) override {
        constexpr int64_t kRowWords = int64_t{simt::kMmaRows} * ProbeParameters::kLinePairs;
        constexpr int64_t kColumnWords = int64_t{simt::kMmaColumns} * ProbeParameters::kLinePairs;
        const int64_t num_sums = num_tiles * ProbeParameters::kSums;
        const ProbeParameters parameters{view(a, num_tiles * kRowWords), view(b, num_tiles * kColumnWords),
                                         view(c, num_sums), view(sums, num_sums), num_tiles};
        const simt::Dim3 blocks = grid(parts(num_tiles, ProbeParameters::kWarps));
        const simt::Dim3 threads{simt::kWarpSize, ProbeParameters::kWarps};
        if (caller == TensorCaller::kWarp) {
            launch("tensor_probe", blocks, threads, TensorProbe{parameters});
        } else {
            launch("hopper_probe", blocks, threads, HopperProbe{parameters});
        }
    }
    [[nodiscard]] bool uses_wgmma() const override { return this->has_warpgroups(); }
    [[nodiscard]] bool attends_by_tiles(reference::Profile profile, const AttentionShape& shape,
                                        int32_t block_size) const override {
        return profile == reference::Profile::kTensorSm90 && this->has_warpgroups() && block_size == kUsualBlockSize &&
               (shape.head_dim == 16 || shape.head_dim == 64 || shape.head_dim == 128);
    }
    void tensor_matmul(reference::Profile profile, const uint32_t* pairs, const DeviceMatrix& matrix,
                       Floats out) override {
        if (out.num_rows <= kTensorMatvecRows) {
            return this->matvec({.profile = profile,
                                 .num_rows = out.num_rows,
                                 .input = {.pairs = pairs},
                                 .products = {{{matrix, out}}},
                                 .num_products = 1});
        }
        const int64_t tiles = parts(matrix.num_outputs, simt::kMmaRows);
        const int64_t groups = parts(matrix.num_k, simt::kMmaK);
        const TensorParameters parameters{view(pairs, out.num_rows * groups * kGroupPairs),
                                          view(matrix.words, tiles * groups * kFragmentWords),
                                          view(matrix.bias, matrix.num_outputs),
                                          matrix.bias != nullptr,
                                          tiles,
                                          groups,
                                          rows(out)};
        if (profile == reference::Profile::kFast && has_hopper_blocks<HopperFastMatmul>(parameters)) {
            launch_blocks<HopperFastMatmul>("hopper_fast_matmul", parameters);
        } else if (profile != reference::Profile::kFast && has_hopper_blocks<HopperMatmul>(parameters)) {
            launch_blocks<HopperMatmul>("hopper_matmul", parameters);
        } else if (profile == reference::Profile::kFast && fills_device<TensorFastMatmul>(parameters)) {
            launch_blocks<TensorFastMatmul>("tensor_fast_matmul", parameters);
        } else if (profile != reference::Profile::kFast && fills_device<TensorMatmul>(parameters)) {
            launch_blocks<TensorMatmul>("tensor_matmul", parameters);
        } else if (out.num_rows <= 16) {
            this->template launch_tensor_items<TensorItems16>("tensor_items16", parameters);
        } else {
            this->template launch_tensor_items<TensorItems32>("tensor_items32", parameters);
        }
    }
    void scale(Floats x, float multiplier) override { launch_rows("scale", x, Scale{rows(x), multiplier}); }

    void conv(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats x,
              const DeviceStates& windows, const DeviceLog& log, Floats out) override {
        launch_convs(batch, conv_windows(batch, shape.d_conv, x.width, windows, logs(shape, log)),
                     parameters.conv_weight, parameters.conv_bias, x, out);
    }
    void conv_and_steps(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats x,
                        const DeviceStates& windows, const DeviceLog& log, Floats out, Floats dt_raw, float* dt,
                        float* decay) override {
        const ConvParameters conv =
            conv_parameters(batch, conv_windows(batch, shape.d_conv, x.width, windows, logs(shape, log)),
                            parameters.conv_weight, parameters.conv_bias, x, out);
        const TimeSteps steps = time_steps(batch, shape, parameters, dt_raw, dt, decay, log);
        if (batch.num_rows == batch.num_sequences) {
            launch_conv_and_steps("conv_step", WithSteps<ConvStep>{{{conv}}, steps, 0}, ConvStepAndSteps{});
        } else {
            launch_conv_and_steps("conv", WithSteps<Conv>{{{conv}}, steps, 0}, ConvAndSteps{});
        }
    }
    void scan(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats conv,
              Floats dt_raw, float* dt, float* decay, const DeviceStates& pool, const DeviceLog& log,
              Floats y) override {
        if (dt_raw.data != nullptr) {
            launch_rows("time_steps", dt_raw, time_steps(batch, shape, parameters, dt_raw, dt, decay, log));
        }
        launch_scans(batch, shape, parameters, conv, dt, decay, pool, log, y);
    }
    void move_states(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters,
                     const DeviceStates& windows, const DeviceStates& states, const DeviceLog& log) override {
        launch("move_windows", grid(batch.num_sequences, parts(shape.conv_dim(), kConvChannels)), {kConvChannels},
               MoveWindows{conv_windows(batch, shape.d_conv, shape.conv_dim(), windows, logs(shape, log))});
        launch_scans(batch, shape, parameters, {}, nullptr, nullptr, states, log, {});
    }

    void delta_conv(const DeltaBatch& of, const DeltaWeights& weights, Floats x, const DeviceStates& windows,
                    Floats out) override {
        launch_convs(of.batch, conv_windows(of.batch, of.shape.d_conv, x.width, windows, logs(of.shape, of.log)),
                     weights.conv_weight, nullptr, x, out);
    }
    void delta_gates(const DeltaBatch& of, const DeltaWeights& weights, Floats b, Floats a) override {
        launch_rows("delta_gates", b,
                    DeltaGates{steps(of.batch), view(of.batch.row_sequences, of.batch.num_rows), logs(of.shape, of.log),
                               view(weights.rate, of.shape.n_value_heads),
                               view(weights.dt_bias, of.shape.n_value_heads), rows(b), rows(a)});
    }
    void l2_norm(const DeltaBatch& of, float q_scale, Floats conv) override {
        launch("l2_norm", grid(conv.num_rows, 2 * of.shape.n_key_heads), {kPartials},
               L2Norm{steps(of.batch), view(of.batch.row_sequences, of.batch.num_rows), logs(of.shape, of.log),
                      static_cast<int32_t>(of.shape.n_key_heads), static_cast<int32_t>(of.shape.key_dim), q_scale,
                      rows(conv)});
    }
    void delta_update(const DeltaBatch& of, Floats conv, Floats beta, Floats decay, const DeviceStates& pool,
                      Floats y) override {
        const DeltaShape& shape = of.shape;
        const int64_t num_steps = of.batch.num_rows * shape.n_value_heads;
        const DeltaParameters parameters{steps(of.batch),
                                         static_cast<int32_t>(shape.n_value_heads),
                                         static_cast<int32_t>(shape.n_value_heads / shape.n_key_heads),
                                         static_cast<int32_t>(shape.key_dim),
                                         static_cast<int32_t>(shape.value_dim),
                                         takes_four(conv, shape.key_dim, shape.value_dim),
                                         static_cast<int32_t>(conv.stride),
                                         static_cast<int32_t>(y.stride),
                                         rows(read_only(conv)),
                                         view(read_only(beta).data, num_steps),
                                         view(read_only(decay).data, num_steps),
                                         states(of.batch, pool),
                                         logs(shape, of.log),
                                         rows(y)};
        launch("delta_update",
               grid(of.batch.num_sequences, shape.n_value_heads, parts(shape.value_dim, DeltaUpdate::kColumns)),
               {simt::kWarpSize, DeltaUpdate::kWarps}, DeltaUpdate{parameters});
    }
    void move_delta_states(const DeltaBatch& of, const DeviceStates& windows, const DeviceStates& states) override {
        launch(
            "move_windows", grid(of.batch.num_sequences, parts(of.shape.conv_dim(), kConvChannels)), {kConvChannels},
            MoveWindows{conv_windows(of.batch, of.shape.d_conv, of.shape.conv_dim(), windows, logs(of.shape, of.log))});
        delta_update(of, {}, {}, {}, states, {});
    }

    void rope(const DeviceBatch& batch, int64_t n_heads, int64_t head_dim, const float* cos, const float* sin,
              int64_t num_positions, int64_t n_pairs, Floats x) override {
        launch("rope", grid(x.num_rows, parts(n_heads * n_pairs, kRowThreads)), {kRowThreads},
               Rope{view(batch.positions, batch.num_rows), n_heads, head_dim, view(cos, num_positions * n_pairs),
                    view(sin, num_positions * n_pairs), n_pairs, rows(x)});
    }
    void store_kv(const DeviceBatch& batch, Floats k, Floats v, const DevicePages& pages) override {
        launch("store_kv", grid(k.num_rows, parts(pages.n_kv_heads * ((pages.head_dim + 1) / 2), kRowThreads)),
               {kRowThreads},
               StoreKv{steps(batch), view(batch.positions, batch.num_rows), view(batch.row_sequences, batch.num_rows),
                       view(batch.blocks, batch.max_blocks), rows(read_only(k)), rows(read_only(v)), pool(pages)});
    }
    void attention(reference::Profile profile, const DeviceBatch& batch, const AttentionShape& shape, Floats q,
                   const DevicePages& pages, float* workspace, Floats out, uint32_t* pairs) override {
        const Workspace runs{view(workspace, attention_floats(batch.max_runs, shape)), shape.n_heads, shape.head_dim};
        const auto first_runs = view(batch.first_runs, batch.num_rows + 1);
        const auto group = static_cast<int32_t>(shape.group());
        const auto heads = static_cast<int32_t>(attend_heads(shape));
        const auto num_parts = static_cast<int32_t>(parts(group, heads));
        const int64_t columns = batch.query_rows * heads;
        const AttendParameters parameters{steps(batch),
                                          view(batch.blocks, batch.max_blocks),
                                          view(batch.queries, batch.num_queries + 1),
                                          first_runs,
                                          static_cast<int32_t>(batch.num_queries),
                                          shape.scale,
                                          group,
                                          heads,
                                          num_parts,
                                          rows(read_only(q)),
                                          pool(pages),
                                          runs};
        const int64_t groups = shape.n_kv_heads * num_parts;
        const bool has_ring = this->has_warpgroups() && takes_ring(pages);
        if (batch.num_tiles > 0) attend_tiles(batch, shape, parameters);
        if (batch.num_queries == 0) {
            // tiles cover all rows
        } else if (profile == reference::Profile::kTensorSm90) {
            has_ring ? launch_attention<TensorAttendRing>("tensor_attend_ring", groups, parameters)
                     : launch_attention<TensorAttendRun>("tensor_attend_run", groups, parameters);
        } else if (columns == 1) {
            has_ring ? launch_attention<AttendRing1>("attend_ring", groups, parameters)
                     : launch_attention<AttendRun1>("attend_run", groups, parameters);
        } else if (columns <= 4) {
            has_ring ? launch_attention<AttendRing4>("attend_ring", groups, parameters)
                     : launch_attention<AttendRun4>("attend_run", groups, parameters);
        } else if (columns == 5) {
            has_ring ? launch_attention<AttendRing5>("attend_ring", groups, parameters)
                     : launch_attention<AttendRun5>("attend_run", groups, parameters);
        } else {
            has_ring ? launch_attention<AttendRing8>("attend_ring", groups, parameters)
                     : launch_attention<AttendRun8>("attend_run", groups, parameters);
        }
        const bool leaves = shape.n_heads == 1 || shape.head_dim % 2 == 0;
        launch("merge_runs", grid(q.num_rows, shape.n_heads), {kRowThreads},
               MergeRuns{first_runs, runs, rows(out), leaves ? pairs_of(out, pairs) : KernelPairs{}});
        if (!leaves) round_rows(out, 1.0F, pairs);
    }

    void sigmoid_gate(int64_t head_dim, Floats gate, Floats x, uint32_t* pairs) override {
        launch_pairs("sigmoid_gate", x,
                     SigmoidGate{rows(read_only(gate)), static_cast<int32_t>(head_dim), rows(x), pairs_of(x, pairs)});
    }
    void swiglu(Floats gate, float gate_multiplier, Floats up, uint32_t* pairs) override {
        launch_pairs("swiglu", up, Swiglu{rows(read_only(gate)), gate_multiplier, rows(up), pairs_of(up, pairs)});
    }
    void relu_squared(Floats up, uint32_t* pairs) override {
        launch_pairs("relu_squared", up, ReluSquared{rows(up), pairs_of(up, pairs)});
    }
    void add_branch(Floats branch, float branch_multiplier, float residual_multiplier, Floats residual) override {
        launch_rows("add_branch", residual,
                    AddBranch{rows(read_only(branch)), branch_multiplier, residual_multiplier, rows(residual)});
    }
    void scale_logits(Floats logits, float multiplier, float divisor) override {
        launch_rows("scale_logits", logits, ScaleLogits{rows(logits), multiplier, divisor});
    }
    void check_logits(const DeviceBatch& batch, int32_t num_layers, Floats logits) override {
        launch_rows("check_logits", logits,
                    CheckLogits{rows(read_only(logits)), num_layers, view(batch.faults, batch.num_logit_rows)});
    }
    void draw(const DeviceBatch& batch, Floats logits, const DrawScratch& scratch) override {
        const int64_t num_rows = logits.num_rows;
        const int64_t num_parts = draw_parts(logits.width);
        const Floats scaled{scratch.scaled, num_rows, logits.width, logits.width};
        const auto draws = view(batch.draws, num_rows);
        const auto lowest = view(scratch.lowest, num_rows);
        const auto scores = view(scratch.scores, num_rows * num_parts);
        const auto ids = view(scratch.ids, num_rows * num_parts);
        launch_rows("scale_draw", scaled, ScaleDraw{draws, rows(read_only(logits)), rows(scaled)});
        launch("penalise", grid(num_rows), {kRowThreads},
               Penalise{draws, view(batch.counts, batch.max_counts), rows(read_only(logits)), rows(scaled)});
        launch("keep_most", grid(num_rows), {kKeepThreads}, KeepMost{draws, rows(read_only(scaled)), lowest});
        launch("score_part", grid(num_rows, num_parts), {kScoreThreads},
               ScorePart{draws, lowest, rows(read_only(scaled)), scores, ids, num_parts});
        launch("pick_token", grid(num_rows), {kScoreThreads},
               PickToken{scores, ids, num_parts, view(batch.drawn, num_rows)});
    }
    void copy_tails(const DeviceCopy* copies, int64_t num_copies, const DevicePages& pages) override {
        launch("copy_tails", grid(num_copies, pages.n_kv_heads), {kRowThreads},
               CopyTails{view(copies, num_copies), pool(pages)});
    }
    void sum_floats(const float* values, int64_t count, uint64_t* sum) override {
        launch("sum_floats", grid(std::clamp<int64_t>(parts(count, kSumThreads), 1, this->resident_blocks())),
               {kSumThreads}, SumFloats{view(values, count), count, view(sum, 2)});
    }
    void sum_kv(const int32_t* blocks, int64_t length, const DevicePages& pages, uint64_t* sums) override {
        const int64_t num_blocks = parts(length, pages.block_size);
        launch("sum_kv", grid(std::clamp<int64_t>(num_blocks, 1, this->resident_blocks()), 2), {kSumThreads},
               SumKv{view(blocks, num_blocks), num_blocks, length, pool(pages), view(sums, 4)});
    }

private:
    using Views = BlocksOn<Machine>;
    using Views::fills_device;
    using Views::grid;
    using Views::launch;
    using Views::launch_pairs;
    using Views::launch_rows;
    using Views::num_processors;
    using Views::pairs_of;
    using Views::parts;
    using Views::read_only;
    using Views::rows;
    using Views::view;

    KernelBatch steps(const DeviceBatch& batch) {
        return {view(batch.sequences, batch.num_sequences), view(batch.writes, batch.max_writes)};
    }
    KernelStates states(const DeviceBatch& batch, const DeviceStates& pool) {
        const int64_t count = (pool.num_rows - 1) * pool.row_floats + pool.size;
        return {view(pool.data, count), pool.row_floats, pool.size, pool.layer,
                view(batch.faults, batch.num_logit_rows)};
    }
    KernelLog logs(const MambaShape& shape, const DeviceLog& log) {
        return logs(log, {.conv_end = static_cast<int32_t>(shape.scan_width())});
    }
    // The log gets k as l2_norm leaves it.
    KernelLog logs(const DeltaShape& shape, const DeviceLog& log) {
        return logs(log, {.scan_column = static_cast<int32_t>(shape.key_rows()),
                          .conv_first = static_cast<int32_t>(2 * shape.key_rows()),
                          .conv_end = static_cast<int32_t>(shape.conv_dim())});
    }
    // Which columns of the conv's outputs a log entry contains, and where (ops/states.h).
    struct LoggedColumns {
        int32_t scan_column = 0;
        int32_t conv_first = 0;
        int32_t conv_end = 0;
    };
    KernelLog logs(const DeviceLog& log, const LoggedColumns& columns) {
        const int64_t count =
            log.num_slots == 0 ? 0 : (log.num_slots - 1) * log.slot_floats + log.num_entries * log.entry_floats;
        return {view(log.data, count),
                log.slot_floats,
                static_cast<int32_t>(log.entry_floats),
                static_cast<int32_t>(log.num_entries),
                static_cast<int32_t>(log.scan_at),
                columns.scan_column,
                columns.conv_first,
                columns.conv_end,
                static_cast<int32_t>(log.steps_at)};
    }
    ConvWindows conv_windows(const DeviceBatch& batch, int64_t d_conv, int64_t num_channels,
                             const DeviceStates& windows, const KernelLog& log) {
        return {steps(batch), static_cast<int32_t>(d_conv), static_cast<int32_t>(num_channels), states(batch, windows),
                log};
    }
    ConvParameters conv_parameters(const DeviceBatch& batch, const ConvWindows& windows, const float* weight,
                                   const float* bias, Floats x, Floats out) {
        return {windows,
                view(batch.row_sequences, batch.num_rows),
                rows(read_only(x)),
                view(weight, x.width * windows.d_conv),
                view(bias, x.width),
                bias != nullptr,
                rows(out)};
    }
    TimeSteps time_steps(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters,
                         Floats dt_raw, float* dt, float* decay, const DeviceLog& log) {
        const int64_t num_steps = batch.num_rows * shape.n_heads;
        return {steps(batch),
                view(batch.row_sequences, batch.num_rows),
                logs(shape, log),
                rows(read_only(dt_raw)),
                view(parameters.dt_bias, shape.n_heads),
                view(parameters.a, shape.n_heads),
                shape.dt_min,
                shape.dt_max,
                view(dt, num_steps),
                view(decay, num_steps)};
    }
    void launch_convs(const DeviceBatch& batch, const ConvWindows& windows, const float* weight, const float* bias,
                      Floats x, Floats out) {
        const ConvParameters conv = conv_parameters(batch, windows, weight, bias, x, out);
        if (batch.num_rows == batch.num_sequences) {
            launch_conv<ConvStep>("conv_step", conv);
        } else {
            launch_conv<Conv>("conv", conv);
        }
    }
    template <typename Kernel, typename Parts>
    void launch_conv_and_steps(const char* name, Parts of, Kernel) {
        of.channel_blocks = static_cast<int32_t>(parts(of.conv.x.width, kConvChannels));
        launch(name,
               grid(parts(of.conv.x.num_rows, kConvGroups * Kernel::kThreadRows),
                    of.channel_blocks + parts(of.steps.raw.width, kConvChannels)),
               {kConvChannels, kConvGroups}, Kernel{of});
    }
    template <typename Kernel>
    void launch_conv(const char* name, const ConvParameters& parameters) {
        launch(name,
               grid(parts(parameters.x.num_rows, kConvGroups * Kernel::kThreadRows),
                    parts(parameters.x.width, kConvChannels)),
               {kConvChannels, kConvGroups}, Kernel{{parameters}});
    }
    // Whether x, B and C (or q, k and v) of every head start and end at multiples of four floats. Log entries are then
    // aligned too.
    static bool takes_four(Floats conv, int64_t state_dim, int64_t head_dim) {
        return reinterpret_cast<uintptr_t>(conv.data) % 16 == 0 && conv.stride % 4 == 0 && head_dim % 4 == 0 &&
               state_dim % 4 == 0;
    }
    // Whether a thread can take two channels, which reads B and C once for both, and the grid still covers more than
    // half of the SMs.
    bool takes_two_channels(const DeviceBatch& batch, const MambaShape& shape) const {
        const int64_t blocks = batch.num_sequences * shape.n_heads * parts(shape.head_dim, Scan::kBlockChannels);
        return shape.head_dim > NarrowScan::kBlockChannels && 2 * blocks > num_processors();
    }
    void launch_scans(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats conv,
                      const float* dt, const float* decay, const DeviceStates& pool, const DeviceLog& log, Floats y) {
        const int64_t num_steps = batch.num_rows * shape.n_heads;
        const ScanParameters scan{steps(batch),
                                  static_cast<int32_t>(shape.n_heads),
                                  static_cast<int32_t>(shape.head_dim),
                                  static_cast<int32_t>(shape.d_state),
                                  static_cast<int32_t>(shape.n_heads / shape.n_groups),
                                  takes_four(conv, shape.d_state, shape.head_dim),
                                  static_cast<int32_t>(conv.stride),
                                  static_cast<int32_t>(y.stride),
                                  rows(read_only(conv)),
                                  view(dt, num_steps),
                                  view(decay, num_steps),
                                  view(parameters.d, shape.n_heads),
                                  states(batch, pool),
                                  logs(shape, log),
                                  rows(y)};
        if (shape.d_state > Scan::kMaxState) {
            launch_scan<WideScan>("wide_scan", batch, shape, scan);
        } else if (takes_two_channels(batch, shape)) {
            launch_scan<Scan>("scan", batch, shape, scan);
        } else {
            launch_scan<NarrowScan>("narrow_scan", batch, shape, scan);
        }
    }
    template <typename Kernel>
    void launch_scan(const char* name, const DeviceBatch& batch, const MambaShape& shape,
                     const ScanParameters& parameters) {
        launch(name, grid(batch.num_sequences, shape.n_heads, parts(shape.head_dim, Kernel::kBlockChannels)),
               {kScanLanes, Kernel::kThreads / kScanLanes}, Kernel{{parameters}});
    }
    KernelPages pool(const DevicePages& pages) {
        const int64_t num_pages = pages.num_blocks * pages.n_kv_heads;
        return {view(pages.k, num_pages * ((pages.head_dim + 1) / 2) * pages.block_size),
                view(pages.v, num_pages * pages.block_size * pages.head_dim), static_cast<int32_t>(pages.block_size),
                static_cast<int32_t>(pages.n_kv_heads), static_cast<int32_t>(pages.head_dim)};
    }
    template <typename Kernel>
    static simt::Dim3 blocks_of(const TensorParameters& parameters) {
        return grid(parts(parameters.num_tiles, Kernel::kBlockTiles),
                    parts(parameters.out.num_rows, Kernel::kBlockRows));
    }
    // One thread for four elements, rounded up to whole groups of N4's partial sums.
    static int32_t norm_threads(int64_t width) {
        const int64_t turns = parts(width, int64_t{kNormAhead} * kPartials);
        return static_cast<int32_t>(std::clamp<int64_t>(turns * kPartials, kPartials, kMaxNormThreads));
    }
    // For more rows than one pass over the weights can take.
    template <typename Kernel>
    bool fills_device(const TensorParameters& parameters) const {
        return parameters.out.num_rows > 32 && fills_device(blocks_of<Kernel>(parameters));
    }
    template <typename Kernel>
    bool has_hopper_blocks(const TensorParameters& parameters) const {
        return this->has_warpgroups() && fills_device<Kernel>(parameters);
    }
    template <typename Kernel>
    void launch_blocks(const char* name, const TensorParameters& parameters) {
        launch(name, blocks_of<Kernel>(parameters), {simt::kWarpSize, Kernel::kWarps}, Kernel{{parameters}});
    }
    // The grid has the resident CTAs, which take items from a list, and no more: a further CTA would start after the
    // first ones have emptied the list.
    template <typename Kernel>
    void launch_attention(const char* name, int64_t groups, const AttendParameters& parameters) {
        const int64_t resident = num_processors() * resident_blocks_of<Kernel>(parameters.pages.head_dim);
        launch(name, grid(std::max<int64_t>(resident / groups, 1), groups),
               {simt::kWarpSize, Kernel::kThreads / simt::kWarpSize}, Kernel{{parameters}});
    }
    void attend_tiles(const DeviceBatch& batch, const AttentionShape& shape, AttendParameters parameters) {
        parameters.queries = view(batch.tiles, batch.num_tiles + 1);
        parameters.num_queries = static_cast<int32_t>(batch.num_tiles);
        parameters.heads = 1;
        parameters.num_parts = parameters.group;
        constexpr auto kName = "tensor_attend_tile";
        if (shape.head_dim == 16) {
            launch_attention<TensorAttendTile16>(kName, shape.n_heads, parameters);
        } else if (shape.head_dim == 64) {
            launch_attention<TensorAttendTile64>(kName, shape.n_heads, parameters);
        } else {
            launch_attention<TensorAttendTile128>(kName, shape.n_heads, parameters);
        }
    }
    // Whether bulk copies can move whole pages.
    static bool takes_ring(const DevicePages& pages) {
        return pages.block_size == kUsualBlockSize && pages.head_dim % 2 == 0 && pages.head_dim <= kRingHeadDim;
    }
    // CTAs per SM: rings for wide heads leave room for one.
    template <typename Kernel>
    static int64_t resident_blocks_of(int64_t head_dim) {
        if constexpr (requires { Kernel::kRingWarps; }) return head_dim <= 64 ? Kernel::kResidentBlocks : 1;
        return Kernel::kResidentBlocks;
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
