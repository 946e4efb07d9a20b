// Every field of a plan, changed on its way to both executors: side by side they find it, or the table says why there
// is nothing to find. Fields are listed by the structs themselves (engine/fields.h): a new one fails the test until it
// has its line.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/fields.h"
#include "reference/model/random_model.h"
#include "tests/properties/side_by_side.h"
#include "tests/support/sanitized.h"

namespace verbatim::tests {
namespace {

// --- fields by their paths: "starts[].sampling.seed"

template <typename T>
inline constexpr bool kIsLeaf = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, TokenSeq>;

std::string inside(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

// Calls visit(path, leaf) for every value of the plan that is no list and no struct. The beginning of an empty part of
// a list says nothing and is left out.
template <typename T, typename Visit>
void visit_leaves(const std::string& path, T& value, const Visit& visit) {
    if constexpr (kIsLeaf<T>) {
        visit(path, value);
    } else if constexpr (kIsVector<T>) {
        for (auto& element : value) visit_leaves(path + "[]", element, visit);
    } else {
        visit_fields(value, [&](std::string_view name, auto& field) {
            if constexpr (std::is_same_v<T, Slice>) {
                if (value.count == 0 && &field == &value.begin) return;
            }
            visit_leaves(inside(path, name), field, visit);
        });
    }
}

// Of a type: lists have one element each.
template <typename T>
void list_paths(const std::string& path, std::set<std::string>& paths) {
    if constexpr (kIsLeaf<T>) {
        paths.insert(path);
    } else if constexpr (kIsVector<T>) {
        list_paths<typename T::value_type>(path + "[]", paths);
    } else {
        T value{};
        visit_fields(value, [&](std::string_view name, auto& field) {
            list_paths<std::remove_reference_t<decltype(field)>>(inside(path, name), paths);
        });
    }
}

// Two ways to change a value.
constexpr int kNumChanges = 2;

template <typename T>
void change(T& value, int way, TokenStore& store) {
    if constexpr (std::is_same_v<T, TokenSeq>) {
        std::vector<TokenId> tokens = value.to_vector();
        TokenId& token = way == 0 ? tokens.front() : tokens.back();
        token = (token + 1) % store.vocab_size();
        value = store.store(tokens);
    } else if constexpr (std::is_same_v<T, Arithmetic>) {
        value = value == Arithmetic::kOrdinary ? Arithmetic::kDeterministic : Arithmetic::kOrdinary;
    } else if constexpr (std::is_enum_v<T>) {
        value = static_cast<T>(index(value) + (way == 0 ? 1 : -1));
    } else if constexpr (std::is_floating_point_v<T>) {
        value = way == 0 ? value + T{0.25} : T{1};
    } else {
        value = static_cast<T>(value + (way == 0 ? T{1} : static_cast<T>(-1)));
    }
}

// --- the table

enum class Named : uint8_t {
    kRequest,   // the difference names the step and the request
    kStepOnly,  // of no request: it names the step
};

struct Line {
    Named named = Named::kRequest;
    bool may_be_unseen = false;  // at some places: at others it is found
    const char* why = "";        // there may be no request to name, or nothing to find
};

const std::map<std::string, Line> kTable = {
    {"step", {Named::kStepOnly, false, "a step number is of no request"}},
    {"ends[]", {Named::kStepOnly, false, "a slot that is not live is of no request"}},
    {"starts[].slot", {}},
    {"starts[].request", {Named::kStepOnly, false, "a number that no request has"}},
    {"starts[].tokens", {}},
    {"starts[].num_prompt_tokens", {}},
    {"starts[].num_computed_tokens", {}},
    {"starts[].blocks.begin", {}},
    {"starts[].blocks.count", {}},
    {"starts[].sampling.temperature", {}},
    {"starts[].sampling.top_k", {}},
    {"starts[].sampling.top_p", {}},
    {"starts[].sampling.repetition_penalty", {}},
    {"starts[].sampling.presence_penalty", {}},
    {"starts[].sampling.frequency_penalty", {}},
    {"starts[].sampling.min_p", {}},
    {"starts[].sampling.min_tokens", {}},
    {"starts[].sampling.end_tokens[]", {}},
    {"starts[].sampling.logit_bias[].token", {}},
    {"starts[].sampling.logit_bias[].bias", {}},
    {"starts[].sampling.seed", {}},
    {"copies[].src", {Named::kStepOnly, false, "a block outside the pool is in no request's table"}},
    {"copies[].dst", {}},
    {"copies[].num_slots", {}},
    {"sequences[].slot", {Named::kStepOnly, false, "a slot that was never used is of no request"}},
    {"sequences[].arithmetic", {}},
    {"sequences[].num_computed_tokens", {}},
    {"sequences[].num_new_tokens", {}},
    {"sequences[].num_draws", {}},
    {"sequences[].num_scored", {}},
    {"sequences[].state_src", {}},
    {"sequences[].num_state_tokens", {}},
    {"sequences[].state_dst", {}},
    {"sequences[].appended.begin", {}},
    {"sequences[].appended.count", {}},
    {"sequences[].new_blocks.begin", {}},
    {"sequences[].new_blocks.count", {}},
    {"sequences[].state_writes.begin", {}},
    {"sequences[].state_writes.count", {}},
    {"sequences[].mask.begin", {}},
    {"sequences[].mask.count", {}},
    {"tokens[]", {}},
    {"blocks[].first", {}},
    {"blocks[].count", {Named::kRequest, true, "a block too many is harmless until a later position falls into it"}},
    {"state_writes[].length", {}},
    {"state_writes[].dst", {}},
    {"mask_runs[]", {}},
};

TEST(PlanTable, EveryFieldOfAPlanIsInTheTable) {
    std::set<std::string> fields;
    list_paths<StepPlan>("", fields);
    std::set<std::string> lines;
    for (const auto& [path, line] : kTable) lines.insert(path);
    EXPECT_EQ(fields, lines);
}

// --- runs

SceneOptions options_of(int32_t max_window) {
    SceneOptions options;
    options.block_size = 4;
    options.num_blocks = 20;
    options.num_state_rows = 10;
    options.step_tokens = 24;
    options.max_window = max_window;
    options.max_model_len = 70;
    return options;
}

const reference::Model& model() {
    static const reference::Model model =
        reference::make_random_model(reference::draw_small_config(reference::Architecture::kGraniteHybrid, 9), 9);
    return model;
}

bool is_draft(const StepPlan& plan, size_t token) {
    return std::ranges::any_of(plan.sequences, [&](const ScheduledSequence& sequence) {
        const size_t end = sequence.appended.begin + sequence.appended.count;
        return token < end && token + static_cast<size_t>(sequence.num_drafts()) >= end;
    });
}

// Changes one value of one plan: the `place`th that the field has in the whole run.
class Corruption {
public:
    Corruption(std::string path, int64_t place, int way) : path_(std::move(path)), place_(place), way_(way) {}
    void operator()(StepPlan& plan, TokenStore& store) {
        size_t token = 0;
        const StepPlan before = plan;
        visit_leaves("", plan, [&](const std::string& path, auto& leaf) {
            const bool skipped = path == "tokens[]" && is_draft(before, token++);  // a guess: every token is right
            if (path != path_ || skipped || num_met_++ != place_) return;
            change(leaf, way_, store);
            step_ = plan == before ? -1 : before.step;
        });
    }
    [[nodiscard]] int64_t num_met() const { return num_met_; }
    [[nodiscard]] int64_t step() const { return step_; }  // of the change; -1: none

private:
    std::string path_;
    int64_t place_ = 0;
    int way_ = 0;
    int64_t num_met_ = 0;
    int64_t step_ = -1;
};

int64_t count_places(const std::string& path, int32_t max_window) {
    Corruption counting(path, -1, 0);
    SideBySide* running = nullptr;
    SideBySide run(model(), options_of(max_window), [&](StepPlan& plan) { counting(plan, running->rig().store); });
    running = &run;
    run.converse();
    EXPECT_EQ(run.found(), "");
    return counting.num_met();
}

// Whether the change was found, or changed nothing.
bool is_found(const std::string& path, int64_t place, int way, int32_t max_window) {
    Corruption corruption(path, place, way);
    SideBySide* running = nullptr;
    SideBySide run(model(), options_of(max_window), [&](StepPlan& plan) { corruption(plan, running->rig().store); });
    running = &run;
    run.converse();
    const std::string what = fmt::format("{}, place {}, way {}, windows of {}, changed in step {}: {}", path, place,
                                         way, max_window, corruption.step(), run.found());
    if (corruption.step() < 0) return true;
    const Line& line = kTable.at(path);
    EXPECT_TRUE(run.difference().has_value() || line.may_be_unseen) << what;
    if (!run.difference()) return false;
    if (path != "step") EXPECT_GE(run.difference()->step, corruption.step()) << what;
    EXPECT_TRUE(line.named == Named::kStepOnly || index(run.difference()->request) >= 0) << what;
    return true;
}

class PlanFields : public testing::TestWithParam<std::string> {};

TEST_P(PlanFields, AChangedFieldIsFound) {
    constexpr int64_t kPlaces = kSanitized ? 1 : 4;  // or a few more, over the whole run
    const std::vector<int32_t> windows = kSanitized ? std::vector{5} : std::vector{1, 5};
    int64_t num_found = 0;
    for (const int32_t max_window : windows) {
        const int64_t num_places = count_places(GetParam(), max_window);
        ASSERT_GT(num_places, 0);
        const int64_t stride = std::max<int64_t>(1, num_places / kPlaces);
        for (int64_t place = 0; place < num_places; place += stride) {
            for (int way = 0; way < kNumChanges; ++way) num_found += is_found(GetParam(), place, way, max_window);
        }
    }
    EXPECT_GT(num_found, 0);
}

std::vector<std::string> all_paths() {
    std::set<std::string> paths;
    list_paths<StepPlan>("", paths);
    return {paths.begin(), paths.end()};
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
    std::ranges::replace(name, '.', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(OfAPlan, PlanFields, testing::ValuesIn(all_paths()), test_name);

// A right run has all that is changed above, and nothing is found.
TEST(PlanTable, TheRunHasEveryPartOfAPlan) {
    for (const int32_t max_window : {1, 5}) {
        SideBySide run(model(), options_of(max_window));
        run.converse();
        EXPECT_EQ(run.found(), "");
        const EngineStats& stats = run.rig().engine.stats();
        EXPECT_GT(stats.preemptions, 0);
        EXPECT_GT(stats.recomputed_tokens, 0);
        EXPECT_GT(stats.tail_copies, 0);
        EXPECT_EQ(stats.accepted_tokens > 0 && stats.rolled_back_tokens > 0, max_window > 1);
        const auto resumes = [](const SequenceStart& start) { return start.tokens.size() > start.num_prompt_tokens; };
        EXPECT_TRUE(std::ranges::any_of(run.rig().log.plans, [&](const StepPlan& plan) {
            return std::ranges::any_of(plan.new_sequences, resumes);
        }));
        EXPECT_GT(run.lockstep().counts().compared_states, 0);
        run.rig().expect_home();
    }
}

}  // namespace
}  // namespace verbatim::tests
