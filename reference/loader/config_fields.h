// reference/loader/config_fields.h: the keys of one JSON object. Each key must be read or known to be harmless; any
// other is an error.
//
//   F1  a getter marks its key as read; finish() reports every key that was not
//   F2  getters never fail: they note the problem and return a harmless value; finish() reports all problems at once
//   F3  null counts as absent
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::reference {

class ConfigFields {
public:
    using Keys = std::initializer_list<std::string_view>;
    static constexpr int32_t kMaxSize = std::numeric_limits<int32_t>::max();

    // REQUIRES: object.is_object(); the object outlives this. `prefix` precedes every key in problems.
    explicit ConfigFields(const nlohmann::json& object, std::string prefix = "");

    [[nodiscard]] bool has(std::string_view key) const;
    // The value of `key`, marked as read; null if absent.
    const nlohmann::json& value(std::string_view key);

    // Several keys are names of one field: those present must agree. least <= value <= kMaxSize.
    std::optional<int32_t> optional_size(Keys keys, int32_t least = 1);
    int32_t size(Keys keys);
    std::optional<double> optional_number(Keys keys);
    double number(Keys keys);
    double number_or(Keys keys, double otherwise);
    bool flag_or(Keys keys, bool otherwise);
    std::optional<std::string> optional_text(Keys keys);
    // Empty when absent; exactly `count` numbers otherwise.
    std::optional<std::vector<double>> optional_numbers(std::string_view key, size_t count);

    // The value must be absent, null or one of these; any other is reported as unsupported.
    void only_text(std::string_view key, Keys supported);
    void only_flag(std::string_view key, bool supported);
    void only_number(std::string_view key, double supported);
    void only_null(std::string_view key);
    void only_empty(std::string_view key);  // also a list or an object with nothing in it

    // Marks keys that change no result of this engine.
    void harmless(Keys keys);

    template <typename... Args>
    void problem(fmt::format_string<Args...> format, Args&&... args) {
        problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
    void absorb(const ConfigFields& inner);  // problems of a nested object, and its unused keys

    // All problems, and the unread keys; `source` names the file.
    [[nodiscard]] Status finish(std::string_view source) const;

private:
    // The common value of all of `keys`, and the first key that is present; null if none is.
    const nlohmann::json& agreed(Keys keys, std::string& name);
    void wrong(std::string_view key, const nlohmann::json& got, std::string_view wanted);
    [[nodiscard]] std::vector<std::string> all_problems() const;

    const nlohmann::json& object_;
    std::string prefix_;
    std::set<std::string, std::less<>> understood_;
    std::vector<std::string> problems_;
};

}  // namespace verbatim::reference
