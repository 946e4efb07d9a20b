#include "tools/program/recorded_run.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/executors/executor_choice.h"
#include "reference/loader/model_choice.h"
#include "reference/records/record_file.h"
#include "simulator/choice_names.h"
#include "simulator/eviction_policies.h"
#include "tools/program/cache_memory.h"
#include "tools/program/cli.h"
#include "tools/program/executor_option.h"
#include "tools/program/isa_option.h"

namespace verbatim::tools {

using namespace executors;
namespace {

using reference::Profile;

Result<Profile> profile_by_name(const std::string& name) {
    for (const Profile profile : reference::kProfiles) {
        if (reference::name(profile) == name) return profile;
    }
    return error("run.profile is '{}', which is none of ours", name);
}

// None: it is not here.
std::optional<cpu::Isa> isa_by_name(const std::string& name) {
    for (const cpu::Isa isa : cpu::supported_isas()) {
        if (cpu::isa_name(isa) == name) return isa;
    }
    return std::nullopt;
}

records::MakeExecutor executor_maker(const RecordedRun& run, const RerunFlags& flags) {
    const int32_t num_threads = flags.num_threads > 0
                                    ? flags.num_threads
                                    : static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
    return [&run, num_threads, isa = run.isa](
               const EngineConfig& config, bool has_ordinary) -> Result<std::shared_ptr<reference::NumericExecutor>> {
        if (has_ordinary && run.profile == Profile::kFast)
            return error("policy: the record's profile fast promises nothing to deterministic requests");
        ExecutorOptions pools{.pools = config.cache.pools,
                              .budget = pool_budget(config.cache),
                              .max_log_tokens = config.scheduler.max_log_tokens(),
                              .num_threads = num_threads,
                              .seed = config.seed,
                              .isa = isa,
                              .profile = run.profile};
        if (has_ordinary && has_two_arithmetics(run.executor)) pools.ordinary_profile = Profile::kFast;
        ASSIGN_OR_RETURN(ChosenExecutor chosen, choose_executor(run.executor, pools, run.model));
        auto all = std::make_shared<ChosenExecutor>(std::move(chosen));
        return std::shared_ptr<reference::NumericExecutor>(all, all->executor.get());
    };
}

// Where bits depend on it, what was recorded. Ordinary requests may do without: then they are not compared.
Result<std::optional<cpu::Isa>> isa_again(const RecordedRun& run, const RerunFlags& flags) {
    const records::RunDescription& recorded = run.record.run;
    const bool is_fast = run.profile == Profile::kFast;
    if (flags.isa || (!is_fast && recorded.policy.empty())) return flags.isa;
    const std::optional<cpu::Isa> isa = isa_by_name(recorded.isa);
    if (!isa && is_fast && run.executor == "cpu" && !recorded.isa.empty()) {
        return error("{}: was computed with '{}', which this processor lacks: --isa says what computes instead",
                     run.path, recorded.isa);
    }
    return isa;
}

}  // namespace

void add_rerun_options(CLI::App& verb, RerunFlags& flags) {
    add_executor_option(verb, flags.executor, "what computes: as recorded, unless given");
    verb.add_option("--threads", flags.num_threads, "of the executor; all of the machine's, unless told")
        ->check(CLI::Range(1, 1024));
    add_isa_option(verb, flags.isa);
    verb.add_option("--model", flags.model, "where the model is now; as recorded, unless told")->type_name("DIR");
}

void add_allow_cut_option(CLI::App& verb, bool& allow_cut) {
    verb.add_flag("--allow-cut", allow_cut,
                  "take a record that was cut off as far as it goes; the verdict is then `not all compared` at best");
}

Result<EvictionChoice> eviction_by_name(const std::string& name) {
    if (const auto choice = choice_by_name(eviction_choices(), name)) return *choice;
    return error("no policy is called '{}': there are {} (and of requests exact, verify)", name,
                 fmt::join(names_of(eviction_choices()), ", "));
}

Result<std::unique_ptr<EvictionPolicy>> policy_by_name(const std::string& name, const reference::ModelConfig& config) {
    ASSIGN_OR_RETURN(const EvictionChoice choice, eviction_by_name(name));
    const reference::ModelGeometry shape = reference::geometry(config);
    // What a head is worth only orders heads here: by what it weighs, not by what a device would need to make it.
    const HeadWorth worth{.kv_bytes_per_token = shape.kv_bytes_per_token,
                          .state_bytes = shape.state_bytes_per_row,
                          .flops_per_token = 1,
                          .flops_per_token_squared = 0};
    return make_eviction_policy(choice, worth);
}

bool computes_ordinary_alike(const RecordedRun& run, const records::Schedule& schedule) {
    const records::RunDescription& recorded = run.record.run;
    if (records::requests_under(recorded, schedule).empty() && recorded.policy.empty()) return true;
    // Unless a record names them, an executor chose instructions by their speed.
    const bool same_isa = run.isa && cpu::isa_name(*run.isa) == recorded.isa;
    return schedule.as_recorded() && run.executor == recorded.executor && same_isa;
}

Result<records::Record> open_record(const std::string& path, bool allow_cut) {
    ASSIGN_OR_RETURN(records::Record record, records::read_record(path));
    if (record.cut_off.empty() || allow_cut) return record;
    return error(
        "{} ({}): a verdict over the rest would not be one over the run. --allow-cut compares what is there, and the "
        "verdict is then \"not all compared\" at best",
        record.cut_off, records::what_is_left(records::RunIndex(record)));
}

Result<reference::Model> recorded_model(const records::RunDescription& run, const std::string& instead) {
    auto model = reference::choose_model(instead.empty() ? run.model : instead, run.model_seed);
    if (!model && instead.empty()) {
        return error("the record's model '{}' is not here: --model says where it is ({})", run.model,
                     model.error().message);
    }
    return model;
}

Result<std::unique_ptr<RecordedRun>> open_recorded_run(const std::string& path, const RerunFlags& flags) {
    auto run = std::make_unique<RecordedRun>();
    run->path = path;
    ASSIGN_OR_RETURN(run->record, open_record(path, flags.allow_cut));
    const records::RunDescription& recorded = run->record.run;
    run->executor = flags.executor.empty() ? recorded.executor : flags.executor;
    if (std::ranges::count(executor_names(), run->executor) == 0) {
        return error("{}: was made by the executor '{}', which this program has not: --executor says who computes now",
                     path, run->executor);
    }
    ASSIGN_OR_RETURN(run->profile, profile_by_name(recorded.profile));
    if (const Status computes = computes_in(run->executor, run->profile); !computes)
        return error("{}: was computed in {}: {}", path, recorded.numerics, computes.error().message);
    ASSIGN_OR_RETURN(run->model, recorded_model(recorded, flags.model));
    records::RunDescription here = recorded;
    here.model = flags.model.empty() ? recorded.model : flags.model;
    ASSIGN_OR_RETURN(here.model_digest, reference::model_digest(run->model));
    here.numerics = here.ordinary_numerics =
        std::string(reference::numerics_id(run->profile, run->model.weights.quantised));
    // Of two arithmetics the deterministic requests' is what must be here.
    if (!recorded.policy.empty()) here.ordinary_numerics = recorded.ordinary_numerics;
    ASSIGN_OR_RETURN(run->isa, isa_again(*run, flags));
    const auto differs = records::what_differs(recorded, here);
    if (!differs.empty() || recorded.vocab_size != run->model.config.vocab_size)
        return error("{}: cannot be compared with what is here: {}", path, fmt::join(differs, "; "));
    const int64_t positions = run->model.config.max_position_embeddings;
    if (recorded.engine.max_model_len > positions) {
        return error("{}: run.engine.max_model_len is {}, the model has {} positions", path,
                     recorded.engine.max_model_len, positions);
    }
    run->index = std::make_unique<records::RunIndex>(run->record);
    run->points = std::make_unique<records::WalkPoints>(run->model.config);
    run->again.make_executor = executor_maker(*run, flags);
    run->again.make_policy = [&config = run->model.config](const std::string& name) {
        return policy_by_name(name, config);
    };
    run->again.digests = recorded.digests;
    run->again.executor = run->executor;
    if (run->isa) run->again.isa = cpu::isa_name(*run->isa);
    return run;
}

}  // namespace verbatim::tools
