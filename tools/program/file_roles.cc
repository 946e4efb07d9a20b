#include "tools/program/file_roles.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "files/output_file.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOutputType = "OUTFILE";

// The same for all names of a file.
struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const FileId&, const FileId&) = default;
};

FileId id_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

// None: there is no regular file. Links are followed.
std::optional<FileId> regular_file(const fs::path& path) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return id_of(status);
}

// A place that is written; it may have no file yet.
struct Place {
    fs::path path;  // one spelling for all
    std::optional<FileId> id;
    [[nodiscard]] bool is(const Place& other) const { return path == other.path || (id && id == other.id); }
};

Place place_of(const fs::path& path) {
    std::error_code ignored;
    return {fs::weakly_canonical(path, ignored), regular_file(path)};
}

std::string to_text(const NamedFile& file) { return file.path.empty() ? file.name : file.name + " " + file.path; }

struct Output {
    NamedFile file;
    Place target;
    Place partial;
};

// None: it is written directly, as pipes and descriptors are.
Result<std::optional<Output>> output_of(const NamedFile& file) {
    if (file.path.empty() || file.path == "-") return std::nullopt;
    ASSIGN_OR_RETURN(const fs::path path, files::behind_links(file.path));
    std::error_code ignored;
    if (files::names_descriptor(path) || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)))
        return std::nullopt;
    return Output{file, place_of(path), place_of(files::partial_of(path))};
}

struct Input {
    NamedFile file;
    FileId id;
};

// A file, or the files of a folder.
void add_inputs(const NamedFile& named, const fs::path& path, std::vector<Input>& inputs) {
    if (const auto id = regular_file(path)) inputs.push_back({named, *id});
    std::error_code problem;
    if (path.empty() || !fs::is_directory(path, problem)) return;
    for (fs::directory_iterator entry(path, problem), end; !problem && entry != end; entry.increment(problem)) {
        if (const auto id = regular_file(entry->path())) inputs.push_back({named, *id});
    }
}

// A value as a path, and what follows a scheme: `model:DIR`, `sqlite:///FILE`.
std::vector<Input> inputs_of(const std::vector<NamedFile>& files) {
    std::vector<Input> inputs;
    for (const NamedFile& file : files) {
        add_inputs(file, file.path, inputs);
        const size_t colon = file.path.find(':');
        if (colon != std::string::npos) add_inputs(file, file.path.substr(colon + 1), inputs);
    }
    struct stat status = {};
    if (::fstat(STDOUT_FILENO, &status) == 0 && S_ISREG(status.st_mode))
        inputs.push_back({{"standard output", ""}, id_of(status)});
    return inputs;
}

Status check_one(const Output& output, const std::vector<Input>& inputs) {
    for (const Input& input : inputs) {
        if (output.target.id == input.id)
            return error("{}: is a file of {}, and would be overwritten: name another file", to_text(output.file),
                         to_text(input.file));
        if (output.partial.id == input.id)
            return error(
                "{}: is written under the name {} until it is complete, and that is a file of {}: name another file",
                to_text(output.file), output.partial.path.string(), to_text(input.file));
    }
    return {};
}

void add_values(const CLI::App& app, std::vector<NamedFile>& inputs, std::vector<NamedFile>& outputs) {
    for (const CLI::Option* option : options_of_parsed(app)) {
        const bool is_output = option->get_type_name() == kOutputType;
        for (const std::string& value : option->results())
            (is_output ? outputs : inputs).push_back({option->get_name(), value});
        if (option->count() == 0 && !is_output) inputs.push_back({option->get_name(), option->get_default_str()});
    }
}

}  // namespace

CLI::Option* add_output_option(CLI::App& command, const std::string& flag, std::string& path,
                               const std::string& description) {
    return command.add_option(flag, path, description)->type_name(kOutputType);
}

Status check_file_roles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
    const std::vector<Input> read = inputs_of(inputs);
    std::vector<Output> written;
    for (const NamedFile& file : outputs) {
        ASSIGN_OR_RETURN(std::optional<Output> output, output_of(file));
        if (!output) continue;
        RETURN_IF_ERROR(check_one(*output, read));
        for (const Output& other : written) {
            if (output->target.is(other.target) || output->target.is(other.partial) || output->partial.is(other.target))
                return error("{} and {} are one file: name another one", to_text(other.file), to_text(file));
        }
        written.push_back(*std::move(output));
    }
    return {};
}

Status check_file_roles(const CLI::App& app) {
    std::vector<NamedFile> inputs;
    std::vector<NamedFile> outputs;
    add_values(app, inputs, outputs);
    return check_file_roles(inputs, outputs);
}

std::vector<NamedFile> named_files(const std::string& name, const std::vector<std::string>& paths) {
    std::vector<NamedFile> files;
    for (const std::string& path : paths) files.push_back({name, path});
    return files;
}

}  // namespace verbatim::tools
