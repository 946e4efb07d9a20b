// tests/reference/loader/golden_checkpoint.h: the golden checkpoints, and copies that a test may break.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/reference/loader/checkpoint_builder.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

inline std::filesystem::path golden_folder(const std::string& name) {
    return std::filesystem::path(VERBATIM_SOURCE_DIR "/tests/data/golden") / name;
}

// A copy of a golden checkpoint that a test may break.
class Checkpoint {
public:
    explicit Checkpoint(const std::string& golden) {
        for (const auto& file : std::filesystem::directory_iterator(golden_folder(golden)))
            if (file.path().filename() != "golden.safetensors") write(file.path().filename(), read_file(file.path()));
    }
    void write(const std::string& name, const std::string& content) const { folder_.write(name, content); }
    void remove(const std::string& name) const { std::filesystem::remove(folder_.path() / name); }
    [[nodiscard]] std::string read(const std::string& name) const { return read_file(folder_.path() / name); }
    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
    void change_tensors(const std::string& name, const std::function<void(FileTensors&)>& change) const {
        FileTensors tensors = read_tensors(read(name));
        change(tensors);
        write(name, write_tensors(tensors));
    }
    void change_json(const std::string& name, const std::function<void(nlohmann::json&)>& change) const {
        nlohmann::json json = nlohmann::json::parse(read(name));
        change(json);
        write(name, json.dump());
    }

private:
    tests::ScratchFolder folder_;
};

inline constexpr const char* kFile = "model.safetensors";

}  // namespace verbatim::reference
