#include "simulator/replicas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/digest.h"
#include "traces/transform.h"

namespace verbatim {
namespace {

using traces::kNoRow;
using traces::Row;
using traces::RowIndex;
using traces::Trace;

// The first row of each row's group.
class RowGroups {
public:
    explicit RowGroups(const Trace& trace) : first_(trace.rows.size()) {
        std::iota(first_.begin(), first_.end(), size_t{0});
        std::vector<RowIndex> of_conversation(trace.conversations.size(), kNoRow);
        for (size_t i = 0; i < trace.rows.size(); ++i) {
            const Row& row = trace.rows[i];
            RowIndex& same = of_conversation[static_cast<size_t>(index(row.conversation))];
            for (const RowIndex other : {row.from, row.wait_for, row.parent, same}) {
                if (other != kNoRow) join(i, static_cast<size_t>(index(other)));
            }
            same = RowIndex(i);
        }
    }
    size_t first_of(size_t row) {
        while (first_[row] != row) row = first_[row] = first_[first_[row]];
        return row;
    }

private:
    void join(size_t a, size_t b) {
        a = first_of(a);
        b = first_of(b);
        first_[std::max(a, b)] = std::min(a, b);
    }
    std::vector<size_t> first_;
};

// All members are counts.
using Counts = std::array<int64_t, sizeof(EngineStats) / sizeof(int64_t)>;
static_assert(sizeof(Counts) == sizeof(EngineStats));

void add_counts(EngineStats& sum, const EngineStats& more) {
    auto all = std::bit_cast<Counts>(sum);
    const auto added = std::bit_cast<Counts>(more);
    for (size_t i = 0; i < all.size(); ++i) all[i] += added[i];
    sum = std::bit_cast<EngineStats>(all);
}

void add_driver(DriverReport& sum, DriverReport more, const std::vector<size_t>& rows) {
    for (int64_t DriverReport::*count :
         {&DriverReport::rows, &DriverReport::turns, &DriverReport::served, &DriverReport::aborted,
          &DriverReport::refused, &DriverReport::rejected, &DriverReport::recorded, &DriverReport::resent,
          &DriverReport::busy, &DriverReport::client_wait_ns}) {
        sum.*count += more.*count;
    }
    sum.virtual_ns = std::max(sum.virtual_ns, more.virtual_ns);
    sum.peak_running = std::max(sum.peak_running, more.peak_running);
    for (size_t i = 0; i < rows.size() && !more.times.empty(); ++i) sum.times[rows[i]] = more.times[i];
    for (std::string& what : more.unexpected) sum.unexpected.push_back(std::move(what));
}

}  // namespace

void add_result(SimulationResult& sum, SimulationResult more, const std::vector<size_t>& rows) {
    sum.requests += more.requests;
    add_driver(sum.driver, std::move(more.driver), rows);
    add_counts(sum.stats, more.stats);
    sum.price.add(more.price);
    sum.num_plans += more.num_plans;
    sum.restores.add(more.restores);
    sum.tiers.resize(more.tiers.size());
    for (size_t i = 0; i < more.tiers.size(); ++i) sum.tiers[i].add(more.tiers[i]);
    sum.peak_blocks = std::max(sum.peak_blocks, more.peak_blocks);
    sum.peak_state_rows = std::max(sum.peak_state_rows, more.peak_state_rows);
}

std::vector<size_t> first_rows_of_groups(const Trace& trace) {
    RowGroups groups(trace);
    std::vector<size_t> first;
    for (size_t i = 0; i < trace.rows.size(); ++i) first.push_back(groups.first_of(i));
    return first;
}

int32_t route_in_turns(const RowGroup& group, int32_t num_replicas) {
    return static_cast<int32_t>(group.number % num_replicas);
}

int32_t route_by_conversation(const RowGroup& group, int32_t num_replicas) {
    Digester digester;
    digester.add(group.conversation);
    return static_cast<int32_t>(digester.digest().low % static_cast<uint64_t>(num_replicas));
}

std::vector<int32_t> replicas_of(const Trace& trace, int32_t num_replicas, const Router& router) {
    RowGroups groups(trace);
    std::vector<int32_t> replicas(trace.rows.size());
    int64_t number = 0;
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const size_t first = groups.first_of(i);
        if (first != i) {
            replicas[i] = replicas[first];
            continue;
        }
        const auto& conversation = trace.conversation_of(trace.rows[i]);
        replicas[i] = router({number++, trace.names[conversation.name]}, num_replicas);
        CHECK(replicas[i] >= 0 && replicas[i] < num_replicas, "replica {} of {}", replicas[i], num_replicas);
    }
    return replicas;
}

Result<ReplicatedResult> simulate_replicas(const SimulationConfig& given, const Trace& trace, CostModel& cost,
                                           int32_t vocab_size,
                                           const std::function<std::unique_ptr<EvictionPolicy>()>& policy,
                                           int32_t num_replicas, const Router& router,
                                           const std::function<void(int64_t)>& progress) {
    CHECK(given.recorded == nullptr && !given.record_steps, "one replica's run alone is recorded or told");
    CHECK_GE(num_replicas, 1);
    SimulationConfig config = given;
    if (!config.max_tokens) config.max_tokens = longest_answer(trace, config.engine);  // equal on every replica
    const std::vector<int32_t> replicas = replicas_of(trace, num_replicas, router);
    ReplicatedResult result;
    result.whole.driver.times.resize(trace.rows.size());
    Digester decisions, digests;
    for (int32_t replica = 0; replica < num_replicas; ++replica) {
        std::vector<size_t> rows;
        for (size_t i = 0; i < replicas.size(); ++i) {
            if (replicas[i] == replica) rows.push_back(i);
        }
        const int64_t over = result.whole.driver.rows;
        const auto mine = policy();
        ASSIGN_OR_RETURN(SimulationResult part, simulate(config, traces::only_rows(trace, rows), cost, vocab_size,
                                                         *mine, [&](int64_t rows_over) {
                                                             if (progress) progress(over + rows_over);
                                                         }));
        result.replicas.push_back(
            {std::ssize(rows), part.driver.served, part.stats.steps, part.driver.virtual_ns, part.digest, 0, {}});
        decisions.add(part.decisions);
        digests.add(part.digest);
        const bool alone = num_replicas == 1;
        if (alone) result.whole.decisions = part.decisions;
        if (alone) result.whole.digest = part.digest;
        add_result(result.whole, std::move(part), rows);
    }
    result.replica_of_row = replicas;
    if (num_replicas > 1) {
        result.whole.decisions = decisions.digest();
        result.whole.digest = digests.digest();
    }
    return result;
}

}  // namespace verbatim
