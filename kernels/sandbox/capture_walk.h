// kernels/sandbox/capture_walk.h: owns building a step's calls of one operation from the known values: a walk without
// arithmetic over the step's sequences.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/sandbox/capture.h"
#include "reference/forward_pass.h"
#include "reference/walk.h"

namespace verbatim::sandbox {

class CaptureWalk {
public:
    // Borrows all of them. `read_kv` returns K and V of a sequence's positions up to its end, or none.
    struct Kv {
        std::vector<std::byte> k, v;  // [length, n_kv_heads, head_dim]
    };
    using ReadKv = std::function<std::optional<Kv>(size_t sequence, int32_t layer)>;
    CaptureWalk(const reference::Model& model, std::string_view operation, const CapturingExecutor::Step& step,
                const SlotTables& tables, ReadKv read_kv, CallSample& sample);

    void run();

private:
    // Captures the call, if it is one of the operation.
    void capture(const reference::OpCall& call);
    void norm(const reference::OpCall& call);
    void matmul(const reference::OpCall& call);
    void conv(int32_t layer);
    void scan(int32_t layer);
    void gated_norm(int32_t layer);
    void delta_norm(int32_t layer);
    void rope(int32_t layer);
    void attention(const reference::OpCall& call);
    void activation(int32_t layer);
    void route(int32_t layer);
    void choose(int32_t layer);
    void experts(const reference::OpCall& call);
    void add_routed(int32_t layer);
    void delta_gates(int32_t layer);
    void l2_norm(int32_t layer);
    void delta_update(int32_t layer);
    // Takes over what the call wrote.
    void observe(const reference::WalkPoint& point);
    [[nodiscard]] const reference::LayerConfig& layer_config(int32_t layer) const {
        return model_.config.layers[static_cast<size_t>(layer)];
    }

    // A buffer's known contents.
    struct Rows {
        std::vector<float> values;
        int64_t width = 0;  // 0: unknown
    };
    struct Part {
        reference::Buffer buffer;
        reference::Columns columns;
    };
    [[nodiscard]] int64_t num_rows(reference::Buffer buffer) const;
    // Captures columns of a buffer, if they are known and few enough.
    void put(Captured& captured, const char* tensor, const Part& part) const;
    // For a conv with inputs `in`.
    void add_conv(int32_t layer, const Part& in, int64_t d_conv, reference::VectorView weight,
                  reference::VectorView bias);
    void rope_of(int32_t layer, const reference::AttentionConfig& attention, reference::Buffer buffer, int64_t n_heads);
    void put_states(Captured& captured, const char* tensor, int32_t layer, int64_t floats) const;
    void put_pages(Captured& captured, const reference::AttentionConfig& attention, int32_t layer,
                   const Sizes& sizes) const;

    const reference::Model& model_;
    std::string_view operation_;
    const CapturingExecutor::Step& step_;
    const SlotTables& tables_;
    ReadKv read_kv_;
    CallSample& sample_;
    std::vector<reference::WalkSequence> sequences_;
    std::vector<int64_t> item_rows_;
    std::vector<int64_t> positions_;   // [num_rows]
    std::vector<int32_t> logit_rows_;  // of all rows
    std::array<Rows, reference::kNumBuffers> buffers_;
    std::vector<size_t> next_;  // by sequence: index of its next written operation
};

// Values as a captured tensor: none if there are too many.
template <typename T>
void put_values(Captured& captured, const char* tensor, std::span<const T> values, bool is_place = false) {
    if (values.empty() || (!is_place && values.size_bytes() > kMostTensorBytes)) return;
    const auto bytes = std::as_bytes(values);
    captured.tensors.push_back({tensor, {bytes.begin(), bytes.end()}, is_place});
}

}  // namespace verbatim::sandbox
