// `verbatim head`: heads as files (docs/heads.md): shows, computes and imports them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "files/json_text.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "files/strict_json.h"
#include "kernels/executors/executor_choice.h"
#include "reference/head_digest.h"
#include "reference/loader/head_file.h"
#include "reference/loader/model_choice.h"
#include "server/heads/head_tier.h"
#include "server/ledger/ledger_address.h"
#include "server/text/tokenizer_json.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/file_roles.h"

namespace verbatim::tools {

using namespace executors;
namespace {

using reference::HeadFile;
using reference::HeadInfo;
using reference::StatePer;
using reference::StateTensor;

constexpr const char* kHeadExitCodes =
    "Exit codes: 0 done; 2 bad flag; 3 the file is damaged or no head's, or the model or the ledger is wrong;\n"
    "4 a file cannot be written.";
constexpr int32_t kBlockSize = 16;
constexpr int32_t kStepTokens = 512;
constexpr int64_t kShownTokens = 8;

struct HeadOptions {
    std::string file;
    std::string model;
    uint64_t seed = 0;
    std::string executor = "cpu";
    int32_t threads = std::max<int32_t>(1, std::thread::hardware_concurrency());
    std::string tokens_file;
    std::string ledger;
    std::string conversation;
    std::string salt;
    bool has_salt = false;
    std::string tier;
    uint64_t tier_bytes = 0;
    CLI::Option* has_tier_bytes = nullptr;
    OutputFormat format = OutputFormat::kTable;
};

// --- show

nlohmann::ordered_json base_json(const HeadInfo& info) {
    if (!info.base) return nullptr;
    return {{"name", info.base->name}, {"length", info.base->length}};
}

nlohmann::ordered_json json_of(const HeadFile& file) {
    const HeadInfo& info = file.info();
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const StateTensor& tensor : file.tensors()) {
        tensors.push_back({{"layer", tensor.layer},
                           {"kind", tensor.kind.name},
                           {"per", tensor.per == StatePer::kToken ? "token" : "sequence"},
                           {"dtype", reference::dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"bytes", reference::part_num_bytes(tensor, info.length())}});
    }
    return {{"length", info.length()},
            {"bytes", file.file_bytes()},
            {"model", info.model},
            {"numerics", info.numerics},
            {"digest", info.digest.hex()},
            {"salt", info.salt ? nlohmann::ordered_json(*info.salt) : nlohmann::ordered_json()},
            {"base", base_json(info)},
            {"tokens", info.tokens},
            {"tensors", std::move(tensors)}};
}

std::string first_tokens(const std::vector<TokenId>& tokens) {
    std::string text;
    const auto count = std::min<int64_t>(kShownTokens, static_cast<int64_t>(tokens.size()));
    for (int64_t i = 0; i < count; ++i) text += fmt::format("{}{}", i > 0 ? " " : "", tokens[static_cast<size_t>(i)]);
    return count < static_cast<int64_t>(tokens.size()) ? text + " ..." : text;
}

std::string table_of(const HeadFile& file) {
    const HeadInfo& info = file.info();
    Table table;
    table.add_row({"tokens", fmt::format("{} ({})", info.length(), first_tokens(info.tokens))});
    table.add_row({"bytes", format_bytes(static_cast<uint64_t>(file.file_bytes()))});
    table.add_row({"numerics", info.numerics});
    table.add_row({"model", info.model});
    table.add_row({"state digest", info.digest.hex()});
    if (info.salt) table.add_row({"salt", *info.salt});
    if (info.base) {
        table.add_row({"begins in", fmt::format("{}.head, which has the KV of {} tokens; this file of {}",
                                                info.base->name, info.base->length, info.own_length())});
    }
    for (const StatePer per : {StatePer::kSequence, StatePer::kToken}) {
        const auto count = std::ranges::count_if(file.tensors(), [&](const auto& tensor) { return tensor.per == per; });
        const int64_t times = per == StatePer::kToken ? info.length() : 1;
        table.add_row({per == StatePer::kToken ? "KV" : "states",
                       fmt::format("{} tensors, {}", count,
                                   format_bytes(static_cast<uint64_t>(times * file.tensors().num_bytes(per))))});
    }
    table.add_row({"checked", "every checksum, and the digest of the state"});
    return table.to_string();
}

int run_show(const HeadOptions& options) {
    const auto file = HeadFile::open(options.file);
    if (!file) return report_error(file.error(), kExitBadInput);
    if (const Status right = file->check_digest(); !right) return report_error(right.error(), kExitBadInput);
    const std::string text = options.format == OutputFormat::kJson ? json_text(json_of(*file)) + "\n" : table_of(*file);
    std::fputs(text.c_str(), stdout);
    return kExitOk;
}

// --- export

Result<std::vector<TokenId>> read_tokens(const std::string& path) {
    constexpr size_t kMaxBytes = size_t{256} << 20;
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxBytes));
    ASSIGN_OR_RETURN(const nlohmann::json list, parse_strict_json(text, path));
    if (!list.is_array()) return error("{}: wanted a JSON list of token ids", path);
    std::vector<TokenId> tokens;
    for (const nlohmann::json& id : list) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{0x7fffffff})
            return error("{}: [{}] is {}, wanted a token id", path, tokens.size(), quote_json(id));
        tokens.push_back(id.get<TokenId>());
    }
    return tokens;
}

// A conversation's committed tokens, without the last one: it was sampled and never computed.
Result<std::vector<TokenId>> ledger_tokens(const HeadOptions& options, int32_t vocab_size) {
    ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::load_tokenizer(options.model));
    ASSIGN_OR_RETURN(const auto store, server::existing_ledger_store(options.ledger));
    RETURN_IF_ERROR(store->open({.tokenizer = text::digest_of(tokenizer).hex(), .vocab_size = vocab_size}));
    const CacheSalt salt{options.has_salt ? std::optional(options.salt) : std::nullopt};
    ASSIGN_OR_RETURN(const server::ConversationRows rows, store->load({salt, options.conversation}));
    if (!rows.exists()) return error("{}: there is no conversation {:?}", options.ledger, options.conversation);
    std::vector<TokenId> tokens;
    for (const server::TurnPtr& turn : rows.turns)
        tokens.insert(tokens.end(), turn->tokens.begin(), turn->tokens.end());
    if (rows.turns.back()->end > rows.turns.back()->prompt_end) tokens.pop_back();
    return tokens;
}

Status check_tokens(const std::vector<TokenId>& tokens, int32_t vocab_size, const std::string& where) {
    if (tokens.empty()) return error("{}: there are no tokens", where);
    const auto unknown = std::ranges::find_if(tokens, [&](TokenId token) { return token < 0 || token >= vocab_size; });
    if (unknown == tokens.end()) return {};
    return error("{}: token {} is not one of the model's {}", where, *unknown, vocab_size);
}

Status export_head(const HeadOptions& options) {
    ASSIGN_OR_RETURN(files::OutputFile out, files::OutputFile::create(options.file));
    ASSIGN_OR_RETURN(const reference::Model model, reference::choose_model(options.model, options.seed));
    ASSIGN_OR_RETURN(const Digest digest, reference::model_digest(model));
    const int32_t vocab_size = model.config.vocab_size;
    const bool is_file = !options.tokens_file.empty();
    ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                     is_file ? read_tokens(options.tokens_file) : ledger_tokens(options, vocab_size));
    RETURN_IF_ERROR(check_tokens(tokens, vocab_size, is_file ? options.tokens_file : options.ledger));

    const auto length = static_cast<int64_t>(tokens.size());
    const PoolSizes pools{kBlockSize, static_cast<int32_t>(length / kBlockSize) + 3, 4};
    EngineConfig config;
    config.cache = cache_config(reference::geometry(model.config), pools);
    config.scheduler.step_tokens = kStepTokens;
    config.max_model_len = length + 1;
    ASSIGN_OR_RETURN(
        const ChosenExecutor chosen,
        choose_executor(options.executor, {.pools = config.cache.pools, .num_threads = options.threads}, model));
    TokenStore store(vocab_size);
    ASSIGN_OR_RETURN(const HeadCopy head, compute_head(config, *chosen.executor, store, store.store(tokens)));
    if (head.bytes.empty()) return error("--executor {}: it keeps no heads", options.executor);
    const HeadInfo info{digest.hex(), head.numerics_id, head.digest,
                        options.has_salt ? std::optional(options.salt) : std::nullopt, tokens};
    RETURN_IF_ERROR(reference::write_head_file(out, info, chosen.executor->tensors(), head.bytes));
    fmt::print("{}: {} tokens, {}, digest {}\n", options.file, length, head.numerics_id, head.digest.hex());
    return {};
}

// --- import

// Whether the tier may have the head with all of those that are there. What is in another file, too, counts, although
// it may be written once.
Status check_room(const HeadOptions& options, const HeadFile& file, const server::HeadTierCounts& there) {
    if (options.has_tier_bytes->count() == 0) return {};
    const HeadInfo& info = file.info();
    const int64_t in_bases = reference::head_num_bytes(file.tensors(), info.length()) -
                             reference::head_num_bytes(file.tensors(), info.own_length());
    const auto wanted = static_cast<uint64_t>(there.num_bytes + file.file_bytes() + in_bases);
    if (wanted <= options.tier_bytes) return {};
    return error("{}: its {} bytes and the {} of {} heads in {} take --tier-bytes {}, got {}: nothing has changed",
                 options.file, file.file_bytes() + in_bases, there.num_bytes, there.num_files, options.tier, wanted,
                 options.tier_bytes);
}

Status import_head(const HeadOptions& options) {
    ASSIGN_OR_RETURN(const HeadFile file, HeadFile::open(options.file));
    RETURN_IF_ERROR(file.check_digest());
    ASSIGN_OR_RETURN(const reference::Model model, reference::choose_model(options.model, options.seed));
    ASSIGN_OR_RETURN(const Digest digest, reference::model_digest(model));
    const reference::StateTensors tensors = reference::state_tensors(model.config);
    RETURN_IF_ERROR(file.check_model(digest.hex(), tensors));
    RETURN_IF_ERROR(check_tokens(file.info().tokens, model.config.vocab_size, options.file));
    ASSIGN_OR_RETURN(const auto tier, server::HeadTier::open({.folder = options.tier,
                                                              .max_bytes = std::numeric_limits<int64_t>::max(),
                                                              .max_waiting_bytes = file.file_bytes(),
                                                              .min_tokens = 1,
                                                              .model = digest.hex(),
                                                              .numerics = file.info().numerics,
                                                              .tensors = tensors,
                                                              .vocab_size = model.config.vocab_size}));
    TokenStore store(model.config.vocab_size);
    const TokenSeq tokens = store.store(file.info().tokens);
    const CacheSalt salt{file.info().salt};
    if (!tier->wants(salt, tokens, file.info().numerics)) {
        fmt::print("{}: the tier has this head\n", options.tier);
        return {};
    }
    RETURN_IF_ERROR(check_room(options, file, tier->counts()));
    tier->put(salt, {tokens, file.info().numerics, file.info().digest, {file.bytes().begin(), file.bytes().end()}});
    tier->wait_until_written();
    if (const std::string problem = tier->counts().problem; !problem.empty())
        return tl::unexpected(Error{problem, ErrorKind::kMachine});
    fmt::print("{}: {} heads, {}\n", options.tier, tier->counts().num_files,
               format_bytes(static_cast<uint64_t>(tier->counts().num_bytes)));
    return {};
}

int reported(const Status& status) { return status ? kExitOk : report_error(status.error()); }

void add_model_options(CLI::App& verb, HeadOptions& options) {
    verb.add_option("--model", options.model, "a checkpoint's folder, a GGUF file or a preset")->required();
    add_seed_option(verb, options.seed);
}

void add_show(CLI::App& head, const std::shared_ptr<HeadOptions>& options, int& exit_code) {
    CLI::App* verb = head.add_subcommand("show", "check a head's file, and say what is in it");
    verb->footer(kHeadExitCodes);
    verb->add_option("FILE", options->file, "the file")->required();
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_show(*options); });
}

void add_export(CLI::App& head, const std::shared_ptr<HeadOptions>& options, int& exit_code) {
    CLI::App* verb = head.add_subcommand("export", "compute the head of a conversation or of tokens, and write it");
    verb->footer(kHeadExitCodes);
    add_model_options(*verb, *options);
    auto* tokens = verb->add_option("--tokens", options->tokens_file, "a JSON file with a list of token ids");
    auto* ledger = verb->add_option("--ledger", options->ledger, "where the conversation is kept, as `serve` has it");
    auto* id = verb->add_option("--conversation", options->conversation, "its id");
    ledger->needs(id)->excludes(tokens);
    id->needs(ledger);
    verb->add_option_function<std::string>(
        "--salt",
        [options](const std::string& salt) {
            options->salt = salt;
            options->has_salt = true;
        },
        "the cache salt of its requests");
    add_output_option(*verb, "--out", options->file, "the file to write")->required();
    verb->add_option("--executor", options->executor, "who computes: cpu, cuda, cuda-emulated")->capture_default_str();
    add_threads_option(*verb, options->threads, "of the executor");
    verb->callback([options, &exit_code] {
        if (options->tokens_file.empty() && options->ledger.empty()) {
            exit_code = report_error({"wanted --tokens FILE, or --ledger and --conversation"}, kExitBadUsage);
            return;
        }
        exit_code = reported(export_head(*options));
    });
}

void add_import(CLI::App& head, const std::shared_ptr<HeadOptions>& options, int& exit_code) {
    CLI::App* verb = head.add_subcommand("import", "put a head's file into a tier, where `serve --tier` finds it");
    verb->footer(kHeadExitCodes);
    verb->add_option("FILE", options->file, "the file")->required();
    add_model_options(*verb, *options);
    verb->add_option("--tier", options->tier, "the folder")->required();
    options->has_tier_bytes = add_bytes_option(*verb, "--tier-bytes", options->tier_bytes,
                                               "the most that the tier's files may take; no head goes to make room");
    verb->callback([options, &exit_code] { exit_code = reported(import_head(*options)); });
}

}  // namespace

void add_head_command(CLI::App& app, int& exit_code) {
    const auto options = std::make_shared<HeadOptions>();
    CLI::App* head = app.add_subcommand("head", "heads of conversations as files: show, export, import");
    head->require_subcommand(1);
    add_show(*head, options, exit_code);
    add_export(*head, options, exit_code);
    add_import(*head, options, exit_code);
}

}  // namespace verbatim::tools
