#include "server/text/gguf_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "server/text/chat.h"
#include "server/text/stop_tokens.h"
#include "server/text/tokenizer_json.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::text {
namespace {

using reference::GgufMetadata;
using reference::GgufStrings;
using reference::OwnedMetadata;
using tests::ScratchFolder;

const std::string kTinyPython = VERBATIM_SOURCE_DIR "/server/models/tiny-python";

std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text) {
    WordCache cache;
    return *tokenizer.encode(text, {}, cache);
}

// The folder's texts as metadata, in a file without tensors.
std::string file_of(const std::string& folder, int32_t vocab_size, const ScratchFolder& scratch) {
    OwnedMetadata metadata;
    const Status put = put_gguf_texts(folder, vocab_size, metadata);
    EXPECT_TRUE(put) << put.error().message;
    return scratch.write("text.gguf", reference::gguf_prefix(metadata.view(), {}));
}

constexpr std::string_view kTexts[] = {"def add(a, b):\n    return a + b\n",
                                       "  two  spaces\t\r\n\n12345 ünïcode 漢字 'll I'LL",
                                       "<|start_of_role|>user<|end_of_role|>hi<|end_of_text|>", ""};

class GgufTokenizer : public testing::TestWithParam<std::string> {};

TEST_P(GgufTokenizer, GivesTheIdsOfTheFolderItWasMadeFrom) {
    const ScratchFolder scratch;
    const std::string folder = VERBATIM_SOURCE_DIR + GetParam();
    const Tokenizer wanted = *load_tokenizer(folder);
    const auto got = load_tokenizer(file_of(folder, wanted.num_ids(), scratch));
    ASSERT_TRUE(got) << got.error().message;
    for (const std::string_view text : kTexts) EXPECT_EQ(encoded(*got, text), encoded(wanted, text)) << text;
    const auto is_added = [&](TokenId id) {
        return std::ranges::count(wanted.added_tokens(), id, &AddedToken::id) > 0;
    };
    for (TokenId id = 0; id < wanted.num_ids(); ++id) {
        // A file has one text for an id: an added token's hides that of the vocabulary.
        if (!is_added(id)) EXPECT_EQ(got->bytes_of(id), wanted.bytes_of(id)) << id;
        EXPECT_EQ(got->is_special(id), wanted.is_special(id)) << id;
    }
}

INSTANTIATE_TEST_SUITE_P(Folders, GgufTokenizer,
                         testing::Values("/server/models/tiny-python", "/tests/data/tokenizers/llama3",
                                         "/tests/data/tokenizers/granite4", "/tests/data/tokenizers/qwen3_5",
                                         "/tests/data/tokenizers/tekken"),
                         [](const auto& info) {
                             std::string name = std::filesystem::path(info.param).filename();
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

TEST(GgufText, ChatTemplateAndStopTokensAreTheFolders) {
    const ScratchFolder scratch;
    const std::string file = file_of(kTinyPython, 2048, scratch);
    EXPECT_EQ(find_chat_template(file)->value().source, find_chat_template(kTinyPython)->value().source);
    EXPECT_EQ(*load_stop_tokens(file, 2048), *load_stop_tokens(kTinyPython, 2048));
}

// --- what is refused

GgufMetadata small_tokenizer() {
    return {{"tokenizer.ggml.model", std::string_view("gpt2")},
            {"tokenizer.ggml.pre", std::string_view("llama-bpe")},
            {"tokenizer.ggml.tokens", GgufStrings{"a", "b", "ab"}},
            {"tokenizer.ggml.merges", GgufStrings{"a b"}},
            {"tokenizer.ggml.add_bos_token", false}};
}

std::string error_of(const GgufMetadata& metadata) {
    const auto made = gguf_tokenizer_json(metadata, "some.gguf");
    return made ? "" : made.error().message;
}

TEST(GgufText, WhatIsNotKnownIsRefusedByName) {
    EXPECT_EQ(error_of(small_tokenizer()), "");
    const auto expect = [](const GgufMetadata& metadata, std::string_view wanted) {
        EXPECT_NE(error_of(metadata).find(wanted), std::string::npos) << error_of(metadata);
    };
    GgufMetadata changed = small_tokenizer();
    changed["tokenizer.ggml.model"] = std::string_view("t5");
    expect(changed, "some.gguf: tokenizer.ggml.model = \"t5\" is not supported: gpt2 (byte-level BPE) and llama");
    changed = small_tokenizer();
    changed["tokenizer.ggml.pre"] = std::string_view("deepseek-llm");
    expect(changed, "tokenizer.ggml.pre = \"deepseek-llm\" is not supported: llama-bpe, llama3,");
    changed = small_tokenizer();
    changed.erase("tokenizer.ggml.tokens");
    expect(changed, "tokenizer.ggml.tokens is missing: the file has no tokenizer");
    changed = small_tokenizer();
    changed["tokenizer.ggml.merges"] = int64_t{7};
    expect(changed, "tokenizer.ggml.merges = 7 is of another type");
    changed = small_tokenizer();
    changed["tokenizer.ggml.tokens"] = GgufStrings{"a", "a"};
    expect(changed, "has \"a\" twice");
    changed = small_tokenizer();
    changed["tokenizer.ggml.add_bos_token"] = true;
    expect(changed, "tokenizer.ggml.bos_token_id is missing");
}

TEST(GgufText, AnEndTokenBeyondTheVocabularyIsAnError) {
    GgufMetadata metadata = small_tokenizer();
    metadata["tokenizer.ggml.eos_token_id"] = int64_t{3};
    EXPECT_FALSE(gguf_texts(metadata, "some.gguf"));
    metadata["tokenizer.ggml.eos_token_id"] = int64_t{2};
    metadata["tokenizer.ggml.eot_token_id"] = int64_t{0};
    EXPECT_EQ(gguf_texts(metadata, "some.gguf")->stop_tokens, (std::vector<TokenId>{0, 2}));
}

}  // namespace
}  // namespace verbatim::text
