// One operation of a run as a case: made, written, read back, tried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/prng.h"
#include "files/repository_path.h"
#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/operation_case.h"
#include "kernels/sandbox/value_case.h"
#include "reference/model/random_model.h"
#include "reference/records/row_watch.h"
#include "reference/records/walk_points.h"
#include "tests/reference/families.h"
#include "tests/support/kernel_case.h"
#include "tests/support/sanitized.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using nlohmann::json;
using testing::HasSubstr;
using tests::case_holds;

constexpr int64_t kPlace = 21;  // of 24 positions; the step's rows begin at 17

std::vector<TokenId> some_tokens(int32_t vocab_size) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < 24; ++i) tokens.push_back(static_cast<TokenId>((i * 13 + 5) % vocab_size));
    return tokens;
}

// One of `count` positions of the output at the walk's point. Heads may be separate rows.
std::vector<float> expected_row(const ValueCase& one, const reference::WalkPoint& point, int64_t row, int64_t count) {
    const bool is_decay = point.op == reference::WalkOp::kDeltaGates && point.buffer == reference::Buffer::kA;
    for (const Tensor& tensor : one.expected.tensors) {
        if (tensor.spec.role == Role::kIn || tensor.spec.axis != Axis::kRow) continue;
        if (is_decay && std::string_view(tensor.spec.name) != "a") continue;
        const auto values = tensor.as<float>();
        const auto width = static_cast<int64_t>(values.size()) / count;
        return {values.begin() + row * width, values.begin() + (row + 1) * width};
    }
    return {};
}
// Queries and keys stand in one row, and are two calls: that of the element.
std::vector<float> of_call(const reference::WalkPoint& point, const std::vector<float>& row, bool is_behind) {
    if (point.op != reference::WalkOp::kL2Norm) return row;
    const auto half = row.begin() + std::ssize(row) / 2;
    return is_behind ? std::vector<float>(half, row.end()) : std::vector<float>(row.begin(), half);
}

std::set<std::string> expect_cases(const reference::Model& model) {
    std::set<std::string> names;
    const records::WalkPoints points(model.config);
    reference::ReferenceModel reference(model.config, model.weights);
    const std::vector<TokenId> tokens = some_tokens(model.config.vocab_size);
    for (size_t i = 0; i < 2 * points.size(); ++i) {
        const size_t op = i / 2;
        const bool is_behind = i % 2 != 0;  // whether the element is the row's last
        const OperationPlace place{.op = op,
                                   .begin = 17,
                                   .end = 24,
                                   .position = kPlace,
                                   .element = is_behind ? points[op].columns.count - 1 : 0};
        const auto one = operation_case(model, reference::Profile::kExact, points, place, tokens, "a test");
        const reference::WalkOp kind = points[op].op;
        const bool is_known = kind != reference::WalkOp::kEmbed && kind != reference::WalkOp::kScale &&
                              kind != reference::WalkOp::kAddBranch && kind != reference::WalkOp::kLayer &&
                              kind != reference::WalkOp::kLogits && kind != reference::WalkOp::kOutputGate;
        EXPECT_EQ(one.has_value(), is_known) << to_string(points[op]);
        if (!one) continue;
        names.insert(one->call.operation->name);
        const auto rows = records::reference_rows(reference, points, tokens, 17, op);
        const bool is_of_head = op >= points.first_of_head();
        const auto mine =
            is_of_head ? expected_row(*one, points[op], 0, 1) : expected_row(*one, points[op], kPlace - 17, 24 - 17);
        EXPECT_EQ(mine, of_call(points[op], rows.rows[kPlace - 17], is_behind)) << to_string(points[op]);
    }
    return names;
}

// What a case expects is what the walk had there, whatever the operation and the family: its inputs are the walk's.
TEST(OperationCase, EveryOperationOfEveryFamilyGivesTheWalksRows) {
    std::set<std::string> names;
    for (const tests::Family& family : tests::kAllFamilies) {
        for (uint64_t seed = 1; seed <= (tests::kSanitized ? 1 : 3); ++seed) {
            const reference::Model model = reference::make_random_model(family.draw(seed), seed);
            names.merge(expect_cases(model));
        }
    }
    EXPECT_THAT(names, testing::UnorderedElementsAre("activation", "add_routed", "attention", "choose", "conv",
                                                     "delta_gates", "delta_update", "experts", "gated_norm", "l2_norm",
                                                     "matmul", "rms_norm", "rope", "router", "scan"));
}

ValueCase some_case(std::string_view op) {
    KernelCase made;
    const Operation* operation = find_operation(op);
    for (size_t i = 0; i < operation->sizes.size(); ++i) made.sizes[i] = operation->sizes[i].usual;
    return value_case_of(make_arguments(*operation, made), "exact", "a test");
}

TEST(OperationCase, EveryOperationsFileIsReadBack) {
    for (const Operation& operation : operations()) {
        const ValueCase one = some_case(operation.name);
        const std::string text = value_case_file(one);
        const auto again = read_value_case_text("a.json", text);
        ASSERT_TRUE(again) << operation.name << ": " << again.error().message;
        EXPECT_EQ(value_case_file(*again), text);
        for (const CaseOutcome& outcome : run_value_case(*again))
            EXPECT_TRUE(outcome.equal() || !outcome.supported) << operation.name << " on " << outcome.kernel;
    }
}

// Whatever a file says: an error, or a call that can be made.
TEST(OperationCase, AFileMayHoldAnything) {
    Prng prng(5);
    for (const Operation& operation : operations()) {
        const std::string text = value_case_file(some_case(operation.name));
        for (int i = 0; i < 40; ++i) {
            std::string broken = text;
            for (uint64_t n = 1 + prng.below(3); n-- > 0;)
                broken[prng.below(broken.size())] = "0123456789-{}[]\"abcf,"[prng.below(21)];
            if (prng.below(4) == 0) broken.resize(prng.below(broken.size()));
            const auto read = read_value_case_text("a.json", broken);
            if (!read) EXPECT_THAT(read.error().message, HasSubstr("a.json"));
        }
    }
}

void expect_refused(std::string_view op, const std::string& pointer, const json& value, const std::string& why) {
    json file = json::parse(value_case_file(some_case(op)));
    file[json::json_pointer(pointer)] = value;
    const auto read = read_value_case_text("a.json", file.dump());
    ASSERT_FALSE(read) << pointer;
    EXPECT_THAT(read.error().message, HasSubstr(why));
}

TEST(OperationCase, WhatAKernelWouldFollowSomewhereElseIsRefused) {
    expect_refused("rope", "/tensors/positions/bits", "0000000000000050" + std::string(32, '0'), "positions has 80");
    expect_refused("attention", "/tensors/first_position/bits", std::string(32, 'f'), "first_position -1");
    expect_refused("attention", "/tensors/block_tables/bits", std::string(16, '7'), "block_tables of sequence 0");
    expect_refused("sampling", "/tensors/num_prompt/bits", std::string(24, '7'), "num_prompt has");
    expect_refused("experts", "/tensors/chosen/bits", "bf800000" + std::string(88, '0'),
                   "`chosen` row 0 has the id -1");
    expect_refused("experts", "/tensors/chosen/bits", "40a00000" + std::string(88, '0'), "`chosen` row 0 has the id 5");
    expect_refused("experts", "/tensors/chosen/bits", std::string(96, '0'), "wanted whole ones from 1 on");
    expect_refused("experts", "/sizes/experts", 1, "do not go together");
    expect_refused("choose", "/sizes/open", 2, "do not go together");
    expect_refused("scan", "/item_rows", {1, 1000}, "item_rows has 1000");
    expect_refused("scan", "/sizes/tokens", 1 << 30, "tokens 1073741824");
    expect_refused("matmul", "/tensors/x/bits", "00", "hexadecimal digits");
    expect_refused("matmul", "/tensors/x/bits", 7, "hexadecimal digits");
    expect_refused("matmul", "/profile", "quick", "none of exact");
    expect_refused("scan", "/profile", "tensor.sm90", "no definition");
    expect_refused("matmul", "/expected", json::object(), "expected.out is missing");
    expect_refused("matmul", "/op", "multiply", "is no operation");
}

// A run in the fast profile leaves the definition: `shrink` says in which operation, and leaves it alone in a file.
TEST(OperationCase, ShrinkWritesWhatReplayTries) {
    const tests::ScratchFolder files;
    const std::string record = files.path("fast.rec");
    ASSERT_EQ(run_verbatim({"replay", "--trace", repository_path("traces/scenario.csv"), "--beside", "none",
                            "--profile", "fast", "--record", record})
                  .exit_code,
              kExitOk);
    const Outcome shrunk = run_verbatim({"shrink", record, "--to", files.path("s.rec")});
    ASSERT_EQ(shrunk.exit_code, kExitDifference) << shrunk.err;
    EXPECT_THAT(shrunk.out, HasSubstr("s.rec.case.json: "));
    const std::string path = files.path("s.rec.case.json");
    const Outcome tried = run_verbatim({"replay", "--case", path, "--format", "json"});
    EXPECT_EQ(tried.exit_code, kExitDifference) << tried.err;
    const json result = json::parse(tried.out);
    int num_exact = 0;
    for (const json& one : result["implementations"]) {
        const bool is_fast = one["profile"] == "fast";
        num_exact += is_fast ? 0 : 1;
        EXPECT_EQ(one["equal"], !is_fast) << one;
        if (is_fast) EXPECT_GT(one["first_difference"]["ulps"], 0);
    }
    EXPECT_GE(num_exact, 3);  // the reference, a CPU, the emulator
    EXPECT_FALSE(case_holds(path));
    json file = json::parse(file_bytes(path));
    file["profile"] = "exact";
    const std::string exact = files.write("exact.json", file.dump());
    EXPECT_TRUE(case_holds(exact));
    EXPECT_EQ(run_verbatim({"replay", "--case", exact}).exit_code, kExitOk);
    EXPECT_EQ(run_verbatim({"kernel", "check", file["op"], "--case", exact, "--kernel", "all"}).exit_code, kExitOk);
    // The expected result is in the file: another bit there is a difference of every kernel.
    std::string& bits = file["expected"].front()["bits"].get_ref<std::string&>();
    bits[bits.size() - 1] = bits.back() == '0' ? '1' : '0';
    const Outcome other = run_verbatim({"replay", "--case", files.write("other.json", file.dump())});
    EXPECT_EQ(other.exit_code, kExitDifference);
    EXPECT_THAT(other.out, HasSubstr("1 ulps apart; 1 of "));
}

TEST(OperationCase, WhatCannotBeTriedIsExitThree) {
    const tests::ScratchFolder files;
    EXPECT_EQ(run_verbatim({"replay", "--case", files.path("none.json")}).exit_code, kExitBadInput);
    EXPECT_EQ(run_verbatim({"replay", "--case", files.write("a.json", "[]")}).exit_code, kExitBadInput);
    EXPECT_EQ(run_verbatim({"replay", "--case", "/dev/zero"}).exit_code, kExitBadInput);
    EXPECT_EQ(run_verbatim({"replay", "--case", "a.json", "--trace", "b.csv"}).exit_code, kExitBadUsage);
}

// A file in the repository, as a team would keep one with its tests.
TEST(OperationCase, AKeptCaseHolds) { EXPECT_TRUE(case_holds(repository_path("tests/data/cases/scan.json"))); }

}  // namespace
}  // namespace verbatim::tools
