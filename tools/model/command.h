// tools/model/command.h: `verbatim model init|info|check`.
//
//   init    random weights for a preset, written as a Hugging Face checkpoint folder
//   info    layers by kind, parameters, bytes of KV and state, break-even length, what fits into --memory
//   check   a checkpoint's golden file through the double-precision and the exact model
#pragma once

namespace CLI {
class App;
}

namespace verbatim::tools {

void add_model_command(CLI::App& app, int& exit_code);

}  // namespace verbatim::tools
