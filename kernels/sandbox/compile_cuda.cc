#include "kernels/sandbox/compile_cuda.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "files/repository_path.h"
#include "kernels/sandbox/asm_macros.h"
#include "kernels/sandbox/cuda_source.h"
#include "kernels/sandbox/preprocessor_branches.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

// A file and the headers that it includes from the same folder or the user's, by their absolute paths.
class Sources {
public:
    Sources(fs::path scratch, SourceFiles texts, std::vector<fs::path> folders)
        : scratch_(std::move(scratch)), folders_(std::move(folders)), texts_(std::move(texts)) {}

    // What the preprocessor leaves out is blank from now on, and macros of `asm` are what it makes of them. Errors: the
    // preprocessor's, or what is not taken.
    Status preprocess(const std::string& file, const fs::path& main, const ScratchFolder& folder,
                      const std::vector<std::string>& flags, uint64_t memory_bytes) {
        std::vector<std::string_view> all;
        for (const auto& one : texts_) all.push_back(one.second);
        const std::set<std::string> macros = macros_with_asm(all);
        size_t num_expanded = 0;
        for (auto& one : texts_) one.second = with_expansion_marks(one.second, macros, num_expanded);
        const auto is_plain = [](const auto& one) { return !has_branches(one.second); };
        if (num_expanded == 0 && std::ranges::all_of(texts_, is_plain)) return {};
        size_t number = 0, number_of_main = 0;
        for (const auto& [path, text] : texts_) {
            if (path == main) number_of_main = number;
            write("marked", path, with_branch_marks(text, number++, path.string()));
        }
        std::vector<std::string> command = command_of("marked", main, flags);
        const fs::path output = scratch_ / "preprocessed.txt";
        command.insert(command.end(), {"-E", "-P", "-w", "-o", output.string()});
        if (const Status done = run_compiler(file, command, folder, memory_bytes); !done) {
            RETURN_IF_ERROR(translate());  // it may say why in one line
            return done;
        }
        const std::string preprocessed = said_in(output);
        if (!is_included(number_of_main, preprocessed))
            return error("{}: with these --flag g++ -E does not print what it compiles", file);
        number = 0;
        for (auto& [path, text] : texts_) {
            text = with_expansions(without_dead_branches(text, number++, preprocessed), macros, preprocessed);
        }
        return {};
    }

    // The compiler's, of the files in a tree; both passes have the same, so that both see the same branches.
    [[nodiscard]] std::vector<std::string> command_of(const char* tree, const fs::path& main,
                                                      const std::vector<std::string>& flags) const {
        // Structs are not taken apart, so that a vector's access stays one.
        std::vector<std::string> command = {"g++", "-std=c++20", "-O1", "-fno-tree-sra", "-fno-ipa-sra", "-g",
                                            "-march=native", "-ffp-contract=off", "-fPIC",
                                            // A variable without a value has one that no result survives.
                                            "-ftrivial-auto-var-init=pattern", "-fsanitize=thread", "--param",
                                            "tsan-instrument-func-entry-exit=0", "--param",
                                            "tsan-distinguish-volatile=1", "-Wno-unknown-pragmas", "-fmax-errors=20"};
        for (const fs::path& of_user : folders_) command.push_back("-I" + place(tree, of_user).string());
        for (const std::string& word :
             {"-I" + main.parent_path().string(), "-I" + repository_path("kernels/sandbox/cuda"),
              "-I" + repository_path(""), std::string("-include"), std::string("kernels/sandbox/cuda/source.h"),
              std::string("-x"), std::string("c++"), std::string("-c"), place(tree, main).string()}) {
            command.push_back(word);
        }
        std::ranges::copy(flags, std::back_inserter(command));
        return command;
    }

    Status translate() {
        for (const auto& [path, text] : texts_) {
            ASSIGN_OR_RETURN(const std::string translated, translate_cuda(path.string(), text));
            write("source", path, translated);
        }
        return {};
    }

private:
    [[nodiscard]] fs::path place(const char* tree, const fs::path& path) const {
        return scratch_ / tree / path.lexically_normal().relative_path();
    }
    void write(const char* tree, const fs::path& path, const std::string& text) const {
        std::error_code ignored;
        fs::create_directories(place(tree, path).parent_path(), ignored);
        write_scratch(place(tree, path), text);
    }

    fs::path scratch_;
    std::vector<fs::path> folders_;
    SourceFiles texts_;
};

// Of a launch whose arguments are no kernel's: "too many arguments to function", "could not convert argument 1".
std::string said_of_arguments(const std::string& what) {
    static const std::regex kArgument("(?:\xE2\x80\x98|')verbatim_arguments#(\\d+)(?:\xE2\x80\x99|')");
    std::smatch found;
    if (!std::regex_search(what, found, kArgument)) return what;
    return fmt::format("{}argument {}{}", found.prefix().str(), std::stoi(found.str(1)) + 1, found.suffix().str());
}

// What g++ says of a name of CUDA's or of a library's that source.h does not have, or has for other types: "my.cu:3:
// `cub::X` is not taken".
std::optional<Error> error_of_unknown(const std::string& said) {
    static const std::regex kUnknown(R"re(^([^ ]*?):(\d+):\d+: error: (.*)$)re");
    static const std::regex kName(
        "(?:\xE2\x80\x98|')((?:__|cuda|cub|cu[A-Z]|cg::|cooperative_groups|nv|atomic|make_|tex|surf|thrust|cute|"
        "cutlass|wmma|at::|c10|torch|TORCH|curand|h2?(?:exp|log|sin|cos|sqrt|rcp|floor|ceil|trunc|rint)|clock)"
        "[^\xE2' ]*)"
        "(?:\xE2\x80\x99|') (?:was not declared|has not been declared|does not name a|is not a member)");
    static const std::regex kMember(
        "(?:\xE2\x80\x98|')([^\xE2' ]+)(?:\xE2\x80\x99|') (?:is not a member of|in namespace) "
        "(?:\xE2\x80\x98|')(cub|cg|cooperative_groups|cuda|cute|cutlass|thrust|nvcuda::wmma)");
    // A member that a library's class does not have here, or not with these arguments.
    static const std::regex kOfClass(
        "(?:\xE2\x80\x98|[ '])((?:cub|cooperative_groups|cuda|nvcuda)::[^\xE2']*)(?:\xE2\x80\x99|').* has no member "
        "named (?:\xE2\x80\x98|')([^\xE2']*)(?:\xE2\x80\x99|')");
    static const std::regex kCall(
        "no matching function for call to (?:\xE2\x80\x98|')((?:cub|cooperative_groups|cuda|nvcuda)::[^\xE2']*)"
        "(?:\xE2\x80\x99|')");
    // Of a template of ours: where the user's code asks for it comes before the error.
    static const std::regex kAsked(R"re(^([^ ]*?):(\d+):\d+: +required from here$)re");
    constexpr std::string_view kOurs = "kernels/sandbox/cuda/", kAssertion = "static assertion failed: ";
    constexpr const char* kList = "kernels/sandbox/cuda/source.h and the source_*.h beside it list what is taken";
    std::string asked;  // "my.cu:3"
    // The error is where a launch calls its kernel (VERBATIM_CALL).
    bool is_in_lambda = false, is_of_launcher = false;
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);) {
        std::smatch place, name;
        constexpr size_t kLongest = 1000;  // longer than a pattern is matched against
        if (line.find("In instantiation of") != std::string::npos)
            is_in_lambda = line.find("<lambda(auto:") != std::string::npos;
        is_of_launcher |= line.find("cuda_source::Launcher<") != std::string::npos;
        if (line.size() > kLongest) continue;
        const bool is_ours = line.find(kOurs) != std::string::npos;
        if (!is_ours && std::regex_match(line, place, kAsked)) asked = place.str(1) + ":" + place.str(2);
        if (!std::regex_search(line, place, kUnknown)) continue;
        const std::string what = place.str(3);
        if (is_ours && is_in_lambda && is_of_launcher && !asked.empty())
            return Error{fmt::format("{}: a launch: {}", asked, said_of_arguments(what))};
        if (is_ours && !asked.empty()) {
            const bool says_why = what.starts_with(kAssertion);
            return Error{
                fmt::format("{}: not taken: {} ({})", asked, says_why ? what.substr(kAssertion.size()) : what, kList)};
        }
        std::string unknown;
        if (std::regex_search(what, name, kMember)) {
            unknown = name.str(2) + "::" + name.str(1);
        } else if (std::regex_search(what, name, kOfClass)) {
            unknown = name.str(1) + "::" + name.str(2);
        } else if (std::regex_search(what, name, kCall)) {
            unknown = name.str(1);
        } else if (std::regex_search(what, name, kName)) {
            unknown = name.str(1);
        } else {
            return std::nullopt;  // the first error is another one
        }
        return Error{fmt::format("{}:{}: `{}` is not taken ({})", place.str(1), place.str(2), unknown, kList)};
    }
    return std::nullopt;
}

}  // namespace

Result<CompiledKernel> compile_cuda_source(const std::string& file, SourceFiles files,
                                           const std::vector<std::string>& extra_flags, const ScratchFolder& folder,
                                           uint64_t memory_bytes) {
    const fs::path path = fs::absolute(file).lexically_normal();
    Sources sources(folder.path(), std::move(files), include_folders(extra_flags));
    RETURN_IF_ERROR(sources.preprocess(file, path, folder, extra_flags, memory_bytes));
    RETURN_IF_ERROR(sources.translate());
    const std::string object = (folder.path() / (path.stem().string() + ".o")).string();
    const std::string library = (folder.path() / (path.stem().string() + ".so")).string();
    CompiledKernel compiled{library, sources.command_of("source", path, extra_flags)};
    compiled.command.insert(compiled.command.end(), {"-o", object});
    const Status done = run_compiler(file, compiled.command, folder, memory_bytes);
    if (!done) {
        if (const auto unknown = error_of_unknown(said_in(folder.path() / "compiler.txt")))
            return tl::unexpected(*unknown);
        return tl::unexpected(done.error());
    }
    RETURN_IF_ERROR(run_compiler(file, {"g++", "-shared", object, "-o", library}, folder, memory_bytes));
    return compiled;
}

}  // namespace verbatim::sandbox
