#include "simulator/sharding.h"

#include <algorithm>
#include <cmath>

namespace verbatim {
namespace {

int64_t divide_up(int64_t value, int64_t parts) { return (value + parts - 1) / parts; }

int32_t groups_per_gpu(int32_t n_groups, int32_t num_gpus) {
    return static_cast<int32_t>(divide_up(n_groups, num_gpus));
}

// `n`, of which `grouped` belongs to groups.
int64_t shard(int64_t n, int64_t grouped, int32_t n_groups, int32_t num_gpus) {
    return divide_up(n - grouped, num_gpus) + grouped / n_groups * groups_per_gpu(n_groups, num_gpus);
}

void shard(MatmulShape& matmul, int32_t num_gpus) {
    if (matmul.split == Split::kColumns) {
        matmul.n = shard(matmul.n, matmul.grouped_n, matmul.n_groups, num_gpus);
        matmul.grouped_n = matmul.grouped_n / matmul.n_groups * groups_per_gpu(matmul.n_groups, num_gpus);
        matmul.n_groups = groups_per_gpu(matmul.n_groups, num_gpus);
    }
    if (matmul.split == Split::kRows) matmul.k = divide_up(matmul.k, num_gpus);
}

void shard_kernels(ModelShape& model, const Parallelism& parallelism) {
    const int32_t tensor = parallelism.tensor;
    const auto divide = [tensor](int32_t& count) { count = groups_per_gpu(count, tensor); };
    for (MatmulShape& matmul : model.matmuls) shard(matmul, tensor);
    for (AttentionShape& attention : model.attentions) {
        divide(attention.n_heads);
        divide(attention.n_kv_heads);
    }
    for (MambaShape& mamba : model.mambas) {
        divide(mamba.n_heads);
        divide(mamba.n_groups);
    }
    for (DeltaShape& delta : model.deltas) {
        divide(delta.n_key_heads);
        divide(delta.n_value_heads);
    }
    for (ExpertsShape& experts : model.experts)
        experts.d_ff = static_cast<int32_t>(divide_up(experts.d_ff, tensor / parallelism.experts));
    for (ElementwiseShape& rows : model.elementwise) {
        if (rows.is_split) rows.bytes_per_token = divide_up(rows.bytes_per_token, tensor);
    }
}

// The most that a stage has of `num_layers` layers.
double stage_share(int64_t num_layers, int32_t num_stages) {
    if (num_layers == 0) return 1;
    return static_cast<double>(divide_up(num_layers, num_stages)) / static_cast<double>(num_layers);
}

int64_t share_of(int64_t bytes, double share) { return std::llround(static_cast<double>(bytes) * share); }

void shard_sequences(ModelShape& model, const Parallelism& parallelism) {
    constexpr int64_t kWindowValueBytes = 4;
    int64_t num_kvs = 0;
    int64_t num_states = 0;
    model.kv_bytes_per_token = model.state_bytes_per_row = 0;
    for (KvShape& kv : model.kvs) {
        const int32_t heads = groups_per_gpu(kv.n_kv_heads, parallelism.tensor);
        kv.bytes_per_token = kv.bytes_per_token / kv.n_kv_heads * heads;
        kv.n_kv_heads = heads;
        model.kv_bytes_per_token += kv.bytes_per_token * kv.count;
        num_kvs += kv.count;
    }
    for (StateShape& state : model.states) {
        state.recurrent = divide_up(state.recurrent, parallelism.tensor);
        state.window = shard(state.window, state.grouped_window, state.n_groups, parallelism.tensor);
        model.state_bytes_per_row +=
            (state.recurrent * model.state_value_bytes + state.window * kWindowValueBytes) * state.count;
        num_states += state.count;
    }
    model.kv_bytes_per_token = share_of(model.kv_bytes_per_token, stage_share(num_kvs, parallelism.pipeline));
    model.state_bytes_per_row = share_of(model.state_bytes_per_row, stage_share(num_states, parallelism.pipeline));
}

int64_t bytes_of(int64_t parameters, double value_bytes) {
    return std::llround(static_cast<double>(parameters) * value_bytes);
}

int64_t linear_bytes(const ModelShape& model) { return bytes_of(linear_parameters(model), model.weight_value_bytes); }

// What the replica as a whole needs of every kind of part.
Status check_counts(const ModelShape& model, const Parallelism& parallelism) {
    const auto check = [&](const char* what, int64_t count, int64_t divisor, const char* flag) -> Status {
        if (count % divisor == 0) return {};
        return error("{} {}: {} has {} {}, which cannot be divided by {}", flag, divisor, model.name, count, what,
                     divisor);
    };
    // More GPUs than groups: each group is on several.
    const auto check_groups = [&](const char* what, int64_t count) -> Status {
        return parallelism.tensor % count == 0 ? Status{} : check(what, count, parallelism.tensor, "--tp");
    };
    for (const AttentionShape& attention : model.attentions) {
        RETURN_IF_ERROR(check("attention heads", attention.n_heads, parallelism.tensor, "--tp"));
        RETURN_IF_ERROR(check_groups("KV heads", attention.n_kv_heads));
    }
    for (const MambaShape& mamba : model.mambas) {
        RETURN_IF_ERROR(check("Mamba heads", mamba.n_heads, parallelism.tensor, "--tp"));
        RETURN_IF_ERROR(check_groups("Mamba groups", mamba.n_groups));
    }
    for (const DeltaShape& delta : model.deltas) {
        RETURN_IF_ERROR(check("value heads", delta.n_value_heads, parallelism.tensor, "--tp"));
        RETURN_IF_ERROR(check_groups("key heads", delta.n_key_heads));
    }
    if (parallelism.experts > 1 && model.experts.empty())
        return error("--ep {}: {} has no experts", parallelism.experts, model.name);
    for (const ExpertsShape& experts : model.experts)
        RETURN_IF_ERROR(check("experts", experts.n_experts, parallelism.experts, "--ep"));
    if (parallelism.pipeline > model.num_layers)
        return error("--pp {}: {} has {} layers", parallelism.pipeline, model.name, model.num_layers);
    return {};
}

}  // namespace

int64_t head_parameters(const ModelShape& model) {
    int64_t parameters = 0;
    for (const MatmulShape& matmul : model.matmuls)
        if (matmul.on_logits) parameters += matmul.n * matmul.k * matmul.count;
    return parameters;
}

int64_t linear_parameters(const ModelShape& model) {
    int64_t parameters = 0;
    for (const MatmulShape& matmul : model.matmuls)
        if (!matmul.on_logits) parameters += matmul.n * matmul.k * matmul.count;
    for (const ExpertsShape& experts : model.experts)
        parameters += experts.parameters() * divide_up(experts.n_experts, model.parallelism.experts) * experts.count;
    return parameters;
}

ModelShape sharded(ModelShape model, const Parallelism& parallelism) {
    if (parallelism == Parallelism{}) return model;
    const int64_t ends = bytes_of(head_parameters(model), model.head_value_bytes) +
                         bytes_of(model.embedding_parameters, model.embedding_value_bytes);
    const int64_t vectors = model.weight_bytes - linear_bytes(model) - ends;
    shard_kernels(model, parallelism);
    model.parallelism = parallelism;
    model.embedding_parameters = divide_up(model.embedding_parameters, parallelism.tensor);
    const int64_t embedding = bytes_of(model.embedding_parameters, model.embedding_value_bytes);
    const int64_t head = bytes_of(head_parameters(model), model.head_value_bytes);
    const double share = stage_share(model.num_layers, parallelism.pipeline);
    model.weight_bytes = share_of(linear_bytes(model) + vectors, share) +
                         (parallelism.pipeline > 1 ? std::max(embedding, head) : embedding + head);
    shard_sequences(model, parallelism);
    model.activation_bytes_per_token = activation_bytes(model);
    return model;
}

Status check_parallelism(const ModelShape& model, const Device& device, const Parallelism& parallelism) {
    if (parallelism == Parallelism{}) return {};
    if (parallelism.tensor % parallelism.experts != 0)
        return error("--ep {}: wanted a divisor of --tp {}", parallelism.experts, parallelism.tensor);
    RETURN_IF_ERROR(check_counts(model, parallelism));
    if (device.link_bytes_per_s <= 0)
        return error("--tp and --pp: the file of {} has no link_bytes_per_s: add it and its source", device.name);
    if (parallelism.tensor > device.node_gpus)
        return error("--tp {}: a node of {} has {} GPUs", parallelism.tensor, device.name, device.node_gpus);
    if (parallelism.num_gpus() > device.node_gpus && device.network_bytes_per_s <= 0)
        return error("--pp {}: the file of {} has no network_bytes_per_s: add it and its source", parallelism.pipeline,
                     device.name);
    return {};
}

}  // namespace verbatim
