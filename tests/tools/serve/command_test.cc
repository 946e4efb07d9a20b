// `verbatim serve`: folders that it cannot serve are refused at the start, with what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "files/repository_path.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ServedFolder : public testing::Test {
protected:
    ServedFolder() {
        std::filesystem::copy(repository_path("server/models/tiny-python"), files_.path(),
                              std::filesystem::copy_options::recursive);
    }
    [[nodiscard]] Outcome serve() const {
        return run_verbatim({"serve", "--model", files_.path(""), "--port", "0", "--ledger", "none"});
    }
    tests::ScratchFolder files_;
};

TEST_F(ServedFolder, WithoutATokenizerIsRefusedWithWhatServingNeeds) {
    std::filesystem::remove(files_.path("tokenizer.json"));
    const Outcome refused = serve();
    EXPECT_EQ(refused.exit_code, kExitBadInput);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("there is no tokenizer.json: serving needs"),
                                   HasSubstr("chat_template.jinja"), HasSubstr("verbatim replay --model")));
}

TEST_F(ServedFolder, WithEndTokensBeyondTheVocabularyIsRefused) {
    files_.write("generation_config.json", R"({"eos_token_id": [0, 2048]})");
    const Outcome refused = serve();
    EXPECT_EQ(refused.exit_code, kExitBadInput);
    EXPECT_THAT(refused.err, HasSubstr("generation_config.json: eos_token_id is [0,2048], wanted ids of the model's "
                                       "vocabulary, 0 to 2047"));
}

// The sockets' thread runs by then.
TEST_F(ServedFolder, WhoseFilesTheSystemCannotFindEndsInOrder) {
    std::filesystem::remove(files_.path("tokenizer_config.json"));
    std::filesystem::create_symlink("tokenizer_config.json", files_.path("tokenizer_config.json"));
    const Outcome refused = serve();
    EXPECT_EQ(refused.exit_code, kExitMachine);
    EXPECT_THAT(refused.err, HasSubstr("tokenizer_config.json"));
}

}  // namespace
}  // namespace verbatim::tools
