// Any text as config.json: refused, or a sound config that says the same after being written.
#include "engine/base/check.h"
#include "reference/loader/config_json.h"

namespace verbatim::reference {
namespace {

void check_text(std::string_view text) {
    const auto config = parse_config(text, "config.json");
    if (!config) return;
    CHECK(validate(*config).empty(), "{}", validate(*config).front());
    (void)geometry(*config);
    const auto written = write_config(*config);
    if (!written) return;  // a config of parts that no layer has may ask for more than the dialect can say
    CHECK(*parse_config(*written, "written") == *config, "{}", *written);
}

}  // namespace
}  // namespace verbatim::reference

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::reference::check_text({reinterpret_cast<const char*>(data), size});
    return 0;
}
