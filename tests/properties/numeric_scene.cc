#include "tests/properties/numeric_scene.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/base/prng.h"
#include "engine/request/token_mask.h"
#include "reference/model/weight_storage.h"
#include "reference/ops/sampling.h"
#include "tests/reference/families.h"
#include "tests/support/token_grammar.h"

namespace verbatim::tests {
namespace {

SceneOptions pools_of(SceneOptions options, const reference::ModelConfig& config) {
    const auto geometry = reference::geometry(config);
    if (geometry.kv_bytes_per_token == 0) options.num_blocks = 0;
    if (geometry.state_bytes_per_row == 0) options.num_state_rows = 0;
    return options;
}

cpu::CpuExecutorConfig cpu_config(const SceneOptions& options, int32_t num_threads) {
    cpu::CpuExecutorConfig config;
    config.pools = options.pools();
    config.max_log_tokens = options.max_state_lag_tokens + options.max_window - 1;
    config.budget = options.budget();
    config.num_threads = num_threads;
    if (options.verify_tokens > 0) {
        config.ordinary_profile = reference::Profile::kFast;
        config.max_joined_rows = 0;
    }
    return config;
}

reference::Profile profile_of(Machine machine) {
    if (machine == Machine::kCpuFp8 || machine == Machine::kEmulatedCudaFp8) return reference::Profile::kExactFp8;
    const bool in_int8 =
        machine == Machine::kCpuInt8 || machine == Machine::kCpuMixedInt8 || machine == Machine::kEmulatedCudaInt8;
    return in_int8 ? reference::Profile::kExactInt8 : reference::Profile::kExact;
}

bool is_emulated(Machine machine) {
    return machine == Machine::kEmulatedCuda || machine == Machine::kEmulatedCudaInt8 ||
           machine == Machine::kEmulatedCudaFp8;
}

// `device` is set for a machine that has one.
std::unique_ptr<PooledExecutor> make_executor(Machine machine, const reference::Model& model,
                                              const SceneOptions& options, int32_t num_threads,
                                              simt::Emulator& emulator, std::unique_ptr<cuda::Device>& device) {
    if (!is_emulated(machine)) {
        cpu::CpuExecutorConfig config = cpu_config(options, num_threads);
        config.profile = profile_of(machine);
        if (machine == Machine::kCpuPortable) config.isa = cpu::Isa::kPortable;
        return std::make_unique<cpu::CpuExecutor>(model.config, model.weights, config);
    }
    device = cuda::make_emulated_device(emulator);
    PooledExecutorConfig config{options.pools(), options.max_state_lag_tokens + options.max_window - 1,
                                options.budget()};
    if (!cuda::unsupported_budget(model.config, config, device->limits()).empty()) config.budget = {};
    return std::make_unique<cuda::CudaExecutor>(model.config, model.weights, *device, config, profile_of(machine));
}

}  // namespace

Status LogitTap::execute(const StepPlan& plan, StepResult& result) {
    RETURN_IF_ERROR(inner_.execute(plan, result));
    for (const ScheduledSequence& sequence : plan.sequences) {
        const bool is_scratch =
            sequence.arithmetic == Arithmetic::kOrdinary && inner_.numerics_id() != inner_.ordinary_numerics_id();
        if (is_scratch) continue;
        for (int32_t row = -sequence.num_scored_positions; row < 0; ++row) {
            const int64_t position = sequence.end() - sequence.num_sampled_positions + row + 1;
            keep(sequence, row, position);
            ++scored_[{inner_.tables().at(sequence.slot).request, position}];
        }
        for (int32_t draw = 0; draw < sequence.num_sampled_positions; ++draw) {
            const int64_t position = sequence.known_end() + draw;
            if (position > inner_.tables().at(sequence.slot).length) break;  // what was drawn there was not accepted
            keep(sequence, draw, position);
        }
    }
    return {};
}

void LogitTap::keep(const ScheduledSequence& sequence, int32_t row, int64_t position) {
    const auto logits = inner_.logits(sequence.slot, row);
    rows_[{inner_.tables().at(sequence.slot).request, position}].assign(logits.begin(), logits.end());
}

namespace {

// Of every family; on the CPU every fourth one has experts, on the device one of four neighbours.
reference::ModelConfig world_config(uint64_t seed, Machine machine) {
    if (machine != Machine::kCpu) return kAllFamilies[3 * seed % std::size(kAllFamilies)].draw(seed);
    if (seed % 4 != 3) return reference::draw_small_config(seed);
    constexpr reference::Architecture kWithExperts[] = {
        reference::Architecture::kGraniteHybrid, reference::Architecture::kNemotronH,
        reference::Architecture::kQwen35Moe, reference::Architecture::kQwen3Next};
    return reference::draw_small_moe_config(kWithExperts[seed / 4 % std::size(kWithExperts)], seed);
}

// Experts 0 and 1 of every layer have one router row, so that ties are met.
reference::Model with_ties(reference::Model model) {
    for (size_t i = 0; i < model.config.layers.size(); ++i) {
        if (!model.config.layers[i].moe) continue;
        const auto hidden = static_cast<size_t>(model.config.hidden_size);
        const auto repeat_first = [&](reference::VectorView& view, size_t width) {
            if (view.empty()) return;
            const auto owned = model.weights.storage->allocate_float(static_cast<int64_t>(view.size()));
            std::ranges::copy(view, owned.begin());
            std::ranges::copy(view.first(width), owned.begin() + static_cast<std::ptrdiff_t>(width));
            view = owned;
        };
        repeat_first(model.weights.layers[i].moe.router, hidden);
        repeat_first(model.weights.layers[i].moe.choice_bias, 1);
    }
    return model;
}

std::optional<QuantisedMatrices> quantised_in(Machine machine, reference::Model& model) {
    switch (machine) {
        case Machine::kCpuInt8:
        case Machine::kEmulatedCudaInt8: return QuantisedMatrices(model, {"Q8_0", "INT4", "Q4_0", "INT8"});
        case Machine::kCpuMixed:
        case Machine::kCpuMixedInt8:
            return QuantisedMatrices(model, {"Q4_K", "Q6_K", "Q4_K", "Q5_0", "Q8_0", "FP4_E2M1"});
        case Machine::kCpuFp8:
        case Machine::kEmulatedCudaFp8:
            return QuantisedMatrices(model, {"FP8_GROUPS", "FP8_ROW", "FP8_STATIC", "FP8_STATIC", "BF16", "FP8_E4M3"});
        default: return std::nullopt;
    }
}

}  // namespace

NumericParts::NumericParts(const reference::ModelConfig& config, uint64_t seed, const SceneOptions& options,
                           int32_t num_threads, Machine machine)
    : model(with_ties(reference::make_random_model(config, seed))),
      quantised(quantised_in(machine, model)),
      reference(model.config, model.weights, profile_of(machine)),
      pools(pools_of(options, model.config)),
      emulator(simt::Schedule::kRandom, seed),
      computing(make_executor(machine, model, pools, num_threads, emulator, device)),
      tap(*computing),
      executor(tap, options.lag_steps) {}

NumericScene::NumericScene(uint64_t seed, const SceneOptions& scene_options, int32_t num_threads, Machine machine)
    : NumericScene(world_config(seed, machine), seed, scene_options, num_threads, machine) {}

NumericScene::NumericScene(const reference::ModelConfig& config, uint64_t seed, const SceneOptions& scene_options,
                           int32_t num_threads, Machine machine)
    : NumericParts(config, seed, scene_options, num_threads, machine),
      EngineRig(pools, executor, model.config.vocab_size),
      oracle_(reference),
      adversary_(
          [this](const DraftJob& job, int64_t ahead) {
              return std::optional(oracle_.token(job, engine.find(job.request)->request.sampling, ahead));
          },
          model.config.vocab_size, seed) {
    if (scene_options.max_window > 1 && scene_options.verify_tokens == 0) engine.draft_with(&adversary_);
}

TokenId ReferenceOracle::token(const DraftJob& job, const SamplingParams& sampling, int64_t ahead) {
    Run& run = runs_.try_emplace(job.request, model_).first->second;
    const auto num_prompt = static_cast<size_t>(job.prompt->size());
    const size_t wanted = num_prompt + job.output.size() + static_cast<size_t>(ahead);
    if (run.tokens.empty()) {
        run.tokens = job.prompt->to_vector();
        run.sequence.append(run.tokens, reference::LogitRows::kLast);
    }
    while (run.tokens.size() <= wanted) {
        const std::span<const TokenId> known(run.tokens);
        const reference::ConstFloatRows logits = run.sequence.logits();
        const TokenId token = reference::sample({{logits.row(0), static_cast<size_t>(logits.width)},
                                                 sampling,
                                                 {known.first(num_prompt), known.subspan(num_prompt)},
                                                 known.size()});
        run.tokens.push_back(token);
        run.sequence.append({&token, 1}, reference::LogitRows::kLast);
    }
    return run.tokens[wanted];
}

std::vector<TokenId> NumericScene::text(uint64_t seed, int64_t count) const {
    Prng prng(seed);
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId& token : tokens) {
        token = static_cast<TokenId>(prng.below(static_cast<uint64_t>(model.config.vocab_size)));
    }
    return tokens;
}

std::string NumericScene::first_difference() {
    for (const auto& [request, wanted] : asked()) {
        if (std::string difference = compare_request(request, wanted); !difference.empty()) return difference;
        if (std::string difference = compare_scored(request, wanted); !difference.empty()) return difference;
    }
    return tap.rows().empty() ? "no logits to compare" : compare_heads();
}

std::string NumericScene::compare_request(RequestId request, const Asked& asked) {
    const std::vector<TokenId> output = log.tokens[request];
    if (output.empty()) return {};
    const std::vector<TokenId> all = asked.prompt + output;
    reference::ReferenceSequence uncached(reference);
    uncached.append(std::span(all).first(all.size() - 1));
    for (size_t position = asked.prompt.size(); position < all.size(); ++position) {
        const float* row = uncached.logits().row(static_cast<int64_t>(position) - 1);
        const std::span wanted(row, static_cast<size_t>(model.config.vocab_size));
        std::string difference = compare_row(request, static_cast<int64_t>(position), wanted);
        if (!difference.empty()) return difference;
        if (asked.forced) continue;
        const auto generated = std::span(all).subspan(asked.prompt.size(), position - asked.prompt.size());
        TokenMask mask;
        if (!asked.grammar.empty()) mask = grammar_mask(grammar_of(asked.grammar), generated, model.config.vocab_size);
        if (!mask.runs.empty() && !allows(mask.runs, all[position]))
            return fmt::format("request {}: token {} at position {} is not allowed", index(request), all[position],
                               position);
        const TokenId token =
            reference::sample({wanted, asked.sampling, {asked.prompt, generated}, position, mask.runs});
        if (token == all[position]) continue;
        return fmt::format("request {}: token {} at position {}, uncached {}", index(request), all[position], position,
                           token);
    }
    return {};
}

// Each position that the request wants, once and with the uncached reference's logits, and no other one.
std::string NumericScene::compare_scored(RequestId request, const Asked& asked) {
    int64_t num_scored = 0;
    for (const auto& [place, times] : tap.scored()) num_scored += place.first == request ? times : 0;
    if (!asked.scored_from) return num_scored == 0 ? "" : fmt::format("request {} is scored", index(request));
    const auto size = static_cast<int64_t>(asked.prompt.size());
    const int64_t first = std::max<int64_t>(*asked.scored_from, 1);
    const int64_t end = size + (asked.only_scores ? 1 : 0);
    if (num_scored != std::max<int64_t>(end - first, 0)) {
        return fmt::format("request {}: {} positions are scored, wanted [{}, {})", index(request), num_scored, first,
                           end);
    }
    reference::ReferenceSequence uncached(reference);
    uncached.append(asked.prompt);
    for (int64_t position = first; position < end; ++position) {
        const std::span row(uncached.logits().row(position - 1), static_cast<size_t>(model.config.vocab_size));
        if (std::string difference = compare_row(request, position, row); !difference.empty()) return difference;
    }
    return {};
}

std::string NumericScene::compare_row(RequestId request, int64_t position, std::span<const float> wanted) const {
    const auto row = tap.rows().find({request, position});
    if (row == tap.rows().end()) return fmt::format("request {}: no logits at {}", index(request), position);
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (std::memcmp(&row->second[i], &wanted[i], sizeof(float)) == 0) continue;
        return fmt::format("request {}: logit {} at position {} is {}, uncached {}", index(request), i, position,
                           row->second[i], wanted[i]);
    }
    return {};
}

// Heads in the order of their tokens, so that one uncached sequence passes through those that continue each other.
std::string NumericScene::compare_heads() {
    std::vector<std::pair<std::vector<TokenId>, const Head*>> heads;
    for (const Head* head : engine.cache().heads()) heads.emplace_back(head->tokens.to_vector(), head);
    if (heads.empty()) return "no heads to compare";
    std::ranges::sort(heads);
    std::vector<TokenId> done;
    std::optional<reference::ReferenceSequence> uncached;
    for (const auto& [tokens, head] : heads) {
        const bool goes_on =
            uncached && tokens.size() >= done.size() && std::equal(done.begin(), done.end(), tokens.begin());
        if (!goes_on) {
            uncached.emplace(reference);
            done.clear();
        }
        uncached->append(std::span(tokens).subspan(done.size()), reference::LogitRows::kNone);
        done = tokens;
        if (head->digest == uncached->digest()) continue;
        return fmt::format("head {} of {} tokens: digest {}, uncached {}", index(head->id), head->length(),
                           head->digest.hex(), uncached->digest().hex());
    }
    return {};
}

}  // namespace verbatim::tests
