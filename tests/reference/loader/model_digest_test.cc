// Every weight of a checkpoint enters the model's digest: heads and records of another model are never taken for its.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "reference/loader/load_model.h"
#include "reference/loader/model_choice.h"
#include "reference/loader/write_checkpoint.h"
#include "tests/reference/families.h"
#include "tests/reference/loader/golden_checkpoint.h"

namespace verbatim::reference {
namespace {

// Another value in the place of the first one, which loading keeps as it is.
template <typename Value>
void change_first(std::string& bytes, Value value, Value other) {
    Value before{};
    std::memcpy(&before, bytes.data(), sizeof(before));
    if (before == value) value = other;
    std::memcpy(bytes.data(), &value, sizeof(value));
}

class ModelDigest : public testing::TestWithParam<tests::Family> {};

TEST_P(ModelDigest, EveryTensorEntersIt) {
    const tests::ScratchFolder scratch;
    ASSERT_TRUE(write_random_checkpoint(GetParam().draw(7), 1, scratch.path()));
    const auto digest = [&] { return *model_digest(*load_model(scratch.path())); };
    const Digest sound = digest();
    EXPECT_EQ(digest(), sound);
    const FileTensors tensors = read_tensors(read_file(scratch.path("model.safetensors")));
    std::vector<std::string> unseen;
    for (size_t i = 0; i < tensors.size(); ++i) {
        FileTensors changed = tensors;
        if (changed[i].layout.dtype == TensorDtype::kBf16) {
            change_first<uint16_t>(changed[i].bytes, 0x3f80, 0x4000);  // 1 and 2
        } else {
            change_first<float>(changed[i].bytes, 1, 2);
        }
        scratch.write("model.safetensors", write_tensors(changed));
        if (digest() == sound) unseen.push_back(tensors[i].layout.name);
    }
    EXPECT_THAT(unseen, testing::IsEmpty());
    EXPECT_GT(tensors.size(), 5u);
}

INSTANTIATE_TEST_SUITE_P(Families, ModelDigest, testing::ValuesIn(tests::kAllFamilies),
                         [](const auto& instance) { return instance.param.name(); });

}  // namespace
}  // namespace verbatim::reference
