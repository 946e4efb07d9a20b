#include "reference/loader/checkpoint_files.h"

#include <nlohmann/json.hpp>
#include <set>

#include "files/strict_json.h"

namespace verbatim::reference {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Index = std::map<std::string, std::string, std::less<>>;

constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxQuantConfigBytes = 10'000'000;

bool is_plain_shard_name(std::string_view name) {
    return name.ends_with(".safetensors") && !name.starts_with('.') && name.size() <= 255 &&
           name.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos;
}

Status check_shard(const Index& index, const std::string& shard, const std::vector<TensorEntry>& entries,
                   const std::string& source) {
    std::set<std::string_view> present;
    for (const TensorEntry& entry : entries) {
        present.insert(entry.name);
        const auto place = index.find(entry.name);
        if (place == index.end()) return error("{}: tensor {} is not in the index", source, quote_text(entry.name));
        if (place->second != shard)
            return error("{}: tensor {} is in this shard, the index places it in {}", source, quote_text(entry.name),
                         quote_text(place->second));
    }
    for (const auto& [tensor, place] : index)
        if (place == shard && !present.contains(tensor))
            return error("{}: the index places tensor {} here, but it is not in the file", source, quote_text(tensor));
    return {};
}

Status add_file(const fs::path& path, const Index* index, CheckpointFiles& checkpoint) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    ASSIGN_OR_RETURN(std::vector<TensorEntry> entries, parse_safetensors(file.bytes(), path.string()));
    if (index) RETURN_IF_ERROR(check_shard(*index, path.filename().string(), entries, path.string()));
    for (TensorEntry& entry : entries) {
        std::string name = entry.name;
        checkpoint.tensors.emplace(std::move(name), std::move(entry));
    }
    checkpoint.files.push_back(std::move(file));
    return {};
}

}  // namespace

Digest state_digest(std::string_view config_text, std::span<const MappedFile> files) {
    Digester digester;
    digester.add(config_text);
    for (const MappedFile& file : files) {
        wait_for_tick(file.state());
        digester.add(file.state().num_bytes);
        digester.add(file.state().inode);
        digester.add(file.state().modified_ns);
        digester.add(file.state().changed_ns);
    }
    return digester.digest();
}

Result<std::string> with_hf_quant_config(std::string config_text, const fs::path& folder) {
    const fs::path path = folder / "hf_quant_config.json";
    if (std::error_code ignored; !fs::exists(path, ignored)) return config_text;
    auto config = parse_strict_json(config_text, "config.json");
    if (!config || !config->is_object()) return config_text;  // reading it as a config reports the fault
    if (const auto stated = config->find("quantization_config"); stated != config->end() && !stated->is_null())
        return config_text;
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxQuantConfigBytes));
    ASSIGN_OR_RETURN(const Json described, parse_strict_json(text, path.string()));
    const auto quantisation = described.is_object() ? described.find("quantization") : described.end();
    if (!described.is_object() || quantisation == described.end() || !quantisation->is_object())
        return error("{}: has no object named quantization", path.string());
    Json& stated = (*config)["quantization_config"] = *quantisation;
    stated["quant_method"] = "modelopt";
    return config->dump();
}

Result<Index> parse_index(std::string_view text, std::string_view source) {
    ASSIGN_OR_RETURN(const Json object, parse_strict_json(text, source));
    if (!object.is_object()) return error("{}: got {}, wanted an object", source, quote_json(object));
    for (const auto& [key, value] : object.items())
        if (key != "metadata" && key != "weight_map")
            return error("{}: key {} is not part of the format", source, quote_text(key));
    const auto map = object.find("weight_map");
    if (map == object.end() || !map->is_object() || map->empty())
        return error("{}: weight_map is {}, wanted an object: tensor name to file name", source,
                     map == object.end() ? "missing" : quote_json(*map));
    Index index;
    std::set<std::string_view> shards;
    for (const auto& [tensor, shard] : map->items()) {
        if (!shard.is_string() || !is_plain_shard_name(shard.get_ref<const std::string&>()))
            return error("{}: weight_map {} = {}, wanted the plain name of a .safetensors file in the same folder",
                         source, quote_text(tensor), quote_json(shard));
        shards.insert(index.emplace(tensor, shard.get<std::string>()).first->second);
        if (shards.size() > kMaxShards) return error("{}: more than {} shards", source, kMaxShards);
    }
    return index;
}

Result<CheckpointFiles> open_checkpoint(const fs::path& folder) {
    CheckpointFiles checkpoint;
    std::error_code ignored;
    if (fs::exists(folder / "model.safetensors", ignored)) {
        RETURN_IF_ERROR(add_file(folder / "model.safetensors", nullptr, checkpoint));
        return checkpoint;
    }
    const fs::path index_path = folder / "model.safetensors.index.json";
    if (!fs::exists(index_path, ignored))
        return error("{}: has neither model.safetensors nor model.safetensors.index.json", folder.string());
    ASSIGN_OR_RETURN(const std::string text, read_text_file(index_path, kMaxIndexBytes));
    ASSIGN_OR_RETURN(const Index index, parse_index(text, index_path.string()));
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : index) shards.insert(shard);
    for (const std::string& shard : shards) RETURN_IF_ERROR(add_file(folder / shard, &index, checkpoint));
    return checkpoint;
}

}  // namespace verbatim::reference
