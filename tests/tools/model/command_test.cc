#include "tools/model/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/reference/loader/checkpoint_builder.h"
#include "tests/reference/loader/quantised_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"
#include "tools/model/report.h"

namespace verbatim::tools {
namespace {

using testing::HasSubstr;
using tests::ScratchFolder;
using Json = nlohmann::json;

Outcome run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "model");
    return run_verbatim(std::move(arguments));
}

std::string golden(const std::string& name) { return VERBATIM_SOURCE_DIR "/tests/data/golden/" + name; }

TEST(ModelCommand, InitWritesWhatInfoReads) {
    const ScratchFolder scratch;
    const std::string folder = scratch.path() / "model";
    const Outcome init = run({"init", "--preset", "tiny-granite", "--seed", "9", "--out", folder, "--format", "json"});
    ASSERT_EQ(init.exit_code, kExitOk) << init.err;
    EXPECT_EQ(Json::parse(init.out)["seed"], 9);
    const Outcome of_folder = run({"info", folder, "--format", "json"});
    const Outcome of_preset = run({"info", "tiny-granite", "--format", "json"});
    ASSERT_EQ(of_folder.exit_code, kExitOk) << of_folder.err;
    Json a = Json::parse(of_folder.out);
    Json b = Json::parse(of_preset.out);
    EXPECT_EQ(a["load"]["rounded_values"], 0);
    a.erase("load");
    a.erase("model");
    b.erase("model");
    EXPECT_EQ(a, b);
}

TEST(ModelCommand, InfoCountsWhatFitsIntoMemory) {
    const Json info = Json::parse(run({"info", "granite-4.0-h-350m", "--memory", "4GiB", "--format", "json"}).out);
    EXPECT_EQ(info["parameters"], 340332224);
    EXPECT_EQ(info["layers"]["mamba"], 28);
    EXPECT_EQ(info["tied"], true);
    EXPECT_EQ(info["break_even_tokens"], 5523);
    const int64_t left = (int64_t{4} << 30) - info["weight_bytes"].get<int64_t>();
    EXPECT_EQ(info["sequences_that_fit"]["8192"], left / (8192 * 4096 + 22622208));
    EXPECT_FALSE(info["sequences_that_fit"].contains("131072"));  // the model has 32768 positions
}

TEST(ModelCommand, InfoSaysWhatRoundingToBf16Changed) {
    const ScratchFolder scratch;
    const std::string folder = scratch.path() / "model";
    std::filesystem::copy(golden("llama"), folder, std::filesystem::copy_options::recursive);
    const std::string weights = folder + "/model.safetensors";
    reference::FileTensors tensors = reference::read_tensors(file_bytes(weights));
    reference::FileTensor& matrix = reference::find_tensor(tensors, "model.embed_tokens.weight");
    matrix.layout.dtype = reference::TensorDtype::kF32;
    matrix.bytes.assign(2 * matrix.bytes.size(), '\0');
    matrix.bytes.replace(0, 8, std::string("\x00\x00\x80\x3F\x01\x00\x80\x3F", 8));  // 1, which is exact, and 1 + 2^-23
    std::ofstream(weights, std::ios::binary) << reference::write_tensors(tensors);
    const Outcome info = run({"info", folder, "--format", "json"});
    ASSERT_EQ(info.exit_code, kExitOk) << info.err;
    const Json load = Json::parse(info.out)["load"];
    EXPECT_EQ(load["float32_values"], 160 * 64);
    EXPECT_EQ(load["rounded_values"], 1);
    EXPECT_GT(load["max_relative_change"], 1e-7);
    EXPECT_LT(load["max_relative_change"], 1.3e-7);
    EXPECT_THAT(run({"info", folder}).out, HasSubstr("rounded to bf16"));
}

TEST(ModelCommand, CheckSaysHowFarBothModelsAreFromTheTruth) {
    const Outcome check = run({"check", golden("llama"), "--format", "json"});
    ASSERT_EQ(check.exit_code, kExitOk) << check.err;
    const Json json = Json::parse(check.out);
    EXPECT_EQ(json["checkpoint"], golden("llama"));
    EXPECT_EQ(json["positions"], 219);
    EXPECT_LT(json["double"]["max_error"], 1e-9);
    EXPECT_LT(json["exact"]["rms_error"], 0.0235);
    EXPECT_GE(json["exact"]["max_error"], json["exact"]["rms_error"]);
    EXPECT_EQ(json["verdict"], "same");
    EXPECT_EQ(json["compared"], (Json{{"double", 219}, {"exact", 219}}));
}

TEST(ModelCommand, CheckShowsNoErrorOfWhatItDidNotCompare) {
    const ScratchFolder scratch;
    const std::string file = scratch.path("golden.safetensors");
    reference::FileTensors tensors = reference::read_tensors(file_bytes(golden("mamba2") + "/golden.safetensors"));
    std::erase_if(tensors, [](const reference::FileTensor& tensor) {
        return !tensor.layout.name.starts_with("tokens") && !tensor.layout.name.starts_with("logits");
    });
    std::ofstream(file, std::ios::binary) << reference::write_tensors(tensors);
    const Outcome table = run({"check", golden("mamba2"), "--golden", file});
    ASSERT_EQ(table.exit_code, kExitOk) << table.err;
    EXPECT_THAT(table.out, HasSubstr("states: double max - of 0 values, exact rms - of 0\n"));
    EXPECT_THAT(table.out, testing::Not(HasSubstr("ok")));
    for (const char* model : {"double", "exact"}) {
        const Json logits_only =
            Json::parse(run({"check", golden("mamba2"), "--golden", file, "--format", "json"}).out);
        EXPECT_EQ(logits_only[model]["state_max_error"], nullptr);
        EXPECT_EQ(logits_only[model]["state_rms_error"], nullptr);
        EXPECT_EQ(logits_only[model]["state_values"], 0);
        EXPECT_EQ(logits_only[model]["hidden_tensors"], 0);
        EXPECT_GT(logits_only[model]["logit_values"], 0);
        const Json all = Json::parse(run({"check", golden("mamba2"), "--format", "json"}).out);
        EXPECT_LT(all[model]["state_rms_error"], 0.05);
        EXPECT_GT(all[model]["state_values"], 0);
        EXPECT_EQ(all[model]["hidden_tensors"], 4);
    }
}

TEST(ModelCommand, CheckFailsWhenTheGoldenIsOfOtherWeights) {
    const ScratchFolder scratch;
    const std::string folder = scratch.path() / "model";
    // The golden's own config.json, other weights.
    std::filesystem::create_directories(folder);
    std::filesystem::copy(golden("mamba2"), folder, std::filesystem::copy_options::recursive);
    std::string weights = folder + "/model.safetensors";
    std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 2);
    std::ofstream(weights, std::ios::binary | std::ios::app) << "\x40\x40";  // one element of the last matrix
    const Outcome check = run({"check", folder});
    EXPECT_EQ(check.exit_code, kExitDifference) << check.err;
    EXPECT_THAT(check.out, HasSubstr("WRONG"));
}

TEST(ModelCommand, ACheckThatComparedNoLogitsIsNotRight) {
    reference::GoldenReport report;
    report.num_positions = 7;
    report.double_model.num_positions = 7;
    report.exact.num_positions = 7;
    ASSERT_TRUE(report.passes());
    EXPECT_EQ(verdict_of(report), records::Verdict::kSame);
    report.exact.num_positions = 0;  // a set of experts differs at the first position of every prompt
    EXPECT_EQ(verdict_of(report), records::Verdict::kNotAllCompared);
    EXPECT_THAT(check_table("model", report), HasSubstr("7 of 7 positions in double, 0 in exact\nnothing compared"));
    EXPECT_EQ(Json::parse(check_json("model", report))["passes"], false);
    report.exact.choices.num_wrong = 1;
    EXPECT_EQ(verdict_of(report), records::Verdict::kDifferent);
}

TEST(ModelCommand, QuantiseWritesAFileThatInfoAndCheckRead) {
    const ScratchFolder scratch;
    const std::string file = scratch.path("model.gguf");
    const Outcome made = run({"quantise", golden("granite-hybrid"), "--to", "q8_0", "--out", file});
    ASSERT_EQ(made.exit_code, kExitOk) << made.err;
    const Json info = Json::parse(run({"info", file, "--format", "json"}).out);
    const Json plain = Json::parse(run({"info", golden("granite-hybrid"), "--format", "json"}).out);
    EXPECT_EQ(info["parameters"], plain["parameters"]);
    EXPECT_GT(info["load"]["quantised_values"], 100'000);
    EXPECT_EQ(info["load"]["quantised_bytes"], info["load"]["quantised_values"].get<int64_t>() / 32 * 34);
    EXPECT_LT(info["weight_bytes"], plain["weight_bytes"]);
    const Outcome check = run({"check", file, "--golden", golden("granite-hybrid") + "/golden.safetensors"});
    EXPECT_EQ(check.exit_code, 1) << check.out;  // close to the checkpoint, not equal
    EXPECT_THAT(check.out, HasSubstr("219 of 219 positions in double, 219 in exact"));
}

TEST(ModelCommand, QuantiseRefusesWhatItCannotWrite) {
    const ScratchFolder scratch;
    const std::string file = scratch.path("model.gguf");
    const auto expect = [&](const std::string& model, const std::string& type, int code, const std::string& said) {
        const Outcome got = run({"quantise", model, "--to", type, "--out", file});
        EXPECT_EQ(got.exit_code, code) << got.err;
        EXPECT_THAT(got.err, HasSubstr(said));
        EXPECT_FALSE(std::filesystem::exists(file));
    };
    expect(golden("granite-hybrid"), "q5_1", kExitBadUsage, "--to q5_1: wanted q8_0, q4_0, q4_k, bf16, int8");
    expect(golden("qwen35"), "q8_0", kExitBadInput,
           "rows of 112 elements, wanted whole blocks of Q8_0, which has 32: no GGUF");
    expect(golden("falcon-h1"), "q8_0", kExitBadInput, "multiplies multipliers into the weights");
    expect(golden("granite-hybrid"), "fp8-block", kExitBadInput,
           "no linear layer is in whole blocks of 128 rows and 128");
    expect("/nonexistent/folder", "q8_0", kExitBadInput, "wanted the folder of a checkpoint");
}

TEST(ModelCommand, QuantisesIntoAFolderThatIsRead) {
    const ScratchFolder scratch;
    const std::string model = std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python";
    for (const std::string type : {"int8", "fp8"}) {
        const std::string folder = scratch.path(type);
        const Outcome quantised = run({"quantise", model, "--to", type, "--out", folder});
        ASSERT_EQ(quantised.exit_code, kExitOk) << quantised.err;
        EXPECT_THAT(quantised.out, HasSubstr(" parameters: "));
        EXPECT_THAT(quantised.out, HasSubstr(" in BF16")) << "what stayed";
        EXPECT_TRUE(std::filesystem::exists(folder + "/tokenizer.json"));
        const Outcome again = run({"quantise", model, "--to", type, "--out", folder});
        EXPECT_EQ(again.exit_code, kExitMachine);
        EXPECT_THAT(again.err, HasSubstr("error: " + folder + "/config.json: already exists"));
        const std::string file = scratch.write("file", "");
        const Outcome no_folder = run({"quantise", model, "--to", type, "--out", file});
        EXPECT_EQ(no_folder.exit_code, kExitMachine);
        EXPECT_THAT(no_folder.err, HasSubstr("error: " + file + ": cannot be made: Not a directory"));
        const Outcome info = run({"info", folder, "--format", "json"});
        ASSERT_EQ(info.exit_code, kExitOk) << info.err;
        const auto load = nlohmann::json::parse(info.out)["load"];
        // Embedding and head, 2048 x 192, stay as they are.
        EXPECT_EQ(load["quantised_values"], 4'044'288);
        EXPECT_EQ(load["quantised_bytes"], 4'044'288 / 32 * 36);
        EXPECT_EQ(run({"quantise", folder, "--to", type, "--out", scratch.path("twice")}).exit_code, kExitBadInput);
    }
}

TEST(ModelCommand, InfoSaysWhetherTheRecipesActivationsAreComputed) {
    const ScratchFolder scratch;
    const std::string folder = tests::write_quantised_preset(scratch.path(), "tiny-granite", "fp8-block", 1);
    EXPECT_EQ(Json::parse(run({"info", folder, "--format", "json"}).out)["recipe_activations"], "in exact.fp8");
    Json config = Json::parse(reference::read_file(folder + "/config.json"));
    config["quantization_config"]["activation_scheme"] = "static";
    scratch.write("fp8-block/config.json", config.dump());
    EXPECT_THAT(run({"info", folder}).out,
                HasSubstr("not in exact.fp8: quantization_config has activation_scheme = \"static\""));
    const std::string rows = tests::write_quantised_preset(scratch.path() / "rows", "tiny-granite", "fp8", 1);
    tests::make_scales_static(rows);
    EXPECT_EQ(Json::parse(run({"info", rows, "--format", "json"}).out)["recipe_activations"],
              "in exact.fp8, under static scales");
    EXPECT_FALSE(
        Json::parse(run({"info", scratch.path("dense"), "--format", "json"}).out).contains("recipe_activations"));
}

TEST(ModelCommand, WrongUseHasItsExitCodeAndSaysWhatToDo) {
    const Outcome no_preset = run({"init", "--preset", "tiny", "--out", "/nonexistent/x"});
    EXPECT_EQ(no_preset.exit_code, kExitBadUsage);
    EXPECT_THAT(no_preset.err, HasSubstr("there is no preset \"tiny\": wanted one of tiny-granite"));
    const Outcome no_verb = run({});
    EXPECT_EQ(no_verb.exit_code, kExitBadUsage);
    const Outcome no_model = run({"info", "nothing-here"});
    EXPECT_EQ(no_model.exit_code, kExitBadInput);
    EXPECT_THAT(no_model.err, HasSubstr("neither a folder, a GGUF file nor a preset"));
    const Outcome no_golden = run({"check", golden("llama"), "--golden", "/nonexistent/golden"});
    EXPECT_EQ(no_golden.exit_code, kExitBadInput);
    const Outcome unwritable = run({"init", "--preset", "tiny-llama", "--out", "/proc/nothing"});
    EXPECT_EQ(unwritable.exit_code, kExitMachine);
    EXPECT_EQ(unwritable.out, "");
}

}  // namespace
}  // namespace verbatim::tools
