// `verbatim head` as a shell sees it, and the reader of docs/heads.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/output_file.h"
#include "files/repository_path.h"
#include "reference/loader/head_file.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HeadCommand : public testing::Test {
protected:
    Outcome export_to(const std::string& path, const std::string& executor = "cpu", const std::string& seed = "3") {
        const std::string tokens = files_.write("tokens.json", "[5, 1, 4, 1, 3, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2]");
        return run_verbatim({"head", "export", "--model", "tiny-granite", "--seed", seed, "--tokens", tokens, "--out",
                             path, "--executor", executor});
    }

    tests::ScratchFolder files_;
};

TEST_F(HeadCommand, ShowsWhatItExported) {
    const std::string head = files_.path("a.head");
    const Outcome exported = export_to(head);
    ASSERT_EQ(exported.exit_code, kExitOk) << exported.err;
    EXPECT_THAT(exported.out, HasSubstr("17 tokens, exact/1, digest "));
    const Outcome shown = run_verbatim({"head", "show", head, "--format", "json"});
    ASSERT_EQ(shown.exit_code, kExitOk) << shown.err;
    const json about = json::parse(shown.out);
    EXPECT_EQ(about["length"], 17);
    EXPECT_EQ(about["numerics"], "exact/1");
    EXPECT_EQ(about["tokens"].size(), 17);
    EXPECT_THAT(exported.out, HasSubstr(about["digest"].get<std::string>()));
    EXPECT_THAT(run_verbatim({"head", "show", head}).out, HasSubstr("every checksum"));
}

TEST_F(HeadCommand, TheCpuAndTheEmulatedDeviceWriteTheSameBytes) {
    ASSERT_EQ(export_to(files_.path("cpu.head")).exit_code, kExitOk);
    ASSERT_EQ(export_to(files_.path("cuda.head"), "cuda-emulated").exit_code, kExitOk);
    EXPECT_EQ(file_bytes(files_.path("cpu.head")), file_bytes(files_.path("cuda.head")));
    EXPECT_THAT(export_to(files_.path("none.head"), "reference").err,
                HasSubstr("--executor reference: it keeps no heads"));
}

TEST_F(HeadCommand, ADamagedFileIsNamedAndExits3) {
    const std::string head = files_.path("a.head");
    ASSERT_EQ(export_to(head).exit_code, kExitOk);
    std::string bytes = file_bytes(head);
    bytes[bytes.size() - 5] ^= 4;
    const Outcome shown = run_verbatim({"head", "show", files_.write("b.head", bytes)});
    EXPECT_EQ(shown.exit_code, kExitBadInput);
    EXPECT_THAT(shown.err, HasSubstr("does not have its checksum: the file is damaged"));
    EXPECT_EQ(run_verbatim({"head", "show", files_.path("none")}).exit_code, kExitBadInput);
}

TEST_F(HeadCommand, ImportsIntoATierOnceAndForItsModelAlone) {
    const std::string head = files_.path("a.head");
    ASSERT_EQ(export_to(head).exit_code, kExitOk);
    const std::string tier = files_.path("tier");
    const auto import = [&](const std::string& seed) {
        return run_verbatim({"head", "import", head, "--model", "tiny-granite", "--seed", seed, "--tier", tier});
    };
    const Outcome first = import("3");
    ASSERT_EQ(first.exit_code, kExitOk) << first.err;
    EXPECT_THAT(first.out, HasSubstr("1 heads"));
    EXPECT_THAT(import("3").out, HasSubstr("the tier has this head"));
    const Outcome other = import("4");
    EXPECT_EQ(other.exit_code, kExitBadInput);
    EXPECT_THAT(other.err, HasSubstr("other weights or another configuration"));
}

// Every checksum of the file is right.
TEST_F(HeadCommand, AStateWithoutItsDigestIsRefused) {
    const std::string head = files_.path("a.head");
    ASSERT_EQ(export_to(head).exit_code, kExitOk);
    const auto file = reference::HeadFile::open(head);
    ASSERT_TRUE(file) << file.error().message;
    std::vector<std::byte> bytes(file->bytes().begin(), file->bytes().end());
    bytes.front() ^= std::byte{1};
    const std::string other = files_.path("other.head");
    ASSERT_TRUE(reference::write_head_file(other, file->info(), file->tensors(), bytes));
    const std::string tier = files_.path("tier");
    const std::vector<std::vector<std::string>> commands = {
        {"head", "show", other}, {"head", "import", other, "--model", "tiny-granite", "--seed", "3", "--tier", tier}};
    for (const std::vector<std::string>& command : commands) {
        const Outcome refused = run_verbatim(command);
        EXPECT_EQ(refused.exit_code, kExitBadInput) << command[1];
        EXPECT_THAT(refused.err, HasSubstr("other.head: the state has digest ")) << command[1];
    }
    EXPECT_FALSE(std::filesystem::exists(tier));
}

TEST_F(HeadCommand, ImportRemovesNoHeadToMakeRoom) {
    const std::string tier = files_.path("tier");
    const auto import = [&](int first, const std::vector<std::string>& limit) {
        json tokens = json::array();
        for (int i = 0; i < 40; ++i) tokens.push_back(first + i);
        const std::string head = files_.path("in.head");
        EXPECT_EQ(run_verbatim({"head", "export", "--model", "tiny-granite", "--tokens",
                                files_.write("t.json", tokens.dump()), "--out", head})
                      .exit_code,
                  kExitOk);
        std::vector<std::string> command = {"head", "import", head, "--model", "tiny-granite", "--tier", tier};
        command.insert(command.end(), limit.begin(), limit.end());
        return run_verbatim(command);
    };
    const auto files = [&] {
        std::map<std::string, std::string> all;
        for (const auto& entry : std::filesystem::directory_iterator(tier))
            if (entry.path().extension() == ".head") all[entry.path().filename()] = file_bytes(entry.path());
        return all;
    };
    ASSERT_EQ(import(0, {}).exit_code, kExitOk);
    ASSERT_EQ(import(1, {}).exit_code, kExitOk);
    const auto before = files();
    ASSERT_EQ(before.size(), 2);
    const auto size = static_cast<int64_t>(before.begin()->second.size());
    const std::string enough = std::to_string(3 * size);
    for (const std::string& limit : {std::string("0"), std::to_string(size), std::to_string(3 * size - 1)}) {
        const Outcome refused = import(2, {"--tier-bytes", limit});
        EXPECT_EQ(refused.exit_code, kExitBadInput) << limit;
        EXPECT_THAT(refused.err, HasSubstr("take --tier-bytes " + enough + ", got " + limit)) << limit;
        EXPECT_EQ(files(), before) << limit;
    }
    const Outcome known = import(1, {"--tier-bytes", "0"});
    EXPECT_THAT(known.out, HasSubstr("the tier has this head"));
    EXPECT_EQ(files(), before);
    const Outcome taken = import(2, {"--tier-bytes", enough});
    EXPECT_EQ(taken.exit_code, kExitOk) << taken.err;
    EXPECT_EQ(files().size(), 3);
}

// Two heads that begin with the same 40 tokens: the second file of the tier has the KV of its last 20.
TEST_F(HeadCommand, ShowsWhatAPartBeginsIn) {
    const std::string tier = files_.path("tier");
    std::string digest;
    for (const int last : {39, 59}) {
        json tokens = json::array();
        for (int i = 0; i <= last; ++i) tokens.push_back(i % 50);
        const std::string head = files_.path(std::to_string(last) + ".head");
        ASSERT_EQ(run_verbatim({"head", "export", "--model", "tiny-granite", "--tokens",
                                files_.write("t.json", tokens.dump()), "--out", head})
                      .exit_code,
                  kExitOk);
        ASSERT_EQ(run_verbatim({"head", "import", head, "--model", "tiny-granite", "--tier", tier}).exit_code, kExitOk);
        digest = json::parse(run_verbatim({"head", "show", head, "--format", "json"}).out)["digest"];
    }
    std::string base;
    std::string part;
    for (const auto& entry : std::filesystem::directory_iterator(tier)) {
        if (entry.path().extension() != ".head") continue;
        const std::string path = entry.path().string();
        const Outcome shown = run_verbatim({"head", "show", path, "--format", "json"});
        ASSERT_EQ(shown.exit_code, kExitOk) << shown.err;
        (json::parse(shown.out)["base"].is_null() ? base : part) = path;
    }
    const json about = json::parse(run_verbatim({"head", "show", part, "--format", "json"}).out);
    EXPECT_EQ(about["length"], 60);
    EXPECT_EQ(about["digest"], digest);
    EXPECT_EQ(about["base"]["length"], 40);
    EXPECT_EQ(about["base"]["name"], std::filesystem::path(base).stem().string());
    EXPECT_THAT(run_verbatim({"head", "show", part}).out, HasSubstr("has the KV of 40 tokens; this file of 20"));
    std::filesystem::remove(base);
    EXPECT_EQ(run_verbatim({"head", "show", part}).exit_code, kExitBadInput);
}

TEST_F(HeadCommand, WrongInputIsNamed) {
    const std::string out = files_.path("a.head");
    const auto with = [&](const std::string& tokens) {
        return run_verbatim(
            {"head", "export", "--model", "tiny-granite", "--tokens", files_.write("t.json", tokens), "--out", out});
    };
    EXPECT_THAT(with("[1, -2]").err, HasSubstr("[1] is -2, wanted a token id"));
    EXPECT_THAT(with("{}").err, HasSubstr("wanted a JSON list of token ids"));
    EXPECT_THAT(with("[]").err, HasSubstr("there are no tokens"));
    EXPECT_THAT(with("[1000000]").err, HasSubstr("token 1000000 is not one of the model's"));
    EXPECT_EQ(run_verbatim({"head", "export", "--model", "tiny-granite", "--out", out}).exit_code, kExitBadUsage);
    EXPECT_FALSE(std::filesystem::exists(out));
}

// Computing takes minutes: a second command that would write the file ends before it.
TEST_F(HeadCommand, ExportLocksItsFileBeforeItReadsAnything) {
    const std::string head = files_.path("a.head");
    auto other = files::OutputFile::create(head);
    ASSERT_TRUE(other) << other.error().message;
    const Outcome refused = run_verbatim(
        {"head", "export", "--model", files_.path("no-model"), "--tokens", files_.path("no-tokens"), "--out", head});
    EXPECT_EQ(refused.exit_code, kExitMachine);
    EXPECT_THAT(refused.err, HasSubstr("is being written by another command"));
}

TEST_F(HeadCommand, ExportMakesNoLedger) {
    const std::string out = files_.path("a.head");
    const auto export_from = [&](const std::string& ledger) {
        return run_verbatim({"head", "export", "--model", repository_path("server/models/tiny-python"), "--ledger",
                             ledger, "--conversation", "c", "--out", out});
    };
    const std::string mistyped = files_.path("mistyped.ledger");
    const Outcome refused = export_from(mistyped);
    EXPECT_EQ(refused.exit_code, kExitBadInput);
    EXPECT_THAT(refused.err, HasSubstr("mistyped.ledger: it is not there"));
    EXPECT_FALSE(std::filesystem::exists(mistyped));
    const std::string empty = files_.write("empty.ledger", "");
    EXPECT_THAT(export_from(empty).err, HasSubstr("empty.ledger: it is empty"));
    EXPECT_EQ(std::filesystem::file_size(empty), 0u);
    EXPECT_THAT(export_from("none").err, HasSubstr("--ledger none: keeps no conversation"));
    EXPECT_FALSE(std::filesystem::exists(out));
}

// The program of docs/heads.md, as it stands there.
TEST_F(HeadCommand, TheDocumentedReaderReadsIt) {
    const std::string text = file_bytes(VERBATIM_SOURCE_DIR "/docs/heads.md");
    const size_t begin = text.find("```python\n");
    ASSERT_NE(begin, std::string::npos);
    const size_t first = begin + std::string("```python\n").size();
    const std::string program = text.substr(first, text.find("```", first) - first);
    EXPECT_LE(std::ranges::count(program, '\n'), 20);
    const std::string head = files_.path("a.head");
    ASSERT_EQ(export_to(head).exit_code, kExitOk);
    const std::string out = files_.path("out.txt");
    const std::string command = "python3 " + files_.write("read_head.py", program) + " " + head + " > " + out + " 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << file_bytes(out);
    const json about = json::parse(run_verbatim({"head", "show", head, "--format", "json"}).out);
    EXPECT_THAT(file_bytes(out), HasSubstr("verbatim-head/1 exact/1 17 tokens"));
    for (const json& tensor : about["tensors"]) {
        EXPECT_THAT(file_bytes(out), HasSubstr("layers." + std::to_string(tensor["layer"].get<int>()) + "." +
                                               tensor["kind"].get<std::string>() + " "));
    }
}

}  // namespace
}  // namespace verbatim::tools
