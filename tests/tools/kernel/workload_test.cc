// `--workload FILE`: the errors of hostile files, and a kernel that fails on a captured call alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/sandbox/workload.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using WorkloadJson = nlohmann::json;
using testing::HasSubstr;

Workload one_call(const Operation& operation, uint64_t seed) {
    KernelCase one{.seed = seed};
    for (size_t i = 0; i < operation.sizes.size(); ++i) one.sizes[i] = operation.sizes[i].usual;
    one.captured = captured_of(make_arguments(operation, one));
    return {operation.name, "a test", 5, 3, {{.step = 2, .layer = 1, .times = 4, .one = one}}};
}

WorkloadJson json_of(const std::string& operation) {
    return WorkloadJson::parse(workload_json(one_call(*find_operation(operation), 7)));
}

TEST(Workload, IsReadAsItWasWrittenForEveryOperation) {
    const tests::ScratchFolder scratch;
    for (const Operation& operation : operations()) {
        const Workload workload = one_call(operation, 11);
        const auto read = read_workload(scratch.write("w.json", workload_json(workload)), operation);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(read->num_calls, 5);
        EXPECT_EQ(read->num_shapes, 3);
        EXPECT_EQ(workload_json(*read), workload_json(workload)) << operation.name;
        EXPECT_EQ(make_arguments(operation, read->calls[0].one).tensors.back().bytes,
                  make_arguments(operation, workload.calls[0].one).tensors.back().bytes);
    }
}

TEST(Workload, ACallsOperationsAreKnownWithoutItsWeights) {
    for (const Operation& operation : operations()) {
        const KernelCase one = one_call(operation, 11).calls[0].one;
        EXPECT_EQ(flops_of(operation, one), operation.work(make_arguments(operation, one)).flops) << operation.name;
    }
}

class HostileWorkload : public testing::Test {
protected:
    void expect(const std::string& operation, const std::string& text, const std::string& what) {
        const Outcome outcome = run_verbatim(
            {"kernel", "check", operation, "--effort", "short", "--workload", scratch_.write("w.json", text)});
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << text.substr(0, 200);
        EXPECT_THAT(outcome.err, HasSubstr(what));
        EXPECT_THAT(outcome.err, HasSubstr("w.json"));
    }
    // The file of one call, with a change.
    template <typename Change>
    void expect_changed(const std::string& operation, const Change& change, const std::string& what) {
        WorkloadJson json = json_of(operation);
        change(json);
        expect(operation, json.dump(), what);
    }
    template <typename Change>
    void expect_call(const std::string& operation, const Change& change, const std::string& what) {
        expect_changed(
            operation, [&](WorkloadJson& json) { change(json["kept"][0]); }, what);
    }
    template <typename Change>
    void expect_tensors(const std::string& operation, const Change& change, const std::string& what) {
        expect_call(
            operation, [&](WorkloadJson& json) { change(json["captured"]["tensors"]); }, what);
    }
    tests::ScratchFolder scratch_;
};

TEST_F(HostileWorkload, IsNoWorkload) {
    expect("rope", "", "w.json");
    expect("rope", "[1, 2", "w.json");
    expect("rope", "[]", "no JSON object");
    expect("rope", R"({"op": "rope", "sizes": {}})", "no workload");
    expect("rope", R"({"workload": "scan", "kept": []})", "of scan, not of rope");
    expect("rope", R"({"workload": "rope", "kept": []})", "no calls");
    expect("rope", R"({"workload": "rope", "kept": 5})", "no calls");
    expect("rope", R"({"workload": ["rope"]})", "w.json");
    expect("rope", R"({"workload": "rope", "workload": "rope"})", "w.json");
    expect("rope", std::string(100'000, '['), "w.json");
    expect("rope", "{\"workload\": \"rope\", \"from\": \"" + std::string(17 << 20, 'x') + "\"}", "at most");
    expect_changed(
        "rope", [](WorkloadJson& json) { json["kept"] = std::vector(65, json["kept"][0]); }, "at most 64");
    const Outcome missing = run_verbatim({"kernel", "check", "rope", "--workload", "/nowhere/w.json"});
    EXPECT_EQ(missing.exit_code, kExitBadInput);
    const Outcome device = run_verbatim({"kernel", "check", "rope", "--workload", "/dev/zero"});
    EXPECT_EQ(device.exit_code, kExitBadInput);
    EXPECT_THAT(device.err, HasSubstr("/dev/zero"));
}

TEST_F(HostileWorkload, HasSizesOrRowsThatNoCallHas) {
    expect_call(
        "scan", [](WorkloadJson& call) { call["sizes"].erase("groups"); }, "groups");
    expect_call(
        "scan", [](WorkloadJson& call) { call["sizes"]["groups"] = -1; }, "groups -1");
    expect_call(
        "scan", [](WorkloadJson& call) { call["sizes"]["groups"] = 1e300; }, "w.json");
    expect_call(
        "scan",
        [](WorkloadJson& call) {
            call["sizes"]["tokens"] = 200'000;
            call["sizes"]["head_dim"] = 4000;
        },
        "too large");
    expect_call(
        "conv", [](WorkloadJson& call) { call["sizes"]["taps"] = 5; }, "none of [2,3,4]");
    expect_call(
        "scan", [](WorkloadJson& call) { call.erase("captured"); }, "captured");
    expect_call(
        "scan", [](WorkloadJson& call) { call["captured"]["rows"] = {0}; }, "rows has 0");
    expect_call(
        "scan", [](WorkloadJson& call) { call["captured"]["rows"] = {6}; }, "1 ... 5");
    expect_call(
        "scan",
        [](WorkloadJson& call) {
            call["captured"]["rows"] = {1, 1, 1};
        },
        "1 ... 2");
    expect_call(
        "scan", [](WorkloadJson& call) { call["captured"]["rows"] = WorkloadJson::array(); }, "rows has 0 numbers");
    expect_call(
        "rope", [](WorkloadJson& call) { call["captured"]["rows"] = {2}; }, "1 ... 1");
    expect_call(
        "scan", [](WorkloadJson& call) { call["captured"]["scalars"] = "00"; }, "scalars");
    expect_call(
        "scan", [](WorkloadJson& call) { call["times"] = 0; }, "times 0");
    expect_call(
        "scan", [](WorkloadJson& call) { call["captured"]["scalars"] = "0000803f000000000000000000000000"; }, "dt_min");
}

TEST_F(HostileWorkload, HasValuesThatTheContractDoesNotAdmit) {
    const auto words = [](size_t count, const std::string& word) {
        std::string text;
        for (size_t i = 0; i < count; ++i) text += word;
        return text;
    };
    expect_tensors(
        "scan", [](WorkloadJson& tensors) { tensors["x"] = "0g"; }, "digits");
    expect_tensors(
        "scan", [](WorkloadJson& tensors) { tensors["x"] = "000"; }, "digits");
    expect_tensors(
        "scan", [](WorkloadJson& tensors) { tensors["x"] = "00"; }, "`x` has 1 bytes");
    expect_tensors(
        "scan", [](WorkloadJson& tensors) { tensors["xx"] = "00"; }, "no tensor");
    expect_tensors(
        "scan", [](WorkloadJson& tensors) { tensors["y"] = "00"; }, "no input");
    expect_tensors(
        "scan", [](WorkloadJson& tensors) { tensors["first_row"] = "00"; }, "no input");
    expect_tensors(
        "rope", [&](WorkloadJson& tensors) { tensors["positions"] = words(3, "5000000000000000"); }, "`positions` 80");
    expect_tensors(
        "rope", [&](WorkloadJson& tensors) { tensors["positions"] = words(3, "ffffffffffffffff"); }, "`positions` -1");
    expect_tensors(
        "attention", [&](WorkloadJson& tensors) { tensors["block_tables"] = words(2, "03000000"); },
        "`block_tables` 3");
    expect_tensors(
        "attention", [&](WorkloadJson& tensors) { tensors["first_position"] = words(2, "0600000000000000"); },
        "`first_position` 6");
    expect_tensors(
        "sampling", [&](WorkloadJson& tensors) { tensors["prompt"] = words(15, "28000000"); }, "`prompt` 40");
    expect_tensors(
        "sampling", [&](WorkloadJson& tensors) { tensors["num_generated"] = words(3, "06000000"); },
        "`num_generated` 6");
    expect_tensors(
        "sampling", [&](WorkloadJson& tensors) { tensors["logits"] = words(120, "0000807f"); }, "finite");
    expect_tensors(
        "sampling", [&](WorkloadJson& tensors) { tensors["draws"] = words(30, "000080bf"); }, "parameter");
    expect_tensors(
        "head_digest", [&](WorkloadJson& tensors) { tensors["first_index"] = words(3, "ffffffffffffff7f"); },
        "`first_index`");
}

// A kernel that is wrong on one value that no generator makes: the failure is the captured call, taken apart, and its
// case file repeats it.
TEST(WorkloadFailure, IsTakenApartAndRepeated) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rms_norm.cc");
    const size_t end = source.rfind("return 0;");
    ASSERT_NE(end, std::string::npos);
    source.insert(end,
                  "for (int64_t r = 0; r < run->args.rms_norm->x.num_rows; ++r)\n"
                  "    if (run->args.rms_norm->x.data[r * run->args.rms_norm->x.stride] == 12345.678f)\n"
                  "        run->args.rms_norm->out.data[r * run->args.rms_norm->out.stride] += 1;\n    ");
    const std::string file = scratch.write("mine.cc", source);
    const Operation& operation = *find_operation("rms_norm");
    Workload workload{"rms_norm", "a test", 1, 1, {}};
    KernelCase one{.sizes = {7, 33}, .seed = 5};
    Arguments call = make_arguments(operation, one);
    call.tensor("x").as<float>()[4 * 33] = 12345.678F;
    one.captured = captured_of(call);
    workload.calls.push_back({.one = one});
    const std::string captured = scratch.write("w.json", workload_json(workload));
    const std::string kept = scratch.path("case.json");
    EXPECT_EQ(run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--file", file}).exit_code, kExitOk);
    const Outcome failed = run_verbatim({"kernel", "check", "rms_norm", "--effort", "short", "--file", file,
                                         "--workload", captured, "--case-out", kept, "--format", "json"});
    EXPECT_EQ(failed.exit_code, kExitDifference) << failed.err;
    const WorkloadJson report = WorkloadJson::parse(failed.out);
    EXPECT_EQ(report["verdict"], "wrong bits");
    EXPECT_EQ(report["first_failure"]["captured_rows"], std::vector<int64_t>{1});
    const Outcome again = run_verbatim({"kernel", "check", "rms_norm", "--file", file, "--case", kept});
    EXPECT_EQ(again.exit_code, kExitDifference);
    EXPECT_THAT(again.out, HasSubstr("captured, 1 of them"));
    EXPECT_EQ(run_verbatim({"kernel", "check", "rms_norm", "--case", kept}).exit_code, kExitOk);
}

}  // namespace
}  // namespace verbatim::tools
