// Every operation of the executors is in the sandbox, or a reason says why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "kernels/sandbox/coverage.h"
#include "kernels/sandbox/operation.h"
#include "kernels/sandbox/session.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using Names = std::set<std::string>;

std::string source_of(const std::string& path) { return file_bytes(VERBATIM_SOURCE_DIR "/" + path); }

void add_matches(const std::string& text, const std::regex& pattern, Names& names) {
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
        names.insert((*match)[1]);
    }
}

// What is asked of a WalkBackend between begin() and observe().
Names operations_of_the_walk() {
    const std::string header = source_of("reference/walk.h");
    const size_t begin = header.find("class WalkBackend {");
    const std::string methods = header.substr(begin, header.find("\n};", begin) - begin);
    Names names;
    add_matches(methods, std::regex("virtual void ([a-z_0-9]+)\\("), names);
    names.erase("begin");
    names.erase("observe");
    return names;
}

// A contract is a struct of arguments, a check() of it, and the operation.
Names operations_with_a_contract() {
    Names names;
    for (const auto& file : std::filesystem::directory_iterator(VERBATIM_SOURCE_DIR "/reference/ops")) {
        if (file.path().extension() != ".h") continue;
        add_matches(file_bytes(file.path().string()),
                    std::regex("\n[a-z0-9_:<>]+ ([a-z_0-9]+)\\(const [A-Za-z0-9]+Args&"), names);
    }
    names.erase("check");
    return names;
}

// What computes: the methods of a device from embed() on.
Names operations_of_a_device() {
    const std::string header = source_of("kernels/cuda/cuda_ops.h");
    const std::string methods = header.substr(header.find("virtual void embed("));
    Names names;
    add_matches(methods, std::regex("virtual void ([a-z_0-9]+)\\("), names);
    return names;
}

Names all_names() {
    Names names = operations_of_the_walk();
    names.merge(operations_with_a_contract());
    names.merge(operations_of_a_device());
    return names;
}

TEST(KernelCoverage, EveryOperationOfTheExecutorsHasItsEntry) {
    EXPECT_GE(operations_of_the_walk().size(), 19u);
    EXPECT_GE(operations_with_a_contract().size(), 15u);
    EXPECT_GE(operations_of_a_device().size(), 20u);
    for (const std::string& name : all_names()) {
        EXPECT_EQ(std::ranges::count(coverage(), name, &Coverage::name), 1)
            << name
            << ": add it to kernels/sandbox/kernel.h and tools/kernel/, or say in kernels/sandbox/coverage.cc why "
            << "people need not try their own";
    }
}

TEST(KernelCoverage, EveryEntryIsOfAnOperationAndSaysWhatBecomesOfIt) {
    const Names names = all_names();
    Names covered;
    for (const Coverage& entry : coverage()) {
        EXPECT_TRUE(names.contains(std::string(entry.name))) << entry.name << " is gone";
        EXPECT_NE(entry.operation.empty(), entry.reason.empty()) << entry.name;
        if (entry.operation.empty()) continue;
        EXPECT_NE(find_operation(entry.operation), nullptr) << entry.name;
        covered.insert(std::string(entry.operation));
    }
    EXPECT_EQ(covered.size(), operations().size());
}

// Ours for CUDA, on the emulator.
TEST(KernelCoverage, EveryOperationHasAnEmulatedKernel) {
    for (const Operation& operation : operations()) {
        const auto infos = builtin_infos(operation);
        EXPECT_EQ(std::ranges::count(infos, std::string("cuda-emulated"), &KernelInfo::name), 1) << operation.name;
    }
}

TEST(KernelCoverage, TheListSaysWhatIsNotThere) {
    const Outcome list = run_verbatim({"kernel", "list"});
    for (const Coverage& entry : coverage()) {
        if (!entry.operation.empty()) continue;
        EXPECT_THAT(list.out, testing::HasSubstr("  " + std::string(entry.name)));
        EXPECT_THAT(list.out, testing::HasSubstr(std::string(entry.reason)));
    }
}

}  // namespace
}  // namespace verbatim::tools
